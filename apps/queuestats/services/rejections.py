"""Reports that cannot be stored."""

from __future__ import annotations

from dataclasses import dataclass

from yardkit.protocol import CenterCounters, RunCounters, Samples


@dataclass(frozen=True, slots=True)
class RejectedReport:
    """A report that cannot be stored, and why."""

    message: RunCounters | CenterCounters | Samples
    reason: str
