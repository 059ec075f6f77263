"""Validation of plain data key by key, with the place of each problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from apps.requeststore.extraction.collector import Collector
from apps.requeststore.extraction.limits import MAX_CONST_BYTES, MAX_EXPRESSION
from apps.requeststore.extraction.problems import BadValue, RuleProblem
from apps.requeststore.extraction.xpaths import BadExpression

_MOST: Final = 200
_SHOWN: Final = 40
_T = TypeVar("_T")


class ValidationNotes:
    """Problems so far. Each method returns a usable value even for invalid data."""

    def __init__(self) -> None:
        self.problems: list[RuleProblem] = []

    def add(
        self, place: str, code: str, text: str, *, offset: int | None = None, warning: bool = False
    ) -> None:
        """Note a problem; only the first 200 are kept."""
        if len(self.problems) < _MOST:
            self.problems.append(RuleProblem(place, code, text, offset, warning))

    def found_in(self, place: str) -> bool:
        """Return whether there is a problem at or below a place."""
        return any(
            not problem.warning
            and (problem.place == place or problem.place.startswith(f"{place}."))
            for problem in self.problems
        )

    def keys(self, data: Any, known: frozenset[str], place: str) -> bool:
        """Return whether it is an object; note unknown keys."""
        if not isinstance(data, dict):
            self.add(place, "no_object", "use an object of keys and values")
            return False
        for key in data:
            if key not in known:
                name = str(key)[:_SHOWN].encode("utf-8", "replace").decode()
                self.add(f"{place}.{name}", "unknown_key", f"use {', '.join(sorted(known))}")
        return True

    def text(
        self, data: Mapping[str, Any], key: str, place: str, *, most: int, needed: bool = False
    ) -> str:
        """Return a string of limited length; "" when it is missing."""
        stored = data.get(key, "")
        if isinstance(stored, int) and not isinstance(stored, bool) and key == "rule":
            stored = str(stored)
        if not isinstance(stored, str) or len(stored) > most or (needed and not stored):
            self.add(f"{place}.{key}", "bad_text", f"use a text of at most {most} characters")
            return ""
        return stored

    def truth(self, data: Mapping[str, Any], key: str, place: str, *, usual: bool = False) -> bool:
        flag = data.get(key, usual)
        if not isinstance(flag, bool):
            self.add(f"{place}.{key}", "bad_truth", "use true or false")
            return usual
        return flag

    def whole(
        self, data: Mapping[str, Any], key: str, place: str, least: int, most: int, usual: int
    ) -> int:
        number = data.get(key, usual)
        if type(number) is not int or not least <= number <= most:
            self.add(f"{place}.{key}", "bad_number", f"use a whole number, {least} to {most}")
            return usual
        return number

    def choice(
        self, data: Mapping[str, Any], key: str, known: Sequence[str], usual: str, place: str
    ) -> str:
        stored = data.get(key, usual)
        if not isinstance(stored, str) or stored not in known:
            self.add(f"{place}.{key}", f"unknown_{key}", f"use {', '.join(known)}")
            return usual
        return stored

    def plain(self, data: Mapping[str, Any], key: str, place: str, usual: Any) -> Any:
        """Return a small JSON value."""
        if key not in data:
            return usual
        try:
            kept = Collector().keep(data[key])
            if len(msgspec.json.encode(kept)) > MAX_CONST_BYTES:
                raise BadValue(f"more than {MAX_CONST_BYTES} bytes")
        except BadValue as error:
            self.add(f"{place}.{key}", "bad_value", str(error))
            return usual
        return kept

    def zone(self, data: Mapping[str, Any], key: str, place: str) -> tzinfo:
        name = self.text(data, key, place, most=60)
        if not name:
            return UTC
        try:
            return ZoneInfo(name)
        except (ValueError, OSError, KeyError):
            self.add(f"{place}.{key}", "bad_zone", "no such time zone; use Asia/Shanghai")
            return UTC

    def formats(self, data: Mapping[str, Any], key: str, place: str) -> list[str]:
        """Return one or more ``strptime`` formats."""
        given = data.get(key, [])
        given = [given] if isinstance(given, str) else given
        place = f"{place}.{key}"
        if not isinstance(given, list) or len(given) > 10:
            self.add(place, "bad_format", "use a text such as %Y-%m-%d %H:%M, or up to ten")
            return []
        for format_text in given:
            if (
                not isinstance(format_text, str)
                or not 0 < len(format_text) <= 60
                or not _is_format(format_text)
            ):
                self.add(place, "bad_format", "use a text such as %Y-%m-%d %H:%M")
                return []
        return given

    def compiled(
        self, data: Mapping[str, Any], key: str, place: str, work: Callable[[str], _T]
    ) -> _T | None:
        """Return ``work(expression)``; None for an invalid expression."""
        text = data[key]
        if not isinstance(text, str) or len(text) > MAX_EXPRESSION:
            problem = f"use a text of at most {MAX_EXPRESSION} characters"
            self.add(f"{place}.{key}", "bad_text", problem)
            return None
        try:
            return work(text)
        except BadExpression as error:
            self.add(f"{place}.{key}", f"bad_{key}", str(error), offset=error.offset)
            return None


def _is_format(text: str) -> bool:
    try:
        # Validates the format only; the parsed time is discarded.
        datetime.strptime(datetime(2024, 1, 2, tzinfo=UTC).strftime(text), text)  # noqa: DTZ007 - only tried
    except (ValueError, OverflowError, UnicodeError):
        return False
    return "%" in text
