"""Print a link for the first superuser to set a name and a password."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.utils.translation import gettext as _

from apps.access.services.links import first_link


class Command(BaseCommand):
    """``manage.py create_admin``; does nothing if a superuser exists."""

    help = "Print a one-time link for the first superuser to set a name and a password."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--server", default="", help="address of the server (default: PUBLIC_URL)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        made = first_link()
        if made is None:
            self.stdout.write(
                _(
                    "There is a superuser already, so no link was made. "
                    "For others, or for a lost password: manage.py invite NAME."
                )
            )
            return
        text = _("First administrator (once, within %(hours)d h): %(address)s")
        self.stdout.write(
            text % {"hours": settings.LINK_HOURS, "address": made.address(options["server"])}
        )
