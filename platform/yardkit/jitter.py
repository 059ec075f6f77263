"""Random jitter for waits, so that many clients do not retry in the same moment."""

from __future__ import annotations

from random import Random

# An own source: tests and libraries may seed the module's shared one, and draws come from threads.
_source = Random()  # noqa: S311


def jitter(seconds: float, least: float, most: float) -> float:
    """Return ``seconds`` times a random factor between ``least`` and ``most``."""
    return seconds * _source.uniform(least, most)
