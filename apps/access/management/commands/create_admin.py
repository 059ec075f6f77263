"""Makes the first superuser and prints its one-time password."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from apps.access.services import ensure_admin


class Command(BaseCommand):
    """``manage.py create_admin``; harmless when somebody exists already."""

    help = "Make the first superuser, with a one-time password that is printed once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--username", default="admin", help="its name (default: admin)")

    def handle(self, *args: Any, **options: Any) -> None:
        username: str = options["username"]
        try:
            UnicodeUsernameValidator()(username)
        except ValidationError as error:
            raise CommandError(f"--username: {error.messages[0]}", returncode=2) from error
        password = ensure_admin(username=username)
        if password is None:
            self.stdout.write(
                _(
                    "There are users already, so none was made. A superuser sets passwords in "
                    "the admin; without one: manage.py changepassword NAME."
                )
            )
            return
        self.stdout.write(_("User: %(name)s") % {"name": username})
        self.stdout.write(_("One-time password: %(password)s") % {"password": password})
