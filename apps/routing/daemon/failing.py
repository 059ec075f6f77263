"""The failure file of a project, while a router runs it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from apps.routing.engine.failures import Failed, FailureFile, FailureFileError
from yardkit.clock import Clock
from yardkit.outage import Outage

logger = logging.getLogger(__name__)

# Longest wait for another process that holds it: the thread serves other projects, too.
LOCK_SECONDS: Final = 1.0
# Pause after a failed write, so that no thread waits for the file.
REST_SECONDS: Final = 5.0
# What waits for it comes again sooner: when nothing has, nothing does.
REMEMBERED_SECONDS: Final = 90.0


class FailureLine:
    """Writes the file, and says what is wrong with it. Threads may share it."""

    def __init__(self, slug: str, file: FailureFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._outage = Outage(logger, f"failure file of {slug}")
        self._error: FailureFileError | None = None
        self._tried_at = float("-inf")
        # Since when it cannot be written.
        self.problem_at: datetime | None = None

    @property
    def problem(self) -> str:
        """Why it cannot be written; "" when it can, or when nothing waits for it."""
        error = self._error
        return "" if error is None or self._is_over(REMEMBERED_SECONDS) else str(error)

    @property
    def rests(self) -> bool:
        """Whether it could not be written a moment ago, and is not tried now."""
        return self._error is not None and not self._is_over(REST_SECONDS)

    def write(self, records: Sequence[Failed]) -> None:
        """All of them or none. Raises ``FailureFileError``, at once while it rests."""
        error = self._error
        if error is not None and self.rests:
            raise FailureFileError(error.code, str(error))
        try:
            self._file.write(records)
        except FailureFileError as failed:
            self._note(failed)
            raise
        self._note(None)

    def close(self) -> None:
        """Let go of it."""
        self._file.close()

    def _is_over(self, seconds: float) -> bool:
        return self._clock.monotonic() >= self._tried_at + seconds

    def _note(self, error: FailureFileError | None) -> None:
        before, self._error = self._error, error
        self._tried_at = self._clock.monotonic()
        if error is None:
            self._outage.recovered()
            self.problem_at = None
        else:
            self._outage.failed(error)
            if before is None:
                self.problem_at = self._clock.now()
