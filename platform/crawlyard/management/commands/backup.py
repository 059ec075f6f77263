"""manage.py backup: back up everything that cannot be rebuilt, as one snapshot."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from crawlyard.backup.creation import make_backup
from crawlyard.backup.errors import BackupError, RestoreRefused
from crawlyard.backup.parts import outside, parts


class Command(BaseCommand):
    """Back up during operation."""

    help = "Back up what this installation cannot rebuild."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("dest", metavar="DEST", type=Path, help="new folder")
        parser.add_argument(
            "--without", metavar="PART", action="append", default=[], help="omit this part"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Exit status 1 when the backup fails; nothing is left then."""
        os.umask(0o077)
        try:
            chosen = parts()
            unknown = set(options["without"]) - {part.name for part in chosen}
            if unknown:
                names = ", ".join(part.name for part in chosen)
                raise RestoreRefused(
                    f"--without {min(unknown)}: there is no such part, only {names}"
                )
            kept = [part for part in chosen if part.name not in options["without"]]
            if "database" not in {part.name for part in kept}:
                raise RestoreRefused("--without database: nothing else is of use without it")
            made = make_backup(options["dest"].absolute(), kept, outside(), self.stdout.write)
        except RestoreRefused as error:
            raise CommandError(str(error), returncode=2) from error
        except BackupError as error:
            raise CommandError(f"{error}; there is no backup", returncode=1) from error
        size = f"{len(made.files)} files, {made.total_bytes / 2**20:.1f} MiB"
        self.stdout.write(f"{options['dest']}: {size}, as of {made.created_at}")
        for key in made.keys:
            count = f" for {key.secrets} secrets" if key.setting == "SECRETBOX_KEYS" else ""
            self.stdout.write(f"needs the key of {key.setting} {key.fingerprint}{count}")
        self.stdout.write("Not in it:")
        for store, how in made.outside.items():
            self.stdout.write(f"- {store}: {how}")
