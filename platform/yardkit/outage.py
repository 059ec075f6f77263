"""One log line when a dependency fails, one when it works again, and the pause between tries."""

from __future__ import annotations

import logging

from yardkit.backoff import Backoff
from yardkit.errors import first_line


class Outage:
    """Log the beginning and the end of an outage, however often the work is tried meanwhile.

    Not thread-safe. ``what`` names the work for the log, for example "outbox relay". The pauses
    returned by ``failed`` grow from ``first`` to ``longest`` seconds.
    """

    def __init__(
        self, logger: logging.Logger, what: str, *, first: float = 1.0, longest: float = 15.0
    ) -> None:
        self._logger = logger
        self._what = what
        self._backoff = Backoff(first, longest)
        # First line of the latest error; "" while all is well.
        self.error = ""

    @property
    def lasting(self) -> bool:
        """Whether the latest try has failed."""
        return self._backoff.failures > 0

    @property
    def failures(self) -> int:
        """Return the number of failed tries in a row."""
        return self._backoff.failures

    def failed(self, error: BaseException) -> float:
        """Note a failed try; return the seconds to wait before the next one."""
        self.error = first_line(error)
        if not self.lasting:
            self._logger.warning("%s fails and is retried: %s", self._what, self.error)
        return self._backoff.seconds()

    def recovered(self) -> None:
        """Note a successful try."""
        if self.lasting:
            self._logger.info("%s works again", self._what)
        self._backoff.reset()
        self.error = ""
