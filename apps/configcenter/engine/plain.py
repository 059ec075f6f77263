"""Plain data: values that every database, JSON and MessagePack store without loss."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, Final

Data = dict[str, Any]

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 40
MAX_VALUES: Final = 100_000
MAX_KEY_CHARACTERS: Final = 256
_MOST: Final = 2**63


class NotPlain(ValueError):
    """The data is not plain; the text says where and why."""


def check_plain(data: object) -> Data:
    """Return ``data`` if it is a mapping of plain values. Raises ``NotPlain``.

    Iterative: data from users that is nested 100,000 levels deep must not exhaust the stack.
    """
    if not isinstance(data, dict):
        raise NotPlain("a configuration is a mapping of names to values")
    count = 0
    waiting: list[tuple[Any, str, int]] = [(data, "", 1)]
    while waiting:
        value, place, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise NotPlain(f"{place[:100]}: at most {MAX_DEPTH} levels deep")
        count += len(value)
        if count > MAX_VALUES:
            raise NotPlain(f"at most {MAX_VALUES} values")
        pairs = _named(value, place) if isinstance(value, dict) else _numbered(value, place)
        for inner, where in pairs:
            if isinstance(inner, dict | list):
                waiting.append((inner, where, depth + 1))
            else:
                _check_value(inner, where)
    if len(compact(data).encode()) > MAX_BYTES:
        raise NotPlain(f"at most {MAX_BYTES} bytes")
    return data


def compact(data: object) -> str:
    """Serialize to JSON without spaces, in the order of the data."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def digest_of(data: object) -> str:
    """Return a digest that does not depend on the order of keys."""
    text = json.dumps(
        data, ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _named(value: dict[Any, Any], place: str) -> list[tuple[Any, str]]:
    for key in value:
        if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARACTERS:
            raise NotPlain(f"{place}: a name is a text of 1 to {MAX_KEY_CHARACTERS} characters")
        _check_text(key, place)
    return [(inner, f"{place}.{key}" if place else key) for key, inner in value.items()]


def _numbered(value: list[Any], place: str) -> list[tuple[Any, str]]:
    return [(inner, f"{place}[{index}]") for index, inner in enumerate(value)]


def _check_value(value: object, place: str) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        _check_text(value, place)
    elif isinstance(value, int):
        if not -_MOST <= value < _MOST:
            raise NotPlain(f"{place}: a whole number has at most 64 bits")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise NotPlain(f"{place}: {value} is no number that JSON knows")
    else:
        raise NotPlain(f"{place}: {type(value).__name__} is no plain value")


def _check_text(text: str, place: str) -> None:
    if "\x00" in text:
        raise NotPlain(f"{place}: a text has no character 0")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotPlain(f"{place}: half a character (a lone surrogate)") from None
