"""Tables and progress lines for terminals."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

# Seconds between progress lines without a terminal.
_LINE_SECONDS: Final = 10.0
_DRAW_SECONDS: Final = 0.2


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return table lines; numbers are right-aligned."""
    texts = [[_cell(row_cell) for row_cell in row] for row in rows]
    widths = [max(len(row[index]) for row in [list(head), *texts]) for index in range(len(head))]
    right = [
        bool(rows)
        and all(isinstance(row[index], int | float) or row[index] is None for row in rows)
        for index in range(len(head))
    ]
    return [
        "  ".join(
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in [list(head), *texts]
    ]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def size(number: int) -> str:
    """Return a number of bytes with a unit."""
    amount = float(number)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


class ProgressLine:
    """Progress line, redrawn on a terminal and printed now and then elsewhere."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._terminal = bool(getattr(stream, "isatty", lambda: False)())
        self._shown_at = time.monotonic() - (_DRAW_SECONDS if self._terminal else 0.0)
        self._width = 0

    def tell(self, text: str) -> None:
        """Show ``text`` unless the last line was shown a moment ago."""
        now = time.monotonic()
        if now - self._shown_at < (_DRAW_SECONDS if self._terminal else _LINE_SECONDS):
            return
        self._shown_at = now
        if self._terminal:
            self._stream.write(f"\r{text:<{self._width}}", ending="")
            self._stream.flush()
            self._width = max(self._width, len(text))
        else:
            self._stream.write(text)

    def end(self) -> None:
        """End the progress line."""
        if self._terminal and self._width:
            self._stream.write(f"\r{'':<{self._width}}\r", ending="")
            self._stream.flush()
            self._width = 0
