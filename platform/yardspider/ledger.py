"""The books of a run: every request, and every attempt at one, ends in exactly one place."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from yardkit.protocol import FailureNote, RunCounters
from yardspider.coverage import FieldCoverage

# Notes that one message carries; the rest waits for the next.
NOTES_PER_MESSAGE = 200
_REASON_CHARACTERS = 500
_URL_CHARACTERS = 2000
_KEPT_FAILURES = 20

# What the ledger counts and its message carries, by the same names.
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
    "pages",
    "items",
    "bytes_received",
)


class Depths(NamedTuple):
    """What is where at this moment.

    queued: requests before their first turn. in_flight: those sent that have not ended, and
    those whose callback runs. out: attempts on their way; held: of these, at the center.
    """

    queued: int = 0
    in_flight: int = 0
    out: int = 0
    held: int = 0


class Ledger:
    """Counts since the run began. At every moment, of requests and of attempts at them:

        total = success + failed + left
        sent + retried = returned + skipped + timed_out + refused + cancelled + out

    An attempt is ``sent`` (the first of its request) or ``retried``. It is ``returned`` when its
    answer was accepted, ``skipped`` or ``refused`` by the center, ``timed_out`` when it was given
    up without an answer, ``cancelled`` when it was out at the end of the run, else out.

    A late answer, to an attempt that had timed out, is accepted while its request has no other:
    that attempt then counts as returned, and the one sent after it, if it is out, as timed out
    in its place: nobody waits for it any more. Answers that are not accepted are ``duplicates``
    and stand in no equation.

    ``unanswered`` of the failed requests had no answer from center or agents, however often sent.

    ``coverage``: in how many of the items each field had a value.

    ``notes`` are the failures that nobody has confirmed yet; ``first_failures`` some to show.
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
        self.pages = 0
        self.items = 0
        self.bytes_received = 0
        self.agents: dict[str, int] = {}
        self.agent_failed: dict[str, int] = {}
        self.agent_ms: dict[str, float] = {}
        self.callback_ms = 0.0
        self.coverage = FieldCoverage()
        self.notes: deque[FailureNote] = deque()
        self.first_failures: list[FailureNote] = []

    @property
    def left(self) -> int:
        return self.total - self.success - self.failed

    def take_answer(self, agent: str, elapsed_ms: float, *, success: bool) -> None:
        """An answer that was accepted; the spider has said whether it is a success."""
        self.returned += 1
        self.agents[agent] = self.agents.get(agent, 0) + 1
        self.agent_ms[agent] = self.agent_ms.get(agent, 0.0) + max(0.0, elapsed_ms)
        if not success:
            self.agent_failed[agent] = self.agent_failed.get(agent, 0) + 1

    def take_item(self, item: dict[str, Any]) -> None:
        """An item that was kept."""
        self.items += 1
        self.coverage.add(item)

    def fail(self, url: str, status: int, reason: str) -> None:
        """A request has failed for good."""
        self.failed += 1
        reason = " ".join(reason.split())[:_REASON_CHARACTERS]
        note = FailureNote(self.failed, url[:_URL_CHARACTERS], status, reason)
        self.notes.append(note)
        if len(self.first_failures) < _KEPT_FAILURES:
            self.first_failures.append(note)

    def counts(self) -> dict[str, int]:
        """Every count by its name in ``RunCounters``."""
        return {name: getattr(self, name) for name in COUNTED}

    def snapshot(
        self,
        *,
        run: int,
        boot: str,
        seq: int,
        depths: Depths,
        failures: list[FailureNote],
        final: bool = False,
    ) -> RunCounters:
        """The message that says all this."""
        return RunCounters(
            run=run,
            boot=boot,
            seq=seq,
            **self.counts(),
            **depths._asdict(),
            agents=dict(self.agents),
            agent_failed=dict(self.agent_failed),
            agent_ms={agent: round(ms) for agent, ms in self.agent_ms.items()},
            callback_ms=round(self.callback_ms),
            fields=self.coverage.counts(),
            failures=failures,
            final=final,
        )
