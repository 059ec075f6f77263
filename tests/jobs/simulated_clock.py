"""Runs ``manage.py`` with the clock read from a file: ``python simulated_clock.py run_worker``."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "platform")]
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.jobs.simulated_settings"


def simulated_now() -> datetime:
    """What the test's clock says."""
    return datetime.fromisoformat(Path(os.environ["SIMULATED_CLOCK"]).read_text(encoding="ascii"))


if __name__ == "__main__":
    import django

    django.setup()

    from apps.jobs import tasks

    tasks.database_now = simulated_now

    from crawlyard.entry import main

    sys.exit(main(sys.argv))
