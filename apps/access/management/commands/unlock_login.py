"""End the lockout of a user after too many failed logins."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from apps.access.services.lockouts import unlock


class Command(BaseCommand):
    """``manage.py unlock_login NAME``."""

    help = "Unlock a login that was locked after too many wrong passwords."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username", help="user name")
        parser.add_argument("--address", help="only for this address (default: all)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the number of lockouts that were ended."""
        removed = unlock(
            actor=None,
            username=options["username"],
            address=options["address"],
            actor_label="manage.py",
        )
        self.stdout.write(f"forgotten: wrong passwords from {removed} addresses")
