"""Stop, time limit and failure of a build."""

from __future__ import annotations

import enum
import threading
import time

from apps.projects.engine.refusals import ProjectInputError


class BuildStepFailed(ProjectInputError):
    """The build failed; ``code`` and ``params`` are the reason."""


class StopReason(enum.Enum):
    """Reason why a running build is stopped."""

    CANCELLED = "cancelled"
    # The worker counts as dead, or another worker has claimed the build.
    GIVEN_UP = "given_up"


class BuildStopped(Exception):
    """The build must be aborted; ``why`` is the reason."""

    def __init__(self, why: StopReason) -> None:
        self.why = why
        super().__init__(why.value)


class BuildControl:
    """Stop request and time limit of one build. Thread-safe."""

    def __init__(self, *, limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self._deadline = time.monotonic() + limit_seconds
        self._requested = threading.Event()
        self._why = StopReason.CANCELLED

    def stop(self, why: StopReason) -> None:
        """Request a stop; only the first reason is kept."""
        if not self._requested.is_set():
            self._why = why
            self._requested.set()

    @property
    def remaining(self) -> float:
        """Return the remaining seconds of the time limit, at least 0.1."""
        return max(0.1, self._deadline - time.monotonic())

    def check(self) -> None:
        """Raise ``BuildStopped`` after a stop request, ``BuildStepFailed`` after the time limit."""
        if self._requested.is_set():
            raise BuildStopped(self._why)
        if time.monotonic() >= self._deadline:
            raise BuildStepFailed("build_time_limit", seconds=round(self.limit_seconds))

    def wait(self, seconds: float) -> None:
        """Sleep, at most until the time limit. Raises the exceptions of ``check``."""
        self._requested.wait(min(seconds, self.remaining))
        self.check()
