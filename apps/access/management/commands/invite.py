"""Print a link to set a password, for a new user or one who has lost theirs."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from apps.access.errors import BadInvitation
from apps.access.services.links import invite


class Command(BaseCommand):
    """``manage.py invite NAME``; invalidates earlier links for the same name."""

    help = "Print a one-time link to set a password; create the user if missing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="user name")
        rights = parser.add_mutually_exclusive_group()
        rights.add_argument("--superuser", action="store_true", help="make a new user a superuser")
        rights.add_argument("--auditor", action="store_true", help="make a new user an auditor")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            made = invite(
                actor=None,
                username=options["name"],
                is_superuser=options["superuser"],
                is_auditor=options["auditor"],
                actor_label="manage.py",
            )
        except BadInvitation as error:
            raise CommandError(error.text, returncode=2) from error
        text = _("%(name)s (once, within %(hours)d h): %(address)s")
        substitutions = {
            "name": made.link.username,
            "hours": settings.LINK_HOURS,
            "address": made.address(),
        }
        self.stdout.write(text % substitutions)
