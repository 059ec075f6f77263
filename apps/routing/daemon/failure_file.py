"""Shared writer of a project's failure file, with a pause after errors."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from apps.routing.engine.failures import FailureFile, FailureFileError, FailureRecord
from yardkit.clock import Clock
from yardkit.outage import Outage

logger = logging.getLogger(__name__)

# Longest wait for the file lock of another process: the thread also serves other projects.
LOCK_SECONDS: Final = 1.0
# Pause after a failed write: further writes fail at once, so that no thread waits for the file.
REST_SECONDS: Final = 5.0
# An error is shown for this long after the last attempt. Waiting items cause attempts more often,
# so without one nothing waits any more.
REMEMBERED_SECONDS: Final = 90.0


class FailureFileWriter:
    """Writes records to the failure file and remembers the last error. Thread-safe."""

    def __init__(self, slug: str, file: FailureFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._outage = Outage(logger, f"failure file of {slug}")
        self._error: FailureFileError | None = None
        self._tried_at = float("-inf")
        # Time of the first of the current errors.
        self.problem_at: datetime | None = None

    @property
    def problem(self) -> str:
        """Last error; "" after a successful write, or when nothing waits to be written."""
        error = self._error
        return "" if error is None or self._is_over(REMEMBERED_SECONDS) else str(error)

    @property
    def rests(self) -> bool:
        """Whether a write failed a moment ago, so that ``write`` fails without trying."""
        return self._error is not None and not self._is_over(REST_SECONDS)

    def write(self, records: Sequence[FailureRecord]) -> None:
        """Append all records or none. Raises ``FailureFileError``, at once while ``rests``."""
        error = self._error
        if error is not None and self.rests:
            raise FailureFileError(error.code, str(error))
        try:
            self._file.write(records)
        except FailureFileError as failed:
            self._set_error(failed)
            raise
        self._set_error(None)

    def close(self) -> None:
        self._file.close()

    def _is_over(self, seconds: float) -> bool:
        return self._clock.monotonic() >= self._tried_at + seconds

    def _set_error(self, error: FailureFileError | None) -> None:
        before, self._error = self._error, error
        self._tried_at = self._clock.monotonic()
        if error is None:
            self._outage.recovered()
            self.problem_at = None
        else:
            self._outage.failed(error)
            if before is None:
                self.problem_at = self._clock.now()
