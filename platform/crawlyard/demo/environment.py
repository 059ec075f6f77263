"""What the settings of the demo and the benches are, before Django reads them."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from itertools import pairwise
from typing import Final

from crawlyard.settings.paths import ROOT

# Whatever these say, the embedded demo touches nothing outside its own folder.
STORES: Final = (
    "DATABASE_URL",
    "BROKER_URL",
    "REDIS_URL",
    "RUNNER_URL",
    "REQUESTS_URL",
    "REQUESTS_NODES",
    "LOGS_URL",
)


def wants_own_folder(argv: Sequence[str]) -> bool:
    """The demo and the benches never touch the data of an installation."""
    return argv[1:2] in (["demo"], ["bench"])


def prepare(environ: MutableMapping[str, str], command: str, arguments: Sequence[str]) -> None:
    """Point the settings at the command's own folder (``demo-data``, ``bench-data``).

    With ``--engines configured`` the stores of the environment stay: the same demo, on your own
    PostgreSQL, RabbitMQ and Redis.
    """
    configured = "--engines=configured" in arguments or any(
        pair == ("--engines", "configured") for pair in pairwise(arguments)
    )
    if not configured:
        for name in STORES:
            for key in (name, f"{name}_FILE"):
                environ.pop(key, None)
    folder = environ.get(f"CRAWLYARD_{command.upper()}_DATA") or str(ROOT / f"{command}-data")
    environ["CRAWLYARD_DATA"] = folder
    environ.pop("CRAWLYARD_DATA_FILE", None)
    environ.setdefault("LOG_LEVEL", "INFO")
    # There is no other host that could take the run of a laptop that is busy.
    environ.setdefault("RUN_MAX_CPU_PERCENT", "101")
