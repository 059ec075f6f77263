"""manage.py bench NAME: the benches of a checkout, which the wheel does not carry."""

from __future__ import annotations

from django.core.management.base import BaseCommand, CommandError

try:
    from tools.benches.command import Command
except ModuleNotFoundError as missing:
    if missing.name not in ("tools", "tools.benches"):
        raise

    class Command(BaseCommand):  # type: ignore[no-redef]
        """Point to the checkout."""

        help = "Measure; needs a checkout of the source."

        def run_from_argv(self, argv: list[str]) -> None:
            """Refuse, whatever the arguments are."""
            raise CommandError("benches are not installed: run manage.py bench from a checkout")
