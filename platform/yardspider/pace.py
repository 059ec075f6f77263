"""Concurrency and speed of a run; both may change while it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from yardspider.errors import BadInput
from yardspider.settings import SpiderSettings

TUNABLE: Final = ("concurrency", "speed")


class CrawlPace:
    """Window and interval between requests.

    ``interval``: seconds; 0 is none. ``room``: the window at the last call; ``grows_at``: when it
    grows next during the slow start.
    """

    def __init__(self, settings: SpiderSettings) -> None:
        self._settings = settings
        self._began: float | None = None
        self.room = 1 if settings.slow_start_seconds else settings.concurrency
        self.grows_at = math.inf
        self.interval = 1.0 / settings.speed if settings.speed else 0.0

    @property
    def concurrency(self) -> int:
        """The window after the slow start."""
        return self._settings.concurrency

    @property
    def speed(self) -> float:
        """Requests per second; 0 is unlimited."""
        return self._settings.speed

    def window(self, now: float) -> int:
        """Return how many requests may be out; the slow start begins with the first call."""
        if self._began is None:
            self._began = now
        slow, whole = self._settings.slow_start_seconds, self._settings.concurrency
        passed = now - self._began
        if passed >= slow:
            self.room, self.grows_at = whole, math.inf
        else:
            self.room = max(1, min(whole, int(whole * passed / slow)))
            # Half a request beyond, so that rounding does not ask twice for the same size.
            self.grows_at = self._began + slow * min(1.0, (self.room + 1.000001) / whole)
        return self.room

    def tune(self, changes: Mapping[str, Any]) -> str:
        """Change the settings that may change during a run; return a description of the result.

        Raises ``BadInput``.
        """
        refused = sorted(set(changes) - set(TUNABLE))
        if refused or not changes:
            what = f"not {refused[0]}" if refused else "and neither is given"
            raise BadInput(f"only {' and '.join(TUNABLE)} can be changed meanwhile, {what}")
        try:
            self._settings = self._settings.changed(changes, origin="tune")
        except ValueError as error:
            raise BadInput(str(error)) from error
        self.interval = 1.0 / self.speed if self.speed else 0.0
        # Makes the next caller look at once.
        self.room = min(self.room, self.concurrency) if self._is_slow else self.concurrency
        return f"concurrency {self.concurrency}, speed {self.speed:g}"

    @property
    def _is_slow(self) -> bool:
        return self._settings.slow_start_seconds > 0 and math.isfinite(self.grows_at)
