"""manage.py doctor: connect to every configured store and report problems."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from crawlyard.diagnosis import diagnose


class Command(BaseCommand):
    """Print a table of all stores; exit status 1 when one does not work."""

    help = "Check every configured store."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print a JSON list")

    def handle(self, *args: Any, **options: Any) -> None:
        """Exit status 1 when a check fails."""
        findings = diagnose()
        if options["json"]:
            self.stdout.write(json.dumps([dataclasses.asdict(f) for f in findings]))
        else:
            width = max(len(finding.setting) for finding in findings)
            for finding in findings:
                mark = "ok  " if finding.ok else "BAD "
                line = f"{mark} {finding.setting:<{width}}  {finding.value}  {finding.detail}"
                self.stdout.write(line.rstrip())
                if finding.how and not finding.ok:
                    self.stdout.write(f"     {'':<{width}}  → {finding.how}")
        bad = [finding.setting for finding in findings if not finding.ok]
        if bad:
            raise CommandError(f"not working: {', '.join(bad)}", returncode=1)
