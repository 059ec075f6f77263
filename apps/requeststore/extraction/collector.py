"""Problems and sizes of one page's extraction, with their limits."""

from __future__ import annotations

import math
from typing import Any, Final

from apps.requeststore.extraction.limits import (
    MAX_FIELD_BYTES,
    MAX_INTEGER,
    MAX_PROBLEMS,
    MAX_RESULT_BYTES,
)
from apps.requeststore.extraction.problems import BadValue, PageProblem

_VALUE_BYTES: Final = 8
_DEEPEST: Final = 50


class ExtractionLimitReached(Exception):
    """A limit is reached; the rest of the page is not read."""


class Collector:
    """Collects problems and counts sizes of one page. ``record``: number of the current one, -1
    for none.
    """

    __slots__ = ("failed", "hidden", "problems", "record", "size")

    def __init__(self) -> None:
        self.problems: list[PageProblem] = []
        # Number of problems beyond the limit.
        self.hidden = 0
        self.failed = False
        self.record = -1
        self.size = 0

    def problem(self, code: str, text: str, field: str = "", *, fatal: bool = False) -> None:
        """Note a problem."""
        self.failed = self.failed or fatal
        if len(self.problems) >= MAX_PROBLEMS:
            self.hidden += 1
            return
        self.problems.append(
            PageProblem(code=code, text=text, field=field, record=self.record, fatal=fatal)
        )

    def keep(self, value: Any) -> Any:
        """Return the value for a record: a copy where it is shared.

        Raises ``BadValue`` for a too large value, ``ExtractionLimitReached`` for too large a page.
        """
        kept, size = _sized(value, MAX_FIELD_BYTES, 0)
        self.size += size
        if self.size > MAX_RESULT_BYTES:
            text = f"the records have more than {MAX_RESULT_BYTES} bytes"
            self.problem("too_much", text, fatal=True)
            raise ExtractionLimitReached(text)
        return kept


def _sized(value: Any, left: int, depth: int) -> tuple[Any, int]:
    """Return (value, approximate bytes)."""
    if isinstance(value, str):
        try:
            size = len(value) if value.isascii() else len(value.encode())
        except UnicodeEncodeError:
            value = value.encode("utf-8", "replace").decode()
            size = len(value)
        size += _VALUE_BYTES
    elif value is None or isinstance(value, bool):
        size = _VALUE_BYTES
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise BadValue("too large a number")
        size = _VALUE_BYTES
    elif isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise BadValue("too large a number")
        size = _VALUE_BYTES
    elif depth >= _DEEPEST:
        raise BadValue(f"more than {_DEEPEST} lists and objects inside one another")
    elif isinstance(value, list):
        return _sized_list(value, left, depth)
    elif isinstance(value, dict):
        return _sized_object(value, left, depth)
    else:
        raise BadValue("no value of JSON")
    if size > left:
        raise BadValue(f"more than {MAX_FIELD_BYTES} bytes")
    return value, size


def _sized_list(value: list[Any], left: int, depth: int) -> tuple[Any, int]:
    total, items = _VALUE_BYTES, []
    for element in value:
        kept, size = _sized(element, left - total, depth + 1)
        items.append(kept)
        total = _within(total + size, left)
    return items, total


def _sized_object(value: dict[Any, Any], left: int, depth: int) -> tuple[Any, int]:
    total, items = _VALUE_BYTES, {}
    for key, element in value.items():
        name, name_size = _sized(str(key), left - total, depth + 1)
        kept, size = _sized(element, left - total - name_size, depth + 1)
        items[name] = kept
        total = _within(total + size + name_size, left)
    return items, total


def _within(total: int, left: int) -> int:
    if total > left:
        raise BadValue(f"more than {MAX_FIELD_BYTES} bytes")
    return total
