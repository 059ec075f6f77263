"""Items: JSON outside, dicts inside (seed S2.2).

A reader of other people's queues meets everything: what is no item is refused with a reason, so
that it can be set aside as poison instead of being read again without end.

There are two readers. The quick one is msgspec's, which takes a well-formed item in a few
microseconds but keeps quiet about keys that are there twice; those are found by writing the value
again and counting quotation marks. Whatever the quick one cannot vouch for goes to the slow one,
which knows the reason.
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
# Whole numbers beyond 64 bits are no other program's numbers.
_MOST: Final = 2**63
_MOST_DIGITS: Final = 20
_ESCAPED_QUOTE: Final = b"\\u0022"
_ESCAPED_NULL: Final = b"\\u0000"
# Nothing is below these, and they need no look at their value.
_PLAIN: Final = frozenset({bool, type(None)})

_decoder: Final = msgspec.json.Decoder()
_encode: Final = msgspec.json.Encoder().encode


class NoItem(ValueError):
    """These bytes are no item; ``code`` says why in a word.

    ``offset`` is the character where what is no JSON went wrong, from 0; None when no one place is.
    """

    def __init__(self, code: str, text: str, offset: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.offset = offset


# Of what is no JSON object the ledger keeps the text, under this key alone.
RAW: Final = "raw"


def raw_of(item: Mapping[str, Any]) -> str | None:
    """The text that came in, where the item only keeps it; None for a real item."""
    raw = item.get(RAW) if len(item) == 1 else None
    return raw if isinstance(raw, str) else None


def read_item(raw: bytes | str) -> Item:
    """One item of its JSON. Raises ``NoItem``."""
    data = _as_bytes(raw)
    value = _read(data)
    if not isinstance(value, dict):
        raise NoItem("not_a_dict", f"an item is a JSON object, this is {_kind(value)}")
    # JSON has one way to say character 0: without it no text needs a look.
    _check(value, texts=_ESCAPED_NULL in data)
    return value


def read_kept(text: str) -> Item:
    """The item of the ledger's own text: it was one when it was written.

    Converters and results may have made it larger than what may come in. Raises ``NoItem``.
    """
    try:
        value = _decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return read_item(text)
    return value if isinstance(value, dict) else read_item(text)


def read_json(raw: bytes | str) -> Any:
    """Any JSON value of at most ``MAX_BYTES``; what JSON has no word for is refused."""
    return _read(_as_bytes(raw))


def check_item(item: Mapping[str, Any]) -> None:
    """Refuse what no item may hold. Raises ``NoItem``."""
    if not isinstance(item, Mapping):
        raise NoItem("not_a_dict", f"an item is a dict, this is {_kind(item)}")
    _check(item, texts=True)


def write_item(item: Mapping[str, Any]) -> bytes:
    """The item as JSON, with Chinese as it is written. Raises ``NoItem``.

    The encoder alone would write NaN as null and a date as a text: what is no item is refused
    here as well, not only where items are read.
    """
    _check(item, texts=False)
    try:
        written = _encode(item)
    except UnicodeEncodeError:
        raise NoItem("lone_surrogate", _SURROGATE) from None
    if _ESCAPED_NULL in written:
        _check(item, texts=True)
    return written


# --- reading --------------------------------------------------------------------------------------

_SURROGATE: Final = "a text has half of a surrogate pair, which UTF-8 cannot say"


def _as_bytes(raw: bytes | str) -> bytes:
    if isinstance(raw, str):
        # Before it is copied: a character is a byte at least.
        _check_size(len(raw))
        try:
            raw = raw.encode("utf-8")
        except UnicodeEncodeError:
            raise NoItem("lone_surrogate", _SURROGATE) from None
    if not isinstance(raw, bytes):
        raise NoItem("not_json", f"JSON is bytes or a text, this is {type(raw).__name__}")
    _check_size(len(raw))
    return raw


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise NoItem("too_large", f"an item has at most {MAX_BYTES} bytes, this has {size}")


def _read(raw: bytes) -> Any:
    try:
        check_json(raw)
    except NestedTooDeeply as error:
        raise NoItem("too_deep", f"this JSON is {error}") from None
    try:
        value = _decoder.decode(raw)
        written = _encode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _read_slowly(raw)
    # Each key that was dropped because it is there twice takes two marks with it. A mark that is
    # written as an escape comes back as itself, and spoils the count.
    if raw.count(b'"') != written.count(b'"') or _ESCAPED_QUOTE in raw:
        return _read_slowly(raw)
    return value


def _read_slowly(raw: bytes) -> Any:
    """The same value, or the reason why there is none."""
    try:
        value = json.loads(
            raw.decode("utf-8"),
            parse_constant=_no_constant,
            parse_float=_float,
            parse_int=_int,
            object_pairs_hook=_object,
        )
        _encode(value)
    except NoItem:
        raise
    except UnicodeDecodeError as error:
        raise NoItem("not_utf8", f"byte {error.start} is not UTF-8") from None
    except UnicodeEncodeError:
        raise NoItem("lone_surrogate", _SURROGATE) from None
    except RecursionError:
        raise NoItem("too_deep", f"an item is at most {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        offset = getattr(error, "pos", None)
        raise NoItem("not_json", f"this is no JSON: {error}", offset) from None
    return value


def _no_constant(name: str) -> NoReturn:
    raise NoItem("bad_number", f"{name} is no number of JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NoItem("bad_number", f"{text[:40]} is too large a number")
    return value


def _int(text: str) -> int:
    # Python reads a few thousand digits, and refuses more in words of its own.
    if len(text) > _MOST_DIGITS:
        raise NoItem("bad_number", f"{text[:40]} is too large a number")
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> Item:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(
            name for name, count in Counter(name for name, _ in pairs).items() if count > 1
        )
        raise NoItem("duplicate_key", f"the key {twice[:100]!r} is there twice")
    return found


# --- checking -------------------------------------------------------------------------------------


def _check(item: Mapping[str, Any], *, texts: bool) -> None:
    """Refuse what is too deep, has too many parts or no word in JSON, level by level.

    ``texts``: look into each text and key too, which is most of the time of a large item.
    """
    count = 0
    level: list[Any] = [item]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            count += len(value)
            if count > MAX_VALUES:
                raise NoItem("too_many", f"an item has at most {MAX_VALUES} values")
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
                        raise NoItem("bad_number", "a whole number has at most 64 bits")
                elif kind is float:
                    if not math.isfinite(part):
                        raise NoItem("bad_number", f"{part} is no number of JSON")
                elif kind not in _PLAIN:
                    raise NoItem("bad_type", f"JSON has no word for a {kind.__name__}")
        if not below:
            return
        level = below
    raise NoItem("too_deep", f"an item is at most {MAX_DEPTH} levels deep")


def _check_keys(keys: Mapping[Any, Any], *, texts: bool) -> None:
    try:
        # In one go: most objects are small, and so are all their keys together.
        joined = "".join(keys)
    except TypeError:
        raise NoItem("bad_key", "a key is a text") from None
    if len(joined) > MAX_KEY_CHARACTERS and max(map(len, keys)) > MAX_KEY_CHARACTERS:
        raise NoItem("bad_key", f"a key has at most {MAX_KEY_CHARACTERS} characters")
    if texts:
        _check_text(joined)


def _check_text(text: str) -> None:
    if "\x00" in text:
        raise NoItem("null_character", "a text has no character 0")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise NoItem("lone_surrogate", _SURROGATE) from None


def _kind(value: Any) -> str:
    words = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    words |= {int: "a number", float: "a number"}
    return words.get(type(value), f"a {type(value).__name__}")
