"""Log of a build: sanitised lines, published while the build runs."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from yardkit.log_lines import one_line
from yardkit.protocol import LogBatch, LogRecord

# Sends a batch; returns False if that is not possible at the moment.
Send = Callable[[LogBatch], bool]

FLUSH_SECONDS: Final = 0.4
BATCH_LINES: Final = 500
MAX_LINE: Final = 8 * 1024
MAX_LINES: Final = 50_000
MAX_CHARACTERS: Final = 16 * 1024**2
# Size of the buffer while the broker is unreachable; further lines are dropped and counted.
MAX_WAITING: Final = 10_000
# Part of the buffer reserved for the final lines of the build itself.
LAST_LINES: Final = 50
RETRY_SECONDS: Final = 2.0
MASK: Final = "•••"

_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


class BuildLog:
    """Buffered log of ``stream``; ``seq`` counts lines from 1 within ``boot``. Thread-safe.

    Writing also sends lines that are due; ``tick()`` sends them while nothing is written.
    """

    def __init__(self, *, stream: str, boot: str, send: Send, secrets: Sequence[str] = ()) -> None:
        self._stream = stream
        self._boot = boot
        self._send = send
        self._secrets = sorted(filter(None, secrets), key=len, reverse=True)
        self._lock = threading.Lock()
        self._waiting: deque[LogRecord] = deque()
        self._begun = ""
        self._seq = 0
        self._characters = 0
        self._dropped = 0
        self._told_dropped = 0
        self._flush_at = 0.0

    @property
    def dropped(self) -> int:
        """Number of dropped lines."""
        return self._dropped

    def say(self, text: str, *, source: str, level: str = "INFO") -> None:
        """Add lines of the build itself."""
        with self._lock:
            for line in text.splitlines():
                self._add(line, source, level, own=True)
        self.tick()

    def write(self, text: str, *, source: str) -> None:
        """Add a piece of output; an incomplete line is kept until it is complete."""
        with self._lock:
            *ended, self._begun = (self._begun + text).split("\n")
            for line in ended:
                self._add(line, source, "")
            if len(self._begun) > 2 * MAX_LINE:
                # Mask before splitting, so that a secret across the cut is masked too.
                self._begun = self.masked(self._begun)
            while len(self._begun) > 2 * MAX_LINE:
                self._add(self._begun[:MAX_LINE], source, "")
                self._begun = self._begun[MAX_LINE:]
        self.tick()

    def end_line(self, *, source: str) -> None:
        """End an incomplete line."""
        if self._begun:
            self.write("\n", source=source)

    def masked(self, text: str) -> str:
        """Return ``text`` with secrets masked."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def clean(self, text: str) -> str:
        """Return one line with secrets masked, without colours or control characters."""
        # Keep only the last state of a line that was overwritten after carriage returns.
        visible = text.rstrip("\r").rpartition("\r")[2]
        return one_line(_ANSI.sub("", self.masked(visible)))

    def tick(self, *, force: bool = False) -> bool:
        """Send lines that are due; return whether the buffer is empty."""
        with self._lock:
            now = time.monotonic()
            if now < self._flush_at and not force and len(self._waiting) < BATCH_LINES:
                return not self._waiting
            while self._waiting or self._dropped > self._told_dropped:
                batch = list(self._waiting)[:BATCH_LINES]
                dropped = self._dropped
                if not self._send(
                    LogBatch(stream=self._stream, boot=self._boot, lines=batch, dropped=dropped)
                ):
                    self._flush_at = now + RETRY_SECONDS
                    return False
                for _ in batch:
                    self._waiting.popleft()
                self._told_dropped = dropped
            self._flush_at = now + FLUSH_SECONDS
            return True

    def close(self, timeout: float) -> None:
        """Send all remaining lines, for at most ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while not self.tick(force=True) and time.monotonic() < deadline:
            time.sleep(0.2)

    def rest(self) -> list[LogBatch]:
        """Return the batches that ``close`` could not send."""
        with self._lock:
            lines = list(self._waiting)
            begins = range(0, len(lines), BATCH_LINES)
            batches = [lines[begin : begin + BATCH_LINES] for begin in begins]
            if not batches and self._dropped > self._told_dropped:
                batches = [[]]
            self._waiting.clear()
            self._told_dropped = self._dropped
            return [
                LogBatch(stream=self._stream, boot=self._boot, lines=batch, dropped=self._dropped)
                for batch in batches
            ]

    def _add(self, line: str, source: str, level: str, *, own: bool = False) -> None:
        text = self.clean(line)
        self._keep(text[:MAX_LINE], source, level, own)
        for start in range(MAX_LINE, len(text), MAX_LINE):
            self._keep(text[start : start + MAX_LINE], source, level, own)

    def _keep(self, text: str, source: str, level: str, own: bool) -> None:
        room = LAST_LINES if own else 0
        full = (
            self._seq >= MAX_LINES + room
            or (self._characters > MAX_CHARACTERS and not own)
            or len(self._waiting) >= MAX_WAITING + room
        )
        if full:
            self._dropped += 1
            return
        self._seq += 1
        self._characters += len(text)
        self._waiting.append(LogRecord(self._seq, time.time(), level, source, text))
