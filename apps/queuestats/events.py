"""Events about counters."""

from __future__ import annotations

from typing import Final

COUNTERS_CHANGED: Final = "run.counters"
