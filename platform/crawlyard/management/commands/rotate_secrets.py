"""manage.py rotate_secrets: seal every stored secret with the newest key."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from crawlyard.rotation import rotate
from yardkit.secretbox import BadKey


class Command(BaseCommand):
    """Rotate during operation; may be interrupted and repeated."""

    help = "Seal every stored secret with the first key of SECRETBOX_KEYS."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only count")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print counts by field; exit status 1 when a secret cannot be opened."""
        dry_run: bool = options["dry_run"]
        rotated = newest = 0
        lost: list[str] = []
        word = "to seal anew" if dry_run else "sealed anew"
        try:
            for count in rotate(settings.SECRETBOX_KEYS, dry_run=dry_run):
                rotated, newest = rotated + count.rotated, newest + count.newest
                lost += [f"{count.label} {key}" for key in count.lost]
                if count.rotated or count.newest or count.lost:
                    self.stdout.write(
                        f"{count.label}: {count.rotated} {word}, {count.newest} have the newest"
                        f" key, {len(count.lost)} cannot be opened"
                    )
        except BadKey as error:
            raise CommandError(str(error), returncode=2) from error
        self.stdout.write(f"all: {rotated} {word}, {newest} have the newest key")
        if lost:
            shown = ", ".join(lost[:20]) + (", ..." if len(lost) > 20 else "")
            raise CommandError(f"no key of SECRETBOX_KEYS opens: {shown}", returncode=1)
