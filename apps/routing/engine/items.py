"""Parsing, validation and encoding of items: JSON objects on the wire, dicts in memory.

Queues of third parties may contain anything. Input that is not a valid item is rejected with a
reason, so that it can be dead-lettered instead of being redelivered endlessly.

There are two parsers. The fast one is msgspec's, which takes a few microseconds for a well-formed
item but silently drops duplicate keys; these are detected by encoding the value again and
comparing the number of quotation marks. Input that the fast parser rejects, or for which the
counts differ, goes to the slow parser, which determines the reason.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import msgspec

from yardkit.nesting import NestedTooDeeply, check_json

Item = dict[str, Any]

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 20_000
MAX_KEY_CHARACTERS: Final = 256
# Integers must fit into a signed 64-bit value, because other programs cannot read larger ones.
_MOST: Final = 2**63
_MOST_DIGITS: Final = 20
_ESCAPED_QUOTE: Final = b"\\u0022"
_ESCAPED_NULL: Final = b"\\u0000"
# Types that need no validation of their value.
_PLAIN: Final = frozenset({bool, type(None)})

_decoder: Final = msgspec.json.Decoder()
_encode: Final = msgspec.json.Encoder().encode


class ItemError(ValueError):
    """Raised when a value is not a valid item; ``code`` is the machine-readable reason.

    ``offset`` is the position of a JSON syntax error in characters, from 0, if it is known.
    """

    def __init__(self, code: str, text: str, offset: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.offset = offset


# The ledger stores malformed input as an item with this single key, which holds the text.
RAW: Final = "raw"


def raw_of(item: Mapping[str, Any]) -> str | None:
    """Return the received text of malformed input; None for a real item."""
    raw = item.get(RAW) if len(item) == 1 else None
    return raw if isinstance(raw, str) else None


def read_item(raw: bytes | str) -> Item:
    """Parse and validate one item. Raises ``ItemError``."""
    data = _as_bytes(raw)
    value = _read(data)
    if not isinstance(value, dict):
        raise ItemError("not_a_dict", f"an item is a JSON object, this is {_kind(value)}")
    # Strict JSON can only encode NUL as this escape; without it no text needs a check.
    _check(value, texts=_ESCAPED_NULL in data)
    return value


def read_kept(text: str) -> Item:
    """Parse an item that the ledger has stored, without the limits of ``read_item``.

    The item was validated when it was stored, and converters and results may have enlarged it
    beyond what an inbound accepts. Raises ``ItemError`` if the text is not a JSON object.
    """
    try:
        value = _decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return read_item(text)
    return value if isinstance(value, dict) else read_item(text)


def read_json(raw: bytes | str) -> Any:
    """Parse any JSON value of at most ``MAX_BYTES`` bytes. Raises ``ItemError``."""
    return _read(_as_bytes(raw))


def check_item(item: Mapping[str, Any]) -> None:
    """Validate types, numbers, texts, size and depth of an item. Raises ``ItemError``."""
    if not isinstance(item, Mapping):
        raise ItemError("not_a_dict", f"an item is a dict, this is {_kind(item)}")
    _check(item, texts=True)


def write_item(item: Mapping[str, Any]) -> bytes:
    """Encode an item as UTF-8 JSON without escaping non-ASCII characters.

    The item is validated first, because the encoder would write NaN as null and a date as a text.
    Raises ``ItemError``.
    """
    _check(item, texts=False)
    try:
        written = _encode(item)
    except UnicodeEncodeError:
        raise ItemError("lone_surrogate", _SURROGATE) from None
    if _ESCAPED_NULL in written:
        _check(item, texts=True)
    return written


# --- parsing --------------------------------------------------------------------------------------

_SURROGATE: Final = "a text has half of a surrogate pair, which UTF-8 cannot say"


def _as_bytes(raw: bytes | str) -> bytes:
    if isinstance(raw, str):
        # Check before the copy: a character takes at least one byte.
        _check_size(len(raw))
        try:
            raw = raw.encode("utf-8")
        except UnicodeEncodeError:
            raise ItemError("lone_surrogate", _SURROGATE) from None
    if not isinstance(raw, bytes):
        raise ItemError("not_json", f"JSON is bytes or a text, this is {type(raw).__name__}")
    _check_size(len(raw))
    return raw


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise ItemError("too_large", f"an item has at most {MAX_BYTES} bytes, this has {size}")


def _read(raw: bytes) -> Any:
    try:
        check_json(raw)
    except NestedTooDeeply as error:
        raise ItemError("too_deep", f"this JSON is {error}") from None
    try:
        value = _decoder.decode(raw)
        written = _encode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _read_slowly(raw)
    # A dropped duplicate key reduces the count by at least two. An escaped quotation mark
    # (\u0022) is encoded differently, which makes the counts incomparable.
    if raw.count(b'"') != written.count(b'"') or _ESCAPED_QUOTE in raw:
        return _read_slowly(raw)
    return value


def _read_slowly(raw: bytes) -> Any:
    """Parse with the standard library, which detects duplicate keys. Raises ``ItemError``."""
    try:
        value = json.loads(
            raw.decode("utf-8"),
            parse_constant=_no_constant,
            parse_float=_float,
            parse_int=_int,
            object_pairs_hook=_object,
        )
        _encode(value)
    except ItemError:
        raise
    except UnicodeDecodeError as error:
        raise ItemError("not_utf8", f"byte {error.start} is not UTF-8") from None
    except UnicodeEncodeError:
        raise ItemError("lone_surrogate", _SURROGATE) from None
    except RecursionError:
        raise ItemError("too_deep", f"an item is at most {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        offset = getattr(error, "pos", None)
        raise ItemError("not_json", f"this is no JSON: {error}", offset) from None
    return value


def _no_constant(name: str) -> NoReturn:
    raise ItemError("bad_number", f"{name} is no number of JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ItemError("bad_number", f"{text[:40]} is too large a number")
    return value


def _int(text: str) -> int:
    # Python parses up to a few thousand digits, and its own error beyond that is confusing.
    if len(text) > _MOST_DIGITS:
        raise ItemError("bad_number", f"{text[:40]} is too large a number")
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> Item:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        twice = next(
            name for name, count in Counter(name for name, _ in pairs).items() if count > 1
        )
        raise ItemError("duplicate_key", f"the key {twice[:100]!r} is there twice")
    return mapping


# --- validation -----------------------------------------------------------------------------------


def _check(item: Mapping[str, Any], *, texts: bool) -> None:
    """Validate depth, number of values, types and numbers, one level at a time.

    ``texts=True`` also validates the characters of each text and key, which takes most of the
    time for a large item. Raises ``ItemError``.
    """
    count = 0
    level: list[Any] = [item]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            count += len(value)
            if count > MAX_VALUES:
                raise ItemError("too_many", f"an item has at most {MAX_VALUES} values")
            parts: Any = value
            if type(value) is not list:
                _check_keys(value, texts=texts)
                parts = value.values()
            for part in parts:
                kind = type(part)
                if kind is str:
                    if texts:
                        _check_text(part)
                elif kind is dict or kind is list:
                    below.append(part)
                elif kind is int:
                    if not -_MOST <= part < _MOST:
                        raise ItemError("bad_number", "a whole number has at most 64 bits")
                elif kind is float:
                    if not math.isfinite(part):
                        raise ItemError("bad_number", f"{part} is no number of JSON")
                elif kind not in _PLAIN:
                    raise ItemError("bad_type", f"JSON has no word for a {kind.__name__}")
        if not below:
            return
        level = below
    raise ItemError("too_deep", f"an item is at most {MAX_DEPTH} levels deep")


def _check_keys(keys: Mapping[Any, Any], *, texts: bool) -> None:
    try:
        # Join first: the total length of the keys of most objects is below the limit of one key.
        joined = "".join(keys)
    except TypeError:
        raise ItemError("bad_key", "a key is a text") from None
    if len(joined) > MAX_KEY_CHARACTERS and max(map(len, keys)) > MAX_KEY_CHARACTERS:
        raise ItemError("bad_key", f"a key has at most {MAX_KEY_CHARACTERS} characters")
    if texts:
        _check_text(joined)


def _check_text(text: str) -> None:
    if "\x00" in text:
        raise ItemError("null_character", "a text has no character 0")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise ItemError("lone_surrogate", _SURROGATE) from None


def _kind(value: Any) -> str:
    words = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    words |= {int: "a number", float: "a number"}
    return words.get(type(value), f"a {type(value).__name__}")
