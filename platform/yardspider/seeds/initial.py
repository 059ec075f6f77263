"""Seeds from a file, one a line (seed S3.19)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from yardkit.bridge import in_daemon_thread
from yardspider.errors import RunFailed
from yardspider.seeds.outbox import Adding
from yardspider.seeds.seed import Seed

log = logging.getLogger("yardspider")

BATCH_LINES: Final = 2048
_LOG_EVERY: Final = 50
_TOLD_LINES: Final = 10


async def load_seeds(path: Path, add: Callable[[Sequence[Seed]], Adding]) -> int:
    """Add the seeds of a file, each batch when the one before is confirmed; how many lines it had.

    Blanks around a line are cut off, empty lines skipped; a line that is not UTF-8 is left out and
    told of. Raises ``RunFailed`` when the file cannot be read.
    """
    log.info("loading seeds from %s", path)
    lines = empty = broken = batches = 0
    try:
        file = await in_daemon_thread(path.open, "rb")
        with file:
            while batch := await in_daemon_thread(_next_lines, file):
                seeds = []
                for raw in batch:
                    lines += 1
                    try:
                        text = raw.decode().strip().removeprefix("\ufeff")
                    except UnicodeDecodeError:
                        broken += 1
                        if broken <= _TOLD_LINES:
                            log.warning("%s: line %d is not UTF-8, left out", path, lines)
                        continue
                    if text:
                        seeds.append(Seed(text))
                    else:
                        empty += 1
                if seeds:
                    await add(seeds)
                batches += 1
                if batches % _LOG_EVERY == 0:
                    log.info("%d lines of %s are loaded", lines, path)
    except OSError as error:
        raise RunFailed(f"cannot read initial_seeds {path}: {error.strerror or error}") from error
    rest = f", {empty} of them empty" if empty else ""
    log.info("all %d lines of %s are loaded%s", lines, path, rest)
    return lines


def _next_lines(file: object) -> list[bytes]:
    lines: list[bytes] = []
    for line in file:  # type: ignore[attr-defined]
        lines.append(line)
        if len(lines) == BATCH_LINES:
            break
    return lines
