"""Items: JSON outside, dicts inside (seed S2.2).

A reader of other people's queues meets everything: what is no item is refused with a reason, so
that it can be set aside as poison instead of being read again for ever.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

Item = dict[str, Any]

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 20_000
MAX_KEY_CHARACTERS: Final = 256
# Whole numbers beyond 64 bits are no other program's numbers.
_MOST: Final = 2**63


class NoItem(ValueError):
    """These bytes are no item; ``code`` says why in a word."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def read_item(raw: bytes | str) -> Item:
    """One item of its JSON. Raises ``NoItem``."""
    value = read_json(raw)
    if not isinstance(value, dict):
        raise NoItem("not_a_dict", f"an item is a JSON object, this is {_kind(value)}")
    check_item(value)
    return value


def read_json(raw: bytes | str) -> Any:
    """Any JSON value of at most ``MAX_BYTES``; what JSON has no word for is refused."""
    if len(raw) > MAX_BYTES:
        raise NoItem("too_large", f"an item has at most {MAX_BYTES} bytes, this has {len(raw)}")
    if isinstance(raw, bytes):
        try:
            raw = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise NoItem("not_utf8", f"byte {error.start} is not UTF-8") from None
    try:
        return json.loads(
            raw, parse_constant=_no_constant, parse_float=_float, object_pairs_hook=_object
        )
    except RecursionError:
        raise NoItem("too_deep", f"an item is at most {MAX_DEPTH} levels deep") from None
    except NoItem:
        raise
    except ValueError as error:
        raise NoItem("not_json", f"this is no JSON: {error}") from None


def check_item(item: Mapping[str, Any]) -> None:
    """Refuse what is too deep or has too many parts, without recursion. Raises ``NoItem``."""
    count = 0
    waiting: list[tuple[Any, int]] = [(item, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise NoItem("too_deep", f"an item is at most {MAX_DEPTH} levels deep")
        if isinstance(value, Mapping):
            count += len(value)
            for key in value:
                if not isinstance(key, str) or len(key) > MAX_KEY_CHARACTERS:
                    raise NoItem("bad_key", f"a key is a text of {MAX_KEY_CHARACTERS} at most")
            parts: Any = value.values()
        else:
            count += len(value)
            parts = value
        if count > MAX_VALUES:
            raise NoItem("too_many", f"an item has at most {MAX_VALUES} values")
        for part in parts:
            if isinstance(part, dict | list):
                waiting.append((part, depth + 1))
            elif isinstance(part, int) and not -_MOST <= part < _MOST:
                raise NoItem("bad_number", "a whole number has at most 64 bits")
            elif isinstance(part, str) and "\x00" in part:
                raise NoItem("null_character", "a text has no character 0")


def write_item(item: Mapping[str, Any]) -> bytes:
    """The item as JSON, with Chinese as it is written.

    Half of a surrogate pair has no UTF-8; it goes as JSON's escape, which ``read_item`` reads.
    """
    return json.dumps(item, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
        "utf-8", "backslashreplace"
    )


def _no_constant(name: str) -> Any:
    raise NoItem("bad_number", f"{name} is no number of JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NoItem("bad_number", f"{text[:40]} is too large a number")
    return value


def _object(pairs: list[tuple[str, Any]]) -> Item:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(
            name for name, count in Counter(name for name, _ in pairs).items() if count > 1
        )
        raise NoItem("duplicate_key", f"the key {twice[:100]!r} is there twice")
    return found


def _kind(value: Any) -> str:
    words = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return words.get(type(value), "a number")
