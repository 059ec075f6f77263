"""Tuning of Python's garbage collector."""

from __future__ import annotations

import gc
from typing import Final

# The youngest generation is collected at a higher threshold; the older ones a little more often
# than by default, because they are counted in collections of the youngest.
THRESHOLDS: Final = (20_000, 10, 5)


def spare_the_collector() -> None:
    """Freeze existing objects and collect less often, for daemons with large batches.

    By default the collector scans all of them, and all code, repeatedly: a fifth of the time of an
    item.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
