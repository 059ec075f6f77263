"""manage.py upgrade_check: report what prevents an upgrade, before it begins."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from crawlyard.upgrades.readiness import UpgradeLevel, check


class Command(BaseCommand):
    """Run with the new version installed beside the old one. Changes nothing."""

    help = "Check whether an upgrade is possible."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print a JSON list")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a table; exit status 1 when an item is bad."""
        items = check()
        if options["json"]:
            self.stdout.write(json.dumps([dataclasses.asdict(item) for item in items]))
        else:
            width = max(len(item.what) for item in items)
            for each in items:
                self.stdout.write(f"{each.level.upper():<4} {each.what:<{width}}  {each.detail}")
                if each.how and each.level is not UpgradeLevel.OK:
                    self.stdout.write(f"     {'':<{width}}  → {each.how}")
        bad = sorted({item.what for item in items if item.level is UpgradeLevel.BAD})
        if bad:
            raise CommandError(f"not ready: {', '.join(bad)}", returncode=1)
