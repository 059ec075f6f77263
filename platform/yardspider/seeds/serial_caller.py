"""Calls to the frontier in the background, repeated while the service is unreachable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from yardkit.broker import BrokerError
from yardkit.seeds import CallRefused, SeedServiceAway
from yardspider.clock import EngineClock
from yardspider.errors import RunFailed

_AGAIN_SECONDS: Final = 1.0
_HURRIED_SECONDS: Final = 0.1
# A frontier takes nothing while it is moved to another store, however long that takes.
_PATIENTLY: Final = frozenset({"frozen"})


class SerialCaller:
    """Make one call at a time, repeated for ``limit_seconds`` while it fails; then fail the run.

    Args:
        ring: called whenever a call has ended.
    """

    def __init__(self, clock: EngineClock, ring: Callable[[], None], limit_seconds: float) -> None:
        self._clock = clock
        self._ring = ring
        self._limit = limit_seconds
        self._call: Callable[[], Awaitable[Any]] | None = None
        self._done: Callable[[Any], None] = _nothing
        self._refused: Callable[[CallRefused], None] = refuse
        self._task: asyncio.Task[None] | None = None
        self._again_at = 0.0
        self._failing_since: float | None = None
        self._failure: RunFailed | None = None

    @property
    def busy(self) -> bool:
        """Whether a call is under way, or waits to be repeated."""
        return self._call is not None

    @property
    def failing(self) -> bool:
        """Whether the latest call has failed."""
        return self._failing_since is not None

    def start(
        self,
        call: Callable[[], Awaitable[Any]],
        done: Callable[[Any], None],
        refused: Callable[[CallRefused], None] | None = None,
    ) -> None:
        """Start a call; not while one is under way.

        Args:
            done: gets the answer. refused: gets a permanent refusal; without it the run fails.
        """
        self._call, self._done, self._refused = call, done, refused or refuse
        self._task = asyncio.create_task(self._try(call))

    def step(self, now: float) -> None:
        """Repeat the call if it is time. Raises ``RunFailed`` after the limit."""
        if self._failure is not None:
            raise self._failure
        task = self._task
        if task is not None and task.done():
            self._task = None
            if not task.cancelled():
                task.result()
        if self._call is not None and self._task is None and now >= self._again_at:
            self._task = asyncio.create_task(self._try(self._call))

    def next_wake(self) -> float | None:
        """Return when ``step`` has something to do."""
        return self._again_at if self._call is not None and self.failing else None

    async def settle(self) -> None:
        """Wait for the end of the call, with quick repetitions. Raises ``RunFailed``."""
        while self._call is not None:
            if self._task is not None and not self._task.done():
                await asyncio.wait([self._task])
            if self._call is not None:
                await asyncio.sleep(_HURRIED_SECONDS)
                self._again_at = self._clock.now()
            self.step(self._clock.now())

    def cancel(self) -> None:
        """Cancel the call."""
        if self._task is not None:
            self._task.cancel()

    async def _try(self, call: Callable[[], Awaitable[Any]]) -> None:
        try:
            answer = await call()
        except CallRefused as refusal:
            self._handle_refusal(refusal)
        except (SeedServiceAway, BrokerError) as error:
            self._fail_for_now(error, _AGAIN_SECONDS)
        else:
            self._call, self._failing_since = None, None
            self._done(answer)
        finally:
            self._ring()

    def _handle_refusal(self, refusal: CallRefused) -> None:
        if refusal.retry_seconds:
            patient = refusal.code in _PATIENTLY
            self._fail_for_now(refusal, refusal.retry_seconds, patient=patient)
            return
        self._call, self._failing_since = None, None
        try:
            self._refused(refusal)
        except RunFailed as failure:
            self._failure = failure

    def _fail_for_now(self, error: Exception, pause: float, *, patient: bool = False) -> None:
        now = self._clock.now()
        if self._failing_since is None or patient:
            self._failing_since = now
        if now - self._failing_since >= self._limit:
            text = f"the seed service is away, tried for {self._limit:g} s: {error}"
            self._failure = RunFailed(text)
        self._again_at = now + pause


def refuse(refusal: CallRefused) -> None:
    """Raise ``RunFailed`` for a permanent refusal."""
    raise RunFailed(f"the seed service refuses ({refusal.code}): {refusal}") from refusal


def _nothing(answer: Any) -> None:
    """Placeholder before the first call."""
