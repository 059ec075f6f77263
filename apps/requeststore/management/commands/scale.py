"""manage.py scale: number of fetchers that should run, and why."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from apps.requeststore.services.scale_advice import Advice, wanted_fetchers

MORE_WANTED: Final = 3
FEWER_WANTED: Final = 4


class Command(BaseCommand):
    """Prints the advice and changes nothing."""

    help = "Show how many fetchers are needed, and why."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument(
            "--check",
            action="store_true",
            help="exit status 3 if more fetchers are needed, 4 if fewer",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the advice."""
        advice = wanted_fetchers()
        if options["json"]:
            self.stdout.write(json.dumps(advice.as_dict(), cls=DjangoJSONEncoder))
        else:
            self._say(advice)
        if options["check"] and advice.wanted != advice.running:
            sys.exit(MORE_WANTED if advice.wanted > advice.running else FEWER_WANTED)

    def _say(self, advice: Advice) -> None:
        self.stdout.write(
            f"fetchers: {advice.running} running, {advice.wanted} wanted"
            f" (1 to {advice.most}; {advice.needed} needed now)"
        )
        for biz in advice.bizzes:
            self.stdout.write(
                f"  {biz.project_name}/{biz.biz}: {biz.backlog:,} waiting, "
                f"{biz.needed} needed: {biz.reason}"
            )
