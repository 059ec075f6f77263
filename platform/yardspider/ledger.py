"""The books of a run: every request ends in exactly one place."""

from __future__ import annotations

from collections import deque

from yardkit.protocol import FailureNote, RunCounters

# Notes that one message carries; the rest waits for the next.
NOTES_PER_MESSAGE = 200
_REASON_CHARACTERS = 500
_URL_CHARACTERS = 2000
_KEPT_FAILURES = 20


class Ledger:
    """Counts since the run began; ``total = success + failed + left`` at every moment.

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
        self.duplicates = 0
        self.filtered = 0
        self.pages = 0
        self.items = 0
        self.bytes_received = 0
        self.agents: dict[str, int] = {}
        self.notes: deque[FailureNote] = deque()
        self.first_failures: list[FailureNote] = []

    @property
    def left(self) -> int:
        return self.total - self.success - self.failed

    def fail(self, url: str, status: int, reason: str) -> None:
        """A request has failed for good."""
        self.failed += 1
        reason = " ".join(reason.split())[:_REASON_CHARACTERS]
        note = FailureNote(self.failed, url[:_URL_CHARACTERS], status, reason)
        self.notes.append(note)
        if len(self.first_failures) < _KEPT_FAILURES:
            self.first_failures.append(note)

    def snapshot(
        self,
        *,
        run: int,
        boot: str,
        seq: int,
        queued: int,
        in_flight: int,
        failures: list[FailureNote],
        final: bool = False,
    ) -> RunCounters:
        """The message that says all this."""
        return RunCounters(
            run=run,
            boot=boot,
            seq=seq,
            total=self.total,
            success=self.success,
            failed=self.failed,
            sent=self.sent,
            returned=self.returned,
            retried=self.retried,
            skipped=self.skipped,
            duplicates=self.duplicates,
            pages=self.pages,
            items=self.items,
            bytes_received=self.bytes_received,
            queued=queued,
            in_flight=in_flight,
            agents=dict(self.agents),
            failures=failures,
            final=final,
        )
