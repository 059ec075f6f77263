"""Conversion of matched values to a field's type.

Each function returns the value or raises ``BadValue`` with the reason.
"""

from __future__ import annotations

import email.utils
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import msgspec

from apps.requeststore.extraction.limits import MAX_INTEGER
from apps.requeststore.extraction.page import Document, absolute
from apps.requeststore.extraction.problems import BadValue
from yardkit.nesting import check_json

_SHOWN: Final = 60
_NUMBER: Final = re.compile(r"([+-]?)(\d+(?:,\d{3})*|\d*)(\.\d*)?(?:[eE]([+-]?\d{1,3}))?([万亿]?)")
_LONGEST_NUMBER: Final = 60
_UNITS: Final = {"": 0, "万": 4, "亿": 8}
_TRUE: Final = frozenset({"true", "yes", "y", "on", "1", "是", "有", "真"})
_FALSE: Final = frozenset({"false", "no", "n", "off", "0", "否", "无", "假"})
# 2024年1月2日 3:04:05, 2024/1/2 03:04, 2024-1-2, 2024.1.2
_DATE: Final = re.compile(
    r"(\d{4})\s*[-/.年]\s*(\d{1,2})\s*[-/.月]\s*(\d{1,2})\s*日?"
    r"(?:[\sT]*(\d{1,2})\s*[:时点]\s*(\d{1,2})\s*分?(?:\s*[:]?\s*(\d{1,2})\s*秒?)?)?"
)
_LONGEST_DATE: Final = 60
# Seconds since 1970 up to here, milliseconds above.
_LAST_SECONDS: Final = 100_000_000_000
_LAST_MILLISECONDS: Final = 253_402_300_799_999

Cast = Callable[[Any, Document], Any]


def shown(value: Any) -> str:
    """Return a value shortened for a message."""
    text = value if isinstance(value, str) else repr(value)
    text = text[: _SHOWN + 1].encode("utf-8", "replace").decode()
    return f"'{text[:_SHOWN]}…'" if len(text) > _SHOWN else f"'{text}'"


def to_text(value: Any, _document: Document | None = None) -> str:
    """Return a string; numbers as JSON writes them. Lists and objects are refused."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise BadValue(f"{_kind(value)} is no text")


def to_any(value: Any, _document: Document) -> Any:
    """Return the value unchanged."""
    return value


def to_json(value: Any, _document: Document) -> Any:
    """Parse a string as JSON; other values are returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        check_json(value.encode())
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadValue(f"{shown(value)} is no JSON: {str(error)[:100]}") from None


def to_number(value: Any, _document: Document) -> int | float:
    """Parse 1,234.50, １２３ or 1.2万; a whole number stays an integer."""
    if isinstance(value, bool):
        raise BadValue("a truth is no number")
    if isinstance(value, int | float):
        return _bounded(value, value)
    text = unicodedata.normalize("NFKC", to_text(value)[: _LONGEST_NUMBER + 1]).strip()
    match = _NUMBER.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    if match is None or not (match[2] or (match[3] or ".") != "."):
        raise BadValue(f"{shown(value)} is no number")
    sign, whole, fraction, exponent, unit = match.groups()
    power = int(exponent or 0) + _UNITS[unit]
    digits = whole.replace(",", "")
    if fraction is None and power == _UNITS[unit]:
        return _bounded(int(f"{sign}{digits}") * 10**power, value)
    return _bounded(float(f"{sign}{digits or 0}{fraction or ''}e{power}"), value)


def _bounded(number: float, value: Any) -> int | float:
    if isinstance(number, float):
        if not math.isfinite(number):
            raise BadValue(f"{shown(value)} is too large a number")
    elif abs(number) > MAX_INTEGER:
        raise BadValue(f"{shown(value)} is too large a number")
    return number


def to_integer(value: Any, document: Document) -> int:
    """Parse a number without a fraction."""
    number = to_number(value, document)
    if isinstance(number, float):
        # Rounded: 1.1万 is 11000, although the floating-point product is not.
        whole = round(number)
        if abs(number - whole) > 1e-9 * max(1.0, abs(number)) or abs(whole) > MAX_INTEGER:
            raise BadValue(f"{shown(value)} is no whole number")
        return whole
    return number


def to_boolean(value: Any, _document: Document) -> bool:
    """Parse true, yes, on, 1, 是, 有 and their opposites."""
    if isinstance(value, bool):
        return value
    text = unicodedata.normalize("NFKC", to_text(value)[:_SHOWN]).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise BadValue(f"{shown(value)} is neither true nor false")


def to_url(value: Any, document: Document) -> str:
    """Resolve against the page's URL; only http and https."""
    url = absolute(document.base_url, to_text(value))
    if url is None:
        raise BadValue(f"{shown(value)} is no address of http or https")
    return url


def datetime_with(formats: Sequence[str], zone: tzinfo) -> Cast:
    """Return a parser of times to ISO 8601 in UTC; ``zone`` applies to times without one.

    Without ``formats`` it reads ISO 8601, dates of mail and HTTP, Unix seconds and milliseconds,
    2024年1月2日 3:04 and similar.
    """

    def to_datetime(value: Any, _document: Document) -> str:
        text = unicodedata.normalize("NFKC", to_text(value)[: _LONGEST_DATE + 1]).strip()
        moment = None
        if len(text) <= _LONGEST_DATE:
            moment = _by_format(text, formats) if formats else _by_looks(text)
        try:
            if moment is None:
                raise BadValue(f"{shown(value)} is no time")
            aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
            return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
        except (OverflowError, ValueError) as error:
            raise BadValue(f"{shown(value)} is no time") from error

    return to_datetime


def _by_format(text: str, formats: Sequence[str]) -> datetime | None:
    for format_text in formats:
        try:
            # The caller adds a zone where the format has none.
            return datetime.strptime(text, format_text)  # noqa: DTZ007 - its zone is added below
        except (ValueError, OverflowError):
            continue
    return None


def _by_looks(text: str) -> datetime | None:
    try:
        if text.isascii() and text.isdigit() and len(text) != 8:
            number = int(text)
            if number > _LAST_MILLISECONDS:
                return None
            seconds = number / 1000 if number > _LAST_SECONDS else float(number)
            return datetime.fromtimestamp(seconds, UTC)
        match = _DATE.fullmatch(text)
        if match is not None:
            year, month, day, hour, minute, second = (int(group or 0) for group in match.groups())
            return datetime(year, month, day, hour, minute, second)  # noqa: DTZ001 - its zone is added below
    except (ValueError, OverflowError, OSError):
        return None
    for read in (datetime.fromisoformat, email.utils.parsedate_to_datetime):
        try:
            return read(text)
        except (ValueError, OverflowError, TypeError, IndexError):
            continue
    return None


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return "a list" if isinstance(value, list) else "an object"


CASTS: Final[Mapping[str, Cast]] = {
    "any": to_any,
    "text": to_text,
    "integer": to_integer,
    "number": to_number,
    "boolean": to_boolean,
    "url": to_url,
    "json": to_json,
    # Markup is serialized while the node exists.
    "html": to_text,
}
