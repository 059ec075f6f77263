"""Early end and failure of a build."""

from __future__ import annotations

import enum
import threading
import time

from apps.projects.engine.refusals import ProjectInputError


class BuildStepFailed(ProjectInputError):
    """The build failed; ``code`` and ``params`` say why."""


class StopReason(enum.Enum):
    """Why a build is stopped from outside."""

    CANCELLED = "cancelled"
    # Its worker was declared dead, or another worker has the build.
    GIVEN_UP = "given_up"


class BuildStopped(Exception):
    """The build must end now."""

    def __init__(self, why: StopReason) -> None:
        self.why = why
        super().__init__(why.value)


class BuildControl:
    """Stop request and time limit of one build; thread-safe."""

    def __init__(self, *, limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self._deadline = time.monotonic() + limit_seconds
        self._told = threading.Event()
        self._why = StopReason.CANCELLED

    def stop(self, why: StopReason) -> None:
        """Request a stop; the first reason counts."""
        if not self._told.is_set():
            self._why = why
            self._told.set()

    @property
    def remaining(self) -> float:
        """Return the seconds left of the time limit, at least 0.1."""
        return max(0.1, self._deadline - time.monotonic())

    def check(self) -> None:
        """Raise ``BuildStopped``, or ``BuildStepFailed`` when the time is over."""
        if self._told.is_set():
            raise BuildStopped(self._why)
        if time.monotonic() >= self._deadline:
            raise BuildStepFailed("build_time_limit", seconds=round(self.limit_seconds))

    def wait(self, seconds: float) -> None:
        """Sleep, at most as long as the build may take. Raises as ``check``."""
        self._told.wait(min(seconds, self.remaining))
        self.check()
