"""Progress display of the demo."""

from __future__ import annotations

import time
from typing import TextIO

BAR_WIDTH = 30
LINE_EVERY_SECONDS = 2.0


class Progress:
    """A bar on a terminal; one line every two seconds elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._last = 0.0
        self._shown = ""

    def show(self, *, done: int, total: int, pages: int, state: str) -> None:
        now = time.monotonic()
        text = f"{done}/{total} requests, {pages} pages, {state}"
        if self._terminal:
            filled = BAR_WIDTH * done // total if total else 0
            bar = "█" * filled + "·" * (BAR_WIDTH - filled)
            self._stream.write(f"\r[{bar}] {text}\x1b[K")
            self._stream.flush()
        elif now - self._last >= LINE_EVERY_SECONDS and text != self._shown:
            self._stream.write(f"{text}\n")
            self._stream.flush()
            self._last = now
        self._shown = text

    def end(self) -> None:
        """Keep the last state on a line of its own."""
        if self._terminal and self._shown:
            self._stream.write("\n")
            self._stream.flush()
