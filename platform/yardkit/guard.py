"""Guards that keep one malformed message, or one defect, from stopping a daemon's work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from yardkit.backoff import Backoff

logger = logging.getLogger(__name__)

M = TypeVar("M")
Errors = tuple[type[BaseException], ...]


class _Bisection(Generic[M]):
    """The parts of a batch that are still to be worked on, in order."""

    def __init__(self, batch: Sequence[M]) -> None:
        self._parts: list[Sequence[M]] = [batch] if batch else []
        self._again = False

    def next(self) -> Sequence[M] | None:
        """Return the next part, or None at the end."""
        return self._parts[-1] if self._parts else None

    def succeeded(self) -> None:
        """The part that ``next`` returned is done."""
        self._parts.pop()
        self._again = False

    def failed(self) -> bool:
        """Split the part, or repeat a single message once; True when it has failed twice."""
        part = self._parts[-1]
        if len(part) > 1:
            half = len(part) // 2
            self._parts[-1:] = [part[half:], part[:half]]
            return False
        if not self._again:
            self._again = True
            return False
        self.succeeded()
        return True


def settle(
    batch: Sequence[M],
    work: Callable[[Sequence[M]], object],
    reject: Callable[[M, Exception], object],
    *,
    passing: Errors,
) -> None:
    """Work on a batch so that a message which always fails costs only itself.

    A failing batch is bisected, in order; a single message that fails is tried once more and then
    handed to ``reject``, which dead-letters it. ``work`` must be repeatable: it is called again
    with messages of a call that raised.

    Args:
        passing: errors of an outage (database, broker or store away), raised at once. The caller
            gives the batch back; parts already worked on are repeated later.
    """
    parts = _Bisection(batch)
    while (part := parts.next()) is not None:
        try:
            work(part)
        except passing:
            raise
        except Exception as error:  # noqa: BLE001 - logged with its traceback in _log
            if parts.failed():
                _log(error)
                reject(part[0], error)
            else:
                _log_repeat(part, error)
        else:
            parts.succeeded()


def _log_repeat(part: Sequence[M], error: Exception) -> None:
    logger.warning("messages failed and are tried again: count=%d error=%r", len(part), error)


def _log(error: Exception) -> None:
    logger.error("message rejected: it failed twice by itself", exc_info=error)


class Waiting(Protocol):
    """A stop signal that can be waited on: ``threading.Event``, or ``yardkit.stop.Stop``."""

    def wait(self, timeout: float, /) -> bool:
        """Wait; return whether the stop was asked for."""


def keep_running(name: str, function: Callable[[], object], stop: Waiting) -> None:
    """Call ``function`` until it returns, from a thread that must outlive its errors.

    An unforeseen exception is logged with its traceback at the first failure in a row, then the
    function is called again after a back-off of 1 to 30 s. Returns early when ``stop`` is set.
    """
    backoff = Backoff(1.0, 30.0)
    while True:
        try:
            function()
        except Exception as error:
            # Any: the thread must outlive its defects; logged below.
            pause = backoff.seconds()
            logger.error(
                "thread %s failed (%d in a row), starts again: %s",
                name,
                backoff.failures,
                error,
                exc_info=error if backoff.failures == 1 else None,
            )
            if stop.wait(pause):
                return
        else:
            return
