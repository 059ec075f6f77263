"""What can end a build early, and how a failure is told."""

from __future__ import annotations

import enum
import threading
import time

from apps.projects.engine.refusals import ProjectInputError


class BuildStepFailed(ProjectInputError):
    """The build came to nothing; ``code`` and ``params`` say why."""


class StopReason(enum.Enum):
    """Why a build is stopped from outside."""

    CANCELLED = "cancelled"
    # Its worker has been taken for dead, or another one has it.
    GIVEN_UP = "given_up"


class BuildStopped(Exception):
    """Somebody wants the build to end now."""

    def __init__(self, why: StopReason) -> None:
        self.why = why
        super().__init__(why.value)


class BuildControl:
    """Asked by every step, told by other threads."""

    def __init__(self, *, limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self._deadline = time.monotonic() + limit_seconds
        self._told = threading.Event()
        self._why = StopReason.CANCELLED

    def stop(self, why: StopReason) -> None:
        """The first word counts."""
        if not self._told.is_set():
            self._why = why
            self._told.set()

    @property
    def remaining(self) -> float:
        """Seconds of the time limit, at least a little."""
        return max(0.1, self._deadline - time.monotonic())

    def check(self) -> None:
        """Raise ``BuildStopped``, or ``BuildStepFailed`` when the time is over."""
        if self._told.is_set():
            raise BuildStopped(self._why)
        if time.monotonic() >= self._deadline:
            raise BuildStepFailed("build_time_limit", seconds=round(self.limit_seconds))

    def wait(self, seconds: float) -> None:
        """Sleep, but no longer than the build may go on. Raises as ``check``."""
        self._told.wait(min(seconds, self.remaining))
        self.check()
