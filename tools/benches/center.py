"""A center as ``manage.py run_center`` starts it, whose traffic is written down.

``python -m tools.benches.center FILE [ARGUMENTS OF run_center]``
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, cast

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "crawlyard.settings.daemon"
django.setup()

from apps.agents.management.commands import run_center  # noqa: E402 - Django comes first
from tools.benches.tap import TappedBroker  # noqa: E402
from yardkit.broker import Broker  # noqa: E402
from yardkit.daemon import Daemon  # noqa: E402


class Command(run_center.Command):
    """``run_center`` with a tap between it and its broker."""

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
        """The same center."""
        tapped = TappedBroker(broker, Path(sys.argv[1]))
        return super().make_daemon(options, cast(Broker, tapped))


if __name__ == "__main__":
    Command().run_from_argv(["manage.py", "run_center", *sys.argv[2:]])
