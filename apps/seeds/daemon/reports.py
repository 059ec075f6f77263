"""Reports of segment counts, written for pages and REST."""

from __future__ import annotations

from typing import Final

from apps.seeds.daemon.frontiers import Frontiers
from apps.seeds.services.reports import report_segments
from apps.seeds.stores.base import SeedStore, Segment
from yardkit.clock import Clock

REPORT_SECONDS: Final = 5.0
# Interval of full reports, which include changes by other processes and missed ones.
REPORT_ALL_SECONDS: Final = 60.0


class SegmentReporter:
    """Writes the counts of changed frontiers. ``touch`` may be called from any thread."""

    def __init__(self, frontiers: Frontiers, clock: Clock) -> None:
        self._frontiers = frontiers
        self._clock = clock
        self._touched: set[int] = set()
        self._reported: dict[int, list[Segment]] = {}
        self._at = self._all_at = 0.0

    def touch(self, frontier: int) -> None:
        """Mark the counts of a frontier as changed."""
        self._touched.add(frontier)

    def touch_all(self) -> None:
        """Mark the counts of all frontiers as changed."""
        self._touched.update(active.frontier for active in self._frontiers.all())

    def turn(self, store: SeedStore) -> None:
        """Write due reports. Raises ``SeedStoreUnavailable``, ``DatabaseError``."""
        at = self._clock.monotonic()
        if at < self._at:
            return
        self._at = at + REPORT_SECONDS
        if at >= self._all_at:
            self._all_at = at + REPORT_ALL_SECONDS
            self.touch_all()
        known = {active.frontier for active in self._frontiers.all()}
        for frontier in list(self._touched):
            self._touched.discard(frontier)
            if frontier in known:
                self._report(store, frontier)

    def _report(self, store: SeedStore, frontier: int) -> None:
        try:
            segments = store.segments(frontier)
            reported = {segment.segment: segment for segment in self._reported.get(frontier, ())}
            if frontier in self._reported and segments == self._reported[frontier]:
                return
            changed = [segment for segment in segments if reported.get(segment.segment) != segment]
            report_segments(
                frontier=frontier,
                segments=changed,
                all_segments=[segment.segment for segment in segments],
                now=self._clock.now(),
            )
        except BaseException:
            self._reported.pop(frontier, None)
            self._touched.add(frontier)
            raise
        self._reported[frontier] = segments
