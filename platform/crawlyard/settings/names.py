"""Names of all settings, from reference.toml, which docs/settings.md is made of."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

# Who sets a name that begins so means us: one that is not known is a mistake, or another version's.
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
# Begins like ours and is read by others: the library "requests".
FOREIGN: Final = frozenset({"REQUESTS_CA_BUNDLE"})
KNOWN: Final = frozenset(
    name
    for section in tomllib.loads(
        Path(__file__).with_name("reference.toml").read_text(encoding="utf-8")
    )["section"]
    for name in section["settings"]
)
