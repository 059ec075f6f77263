"""manage.py bench NAME: benches of a checkout; the wheel does not contain them."""

from __future__ import annotations

from django.core.management.base import BaseCommand, CommandError

try:
    from tools.benches.command import Command
except ModuleNotFoundError as missing:
    if missing.name not in ("tools", "tools.benches"):
        raise

    class Command(BaseCommand):  # type: ignore[no-redef]
        """Refer to the checkout."""

        help = "Measure; needs a checkout of the source."

        def run_from_argv(self, argv: list[str]) -> None:
            raise CommandError("benches are not installed: run manage.py bench from a checkout")
