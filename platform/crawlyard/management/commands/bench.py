"""manage.py bench NAME: one measurement beside its peer, in one run."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from crawlyard.benches.download import BenchFailed, run


class Command(BaseCommand):
    """Figures for people, or one JSON object with --json."""

    help = "Measure; figures count only as ratios within one run."

    def add_arguments(self, parser: CommandParser) -> None:
        """What to measure and how big."""
        parser.add_argument("name", choices=("download",))
        parser.add_argument("--json", action="store_true", help="one JSON object")
        parser.add_argument("--pages", type=int, default=3000, help="pages of the site")
        parser.add_argument("--scale", type=int, default=1, help="multiply the pages")
        parser.add_argument("--no-peer", action="store_true", help="measure only our side")
        parser.add_argument(
            "--engines",
            choices=("embedded", "configured"),
            default="embedded",
            help="configured: the stores that DATABASE_URL and BROKER_URL name",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Measure and print."""
        pages = options["pages"] * options["scale"]
        if pages < 1:
            raise CommandError("--pages and --scale must be at least 1", returncode=2)
        try:
            result = run(pages=pages, peer=not options["no_peer"])
        except BenchFailed as failure:
            raise CommandError(str(failure), returncode=1) from failure
        if options["json"]:
            self.stdout.write(json.dumps(result))
            return
        for side in ("ours", "peer"):
            if result[side]:
                figures = ", ".join(f"{key} {value}" for key, value in result[side].items())
                self.stdout.write(f"{side:>5}: {figures}")
        if result["ratio"]:
            self.stdout.write(f"ratio: {result['ratio']} times the peer's pages a second")
