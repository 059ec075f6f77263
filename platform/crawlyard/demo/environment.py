"""Environment of the demo and the benches, prepared before Django reads settings."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from itertools import pairwise
from typing import Final

from crawlyard.settings.paths import ROOT

# Ignored by the embedded demo, which uses its own folder only.
STORES: Final = (
    "DATABASE_URL",
    "BROKER_URL",
    "REDIS_URL",
    "RUNNER_URL",
    "REQUESTS_URL",
    "REQUESTS_NODES",
    "LOGS_URL",
    "OBJECTS_URL",
)


def wants_own_folder(argv: Sequence[str]) -> bool:
    """Return whether the command uses its own data folder: demo and benches."""
    return argv[1:2] in (["demo"], ["bench"])


def prepare(environ: MutableMapping[str, str], command: str, arguments: Sequence[str]) -> None:
    """Point the settings at the command's own folder (``demo-data``, ``bench-data``).

    With ``--engines configured`` the stores of the environment are used.
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
    # No other host could take the run of a busy laptop.
    environ.setdefault("RUN_MAX_CPU_PERCENT", "101")
