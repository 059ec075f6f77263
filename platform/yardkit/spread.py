"""Random spreads of load. They guard nothing, so they need no secure source."""

from __future__ import annotations

from random import Random

# An own source: the module's one belongs to whoever seeds it, and these draws come from threads.
_source = Random()  # noqa: S311


def spread(seconds: float, least: float, most: float) -> float:
    """``seconds`` times a random factor between ``least`` and ``most``."""
    return seconds * _source.uniform(least, most)
