"""Names of all settings, from reference.toml, the source of docs/settings.md."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

# Reserved prefixes: an unknown variable with one is a mistake, or a setting of another version.
OURS: Final = (
    "AGENT_",
    "ALERTS_",
    "ALERT_",
    "COMPAT_",
    "CRAWLYARD_",
    "FETCHERS_",
    "FETCHER_",
    "LOGS_",
    "METRICS_",
    "RECORDS_",
    "REQUESTS_",
    "ROUTING_",
    "RUNNER_",
    "SECRETBOX_",
    "SEEDS_",
    "SOURCES_",
    "SPIDERS_",
)
# Has a reserved prefix but belongs to the library "requests".
FOREIGN: Final = frozenset({"REQUESTS_CA_BUNDLE"})
KNOWN: Final = frozenset(
    name
    for section in tomllib.loads(
        Path(__file__).with_name("reference.toml").read_text(encoding="utf-8")
    )["section"]
    for name in section["settings"]
)
