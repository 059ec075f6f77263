"""A seed, as a spider author adds it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from yardkit.protocol.seeds import GRAB
from yardkit.protocol.seeds import Seed as SeedMessage


@dataclass(frozen=True, slots=True)
class Seed:
    """Something to crawl, now or later; yield it, or pass it to ``self.seeds.add``.

    Args:
        data: usually a URL.
        active_at: earliest time to crawl it, with a time zone or in ms since 1970. The seed then
            belongs to the segment of that time, and is new again in the next one.
        active_after: the same, relative to now.
        max_retry: number of tries; None is the frontier's number.
        ext: additional data, JSON types.
        urgent: leased before all others; only without a time.

    Raises:
        ValueError: two times, or one without a zone.
    """

    data: str
    active_at: datetime | int | None = None
    active_after: timedelta | None = None
    max_retry: int | None = None
    ext: dict[str, Any] | None = None
    urgent: bool = False

    def __post_init__(self) -> None:
        if self.active_at is not None and self.active_after is not None:
            raise ValueError("a seed has active_at or active_after, not both")
        if isinstance(self.active_at, datetime) and self.active_at.tzinfo is None:
            raise ValueError(f"active_at {self.active_at} has no time zone")
        if self.ext is not None and GRAB in self.ext:
            raise ValueError(f"ext may not hold {GRAB!r}")

    def message(self, now: int) -> SeedMessage:
        """Return the message to the service. ``now``: ms since 1970."""
        at = self.active_at
        if self.active_after is not None:
            at = now + int(self.active_after.total_seconds() * 1000)
        elif isinstance(at, datetime):
            at = int(at.timestamp() * 1000)
        return SeedMessage(self.data, at, self.max_retry, self.ext, self.urgent)
