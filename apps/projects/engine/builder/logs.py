"""The log of a build: complete lines, made harmless, sent while the build goes on."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from yardkit.log_lines import one_line
from yardkit.protocol import LogBatch, LogRecord

# Hands a batch on; False when that is not possible now.
Send = Callable[[LogBatch], bool]

FLUSH_SECONDS: Final = 0.4
BATCH_LINES: Final = 500
MAX_LINE: Final = 8 * 1024
MAX_LINES: Final = 50_000
MAX_CHARACTERS: Final = 16 * 1024**2
# While the broker is away; beyond it the newest lines are given up, and counted.
MAX_WAITING: Final = 10_000
# Kept free of the limits for what the build itself says at its end.
LAST_LINES: Final = 50
RETRY_SECONDS: Final = 2.0
MASK: Final = "•••"

_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


class BuildLog:
    """Lines of ``stream``; ``seq`` counts from 1 inside ``boot``. Any thread may write.

    Whoever writes also sends what is due; ``tick()`` does it when nothing is written.
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
        """Lines given up so far."""
        return self._dropped

    def say(self, text: str, *, source: str, level: str = "INFO") -> None:
        """Lines of the build itself."""
        with self._lock:
            for line in text.splitlines():
                self._add(line, source, level, own=True)
        self.tick()

    def write(self, text: str, *, source: str) -> None:
        """A piece of output; a line without its end waits for it."""
        with self._lock:
            *ended, self._begun = (self._begun + text).split("\n")
            for line in ended:
                self._add(line, source, "")
            if len(self._begun) > 2 * MAX_LINE:
                # Before it is taken apart: no secret may hide across the cut.
                self._begun = self.masked(self._begun)
            while len(self._begun) > 2 * MAX_LINE:
                self._add(self._begun[:MAX_LINE], source, "")
                self._begun = self._begun[MAX_LINE:]
        self.tick()

    def end_line(self, *, source: str) -> None:
        """What has begun is a line."""
        if self._begun:
            self.write("\n", source=source)

    def masked(self, text: str) -> str:
        """``text`` without any secret."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text

    def clean(self, text: str) -> str:
        """One line without secrets, colours or control characters."""
        # Of a line that was written over again and again the last state is what one would see.
        visible = text.rstrip("\r").rpartition("\r")[2]
        return one_line(_ANSI.sub("", self.masked(visible)))

    def tick(self, *, force: bool = False) -> bool:
        """Send what is due. True when nothing waits any more."""
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
        """Send the rest, for at most ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while not self.tick(force=True) and time.monotonic() < deadline:
            time.sleep(0.2)

    def rest(self) -> list[LogBatch]:
        """After ``close``: what could not be sent, for whoever can send it later."""
        with self._lock:
            lines = list(self._waiting)
            begins = range(0, len(lines), BATCH_LINES)
            batches = [lines[begin : begin + BATCH_LINES] for begin in begins]
            if not batches and self._dropped > self._told_dropped:
                batches = [[]]
            self._waiting.clear()
            self._told_dropped = self._dropped
            return [
                LogBatch(stream=self._stream, boot=self._boot, lines=one, dropped=self._dropped)
                for one in batches
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
