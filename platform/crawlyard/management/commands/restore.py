"""manage.py restore: restore a backup completely, or change nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from crawlyard.backup import manifest
from crawlyard.backup.errors import BackupError, RestoreRefused
from crawlyard.backup.parts import parts
from crawlyard.backup.restore import restore


class Command(BaseCommand):
    """Restore while all processes of the installation are stopped."""

    help = "Restore a backup."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("source", metavar="SOURCE", type=Path, help="folder of a backup")
        parser.add_argument("--check", action="store_true", help="only verify the backup")
        parser.add_argument("--force", action="store_true", help="replace existing data")
        parser.add_argument(
            "--other-keys",
            action="store_true",
            help="accept that SECRETBOX_KEYS cannot open the secrets",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Restore or check; exit status 2 if refused, 1 if failed, both without any change."""
        os.umask(0o077)
        source: Path = options["source"]
        try:
            if options["check"]:
                known = manifest.read(source)
                manifest.verify(source, known)
                size = f"{len(known.files)} files, {known.total_bytes / 2**20:.1f} MiB"
                self.stdout.write(f"{source}: whole, {size}, as of {known.created_at}")
                return
            known = restore(
                source,
                parts(),
                self.stdout.write,
                force=options["force"],
                other_keys=options["other_keys"],
            )
        except RestoreRefused as error:
            raise CommandError(str(error), returncode=2) from error
        except BackupError as error:
            raise CommandError(str(error), returncode=1) from error
        finally:
            connection.close()
        self.stdout.write(f"restored as of {known.created_at}, version {known.version}")
        ours = manifest.fingerprint(settings.SECRET_KEY)
        if any(key.setting == "SECRET_KEY" and key.fingerprint != ours for key in known.keys):
            self.stdout.write("SECRET_KEY is another one: everybody logs in again")
        self.stdout.write("Next: manage.py migrate, manage.py doctor, then start the processes.")
