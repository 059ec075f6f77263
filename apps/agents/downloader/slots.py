"""The downloaders of one agent, by run, and those that rest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from apps.agents.downloader.downloader import Downloader
from yardkit.protocol import DownloaderSettings

logger = logging.getLogger(__name__)

# Of so many resting runs the settings are kept; each is a few hundred bytes.
MOST_RESTING: Final = 10_000


class Slots:
    """Makes, finds and releases downloaders.

    One that nobody has used for a while is released with its connections and cookies (seed
    S1.26), but its settings stay until the run gives its agents back: a slow run with many agents
    comes to each of them less often than that, and must find it ready.

    Args:
        make: raises ``ValueError`` for settings that make no sense.
    """

    def __init__(
        self, make: Callable[[int, DownloaderSettings], Downloader], idle_seconds: float
    ) -> None:
        self.active: dict[int, Downloader] = {}
        self._make = make
        self._idle_seconds = idle_seconds
        self._resting: dict[int, DownloaderSettings] = {}

    def open(self, run: int, settings: DownloaderSettings) -> bool:
        """Make the downloader of a run; False when it is there already. Raises ``ValueError``."""
        if run in self.active:
            return False
        self.active[run] = self._make(run, settings)
        self._resting.pop(run, None)
        return True

    def find(self, run: int) -> Downloader | None:
        """The downloader of a run, made anew if it rests."""
        downloader = self.active.get(run)
        if downloader is None and run in self._resting:
            self.open(run, self._resting[run])
            downloader = self.active[run]
        return downloader

    async def release(self, run: int) -> None:
        """The run needs it no more."""
        self._resting.pop(run, None)
        downloader = self.active.pop(run, None)
        if downloader is not None:
            await downloader.release()

    async def sweep(self) -> None:
        """Let those rest that nobody has used for so long."""
        for run, downloader in list(self.active.items()):
            if downloader.idle_seconds() < self._idle_seconds:
                continue
            logger.info("run %d: downloader idle for %.0f s, released", run, self._idle_seconds)
            self._resting[run] = downloader.settings
            del self.active[run]
            await downloader.release()
        while len(self._resting) > MOST_RESTING:
            del self._resting[next(iter(self._resting))]
