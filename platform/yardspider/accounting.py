"""Counters of a run: every request and every attempt ends in exactly one of them."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from yardkit.protocol import FailureNote, RunCounters
from yardspider.coverage import FieldCoverage

# Notes in one message; the rest waits for the next.
NOTES_PER_MESSAGE = 200
_REASON_CHARACTERS = 500
_URL_CHARACTERS = 2000
_KEPT_FAILURES = 20

# Counters that the message carries, under the same names.
COUNTED: Final = (
    "total",
    "success",
    "failed",
    "sent",
    "returned",
    "retried",
    "skipped",
    "timed_out",
    "refused",
    "cancelled",
    "duplicates",
    "filtered",
    "pages",
    "items",
    "bytes_received",
)


class Depths(NamedTuple):
    """Queue depths at this moment.

    queued: requests not sent yet. in_flight: requests sent and not ended, or whose callback runs.
    out: attempts sent and not ended. held: of these, at the center.
    """

    queued: int = 0
    in_flight: int = 0
    out: int = 0
    held: int = 0


class CrawlAccounting:
    """Counters since the run began. At every moment, for requests and for attempts:

        total = success + failed + left
        sent + retried = returned + skipped + timed_out + refused + cancelled + out

    An attempt is ``sent`` (the first of its request) or ``retried``. It is ``returned`` when its
    answer was accepted, ``skipped`` or ``refused`` by the center, ``timed_out`` when it had no
    answer in time, ``cancelled`` when it was out at the end of the run, else out.

    A late answer to an attempt that had timed out is accepted while its request has no other:
    that attempt then counts as returned, and a later one that is out as timed out. Answers that
    are not accepted are ``duplicates``, which are in no equation. ``filtered``: requests that the
    scheduler has dropped, because the same one was queued before.

    ``unanswered``: failed requests that had no answer from center or agents after all retries.
    ``exceptions``: of callbacks; their requests are failed ones.
    ``dropped``: items that were given up before they were sent, by reason.
    ``stats``: statistics of another framework, by name.
    ``coverage``: in how many items each field had a value. ``notes``: failures that are not
    confirmed yet. ``first_failures``: some to show.
    """

    def __init__(self) -> None:
        self.total = 0
        self.success = 0
        self.failed = 0
        self.sent = 0
        self.returned = 0
        self.retried = 0
        self.skipped = 0
        self.timed_out = 0
        self.refused = 0
        self.cancelled = 0
        self.duplicates = 0
        self.filtered = 0
        self.unanswered = 0
        self.exceptions = 0
        self.pages = 0
        self.items = 0
        self.bytes_received = 0
        self.agents: dict[str, int] = {}
        self.agent_failed: dict[str, int] = {}
        self.agent_ms: dict[str, float] = {}
        self.callback_ms = 0.0
        self.dropped: dict[str, int] = {}
        self.stats: dict[str, Any] = {}
        self.coverage = FieldCoverage()
        self.notes: deque[FailureNote] = deque()
        self.first_failures: list[FailureNote] = []

    @property
    def left(self) -> int:
        return self.total - self.success - self.failed

    def take_answer(self, agent: str, elapsed_ms: float, *, success: bool) -> None:
        """Count an accepted answer; the spider has judged whether it is a success."""
        self.returned += 1
        self.agents[agent] = self.agents.get(agent, 0) + 1
        self.agent_ms[agent] = self.agent_ms.get(agent, 0.0) + max(0.0, elapsed_ms)
        if not success:
            self.agent_failed[agent] = self.agent_failed.get(agent, 0) + 1

    def take_item(self, item: dict[str, Any]) -> None:
        """Count a stored item."""
        self.items += 1
        self.coverage.add(item)

    def fail(self, url: str, status: int, reason: str) -> None:
        """Count a failed request."""
        self.failed += 1
        reason = " ".join(reason.split())[:_REASON_CHARACTERS]
        note = FailureNote(self.failed, url[:_URL_CHARACTERS], status, reason)
        self.notes.append(note)
        if len(self.first_failures) < _KEPT_FAILURES:
            self.first_failures.append(note)

    def counts(self) -> dict[str, int]:
        """Return every counter by its name in ``RunCounters``."""
        return {name: getattr(self, name) for name in COUNTED}

    def snapshot(
        self,
        *,
        run: int,
        incarnation: str,
        seq: int,
        depths: Depths,
        failures: list[FailureNote],
        final: bool = False,
    ) -> RunCounters:
        """Return the counters as a message."""
        return RunCounters(
            run=run,
            boot=incarnation,
            seq=seq,
            **self.counts(),
            **depths._asdict(),
            agents=dict(self.agents),
            agent_failed=dict(self.agent_failed),
            agent_ms={agent: round(ms) for agent, ms in self.agent_ms.items()},
            callback_ms=round(self.callback_ms),
            fields=self.coverage.counts(),
            dropped=dict(self.dropped),
            stats=self.stats,
            failures=failures,
            final=final,
        )
