"""Loads seeds from a file, one a line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from yardkit.bridge import in_daemon_thread
from yardspider.errors import RunFailed
from yardspider.seeds.outbox import PendingSeeds
from yardspider.seeds.seed import Seed

log = logging.getLogger("yardspider")

BATCH_LINES: Final = 2048
_LOG_EVERY: Final = 50
_TOLD_LINES: Final = 10


async def load_seeds(path: Path, add: Callable[[Sequence[Seed]], PendingSeeds]) -> int:
    """Add the seeds of a file in batches, each after the one before is confirmed; return the lines.

    Lines are stripped, empty ones skipped; a line that is not UTF-8 is skipped and logged. Raises
    ``RunFailed`` when the file cannot be read.
    """
    log.info("loading seeds from %s", path)
    reading, batches = _LineCounts(path), 0
    try:
        file = await in_daemon_thread(path.open, "rb")
        with file:
            while batch := await in_daemon_thread(_next_lines, file):
                seeds = [seed for raw in batch if (seed := reading.seed(raw)) is not None]
                if seeds:
                    await add(seeds)
                batches += 1
                if batches % _LOG_EVERY == 0:
                    log.info("%d lines of %s are loaded", reading.lines, path)
    except OSError as error:
        raise RunFailed(f"cannot read initial_seeds {path}: {error.strerror or error}") from error
    rest = f", {reading.empty} of them empty" if reading.empty else ""
    log.info("all %d lines of %s are loaded%s", reading.lines, path, rest)
    return reading.lines


class _LineCounts:
    """Counts of the lines read so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines = self.empty = self._broken = 0

    def seed(self, raw: bytes) -> Seed | None:
        """Return the seed of the next line, if it has one."""
        self.lines += 1
        try:
            text = raw.decode().strip().removeprefix("\ufeff")
        except UnicodeDecodeError:
            self._broken += 1
            if self._broken <= _TOLD_LINES:
                log.warning("%s: line %d is not UTF-8, left out", self._path, self.lines)
            return None
        if not text:
            self.empty += 1
            return None
        return Seed(text)


def _next_lines(file: object) -> list[bytes]:
    lines: list[bytes] = []
    for line in file:  # type: ignore[attr-defined]
        lines.append(line)
        if len(lines) == BATCH_LINES:
            break
    return lines
