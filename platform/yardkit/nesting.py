"""Limit of the nesting depth of JSON and MessagePack, checked before decoding.

Python's recursion limit no longer protects: from Python 3.14 on, decoders written in C accept many
thousand levels, and the first Python function that walks the value fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import msgspec

# Arrays and maps inside one another. Real documents have fewer; functions that walk a value with
# three frames for each level stay below the interpreter's 1,000.
MAX_DEPTH: Final = 100

_json_list = msgspec.json.Decoder(list[msgspec.Raw])
_json_map = msgspec.json.Decoder(dict[str, msgspec.Raw])
_msgpack_list = msgspec.msgpack.Decoder(list[msgspec.Raw])
_msgpack_map = msgspec.msgpack.Decoder(dict[Any, msgspec.Raw])
# First bytes of containers in MessagePack: fixmap, fixarray, array 16 and 32, map 16 and 32.
_ARRAYS: Final = frozenset([*range(0x90, 0xA0), 0xDC, 0xDD])
_CONTAINERS: Final = _ARRAYS | {*range(0x80, 0x90), 0xDE, 0xDF}
_CONTAINER_BYTES: Final = bytes(_CONTAINERS)
_COUNTED_BYTES: Final = 2048
_JSON_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.?)*"?|[\[\]{}]', re.DOTALL)
# Of a malformed document, so that a long one costs no more than its decoder.
_JUDGED_BYTES: Final = 64 * 1024
# Views, since a page's body is a part as well and copying it costs more than decoding the message.
_Part: TypeAlias = bytes | memoryview


class NestedTooDeeply(msgspec.DecodeError, ValueError):
    """A document is nested deeper than the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"nested deeper than {limit} levels")


def check_json(body: bytes, limit: int = MAX_DEPTH) -> None:
    """Raise ``NestedTooDeeply`` for JSON deeper than ``limit``; ignore other errors."""
    _check(body.lstrip(), limit, _json_bound, _json_children, _json_too_deep)


def check_msgpack(body: bytes, limit: int = MAX_DEPTH) -> None:
    """Raise ``NestedTooDeeply`` for MessagePack deeper than ``limit``; ignore other errors."""
    _check(body, limit, _msgpack_bound, _msgpack_children, _msgpack_too_deep)


def _check(
    body: bytes,
    limit: int,
    bound: Callable[[_Part], int],
    children: Callable[[_Part], Iterable[msgspec.Raw]],
    too_deep: Callable[[bytes, int], bool],
) -> None:
    """Open level after level, but only parts whose bound exceeds the remaining levels.

    ``bound`` returns at least the depth of a part, and is fast. A batch of many small values is
    opened once or twice, by a decoder that skips the inner values. ``too_deep`` judges malformed
    documents.
    """
    if len(body) <= limit or bound(body) <= limit:
        return
    level: list[_Part] = [body]
    try:
        for left in range(limit - 1, -1, -1):
            level = [
                part
                for whole in level
                for raw in children(whole)
                if len(raw) > left and bound(part := memoryview(raw)) > left
            ]
            if not level:
                return
    except RecursionError:
        pass
    except (msgspec.DecodeError, UnicodeDecodeError):
        if not too_deep(body, limit):
            # The decoder of the whole document reports the position.
            return
    raise NestedTooDeeply(limit)


def _json_bound(part: _Part) -> int:
    if part[:1] not in (b"[", b"{"):
        return 0
    text = bytes(part)
    return text.count(b"[") + text.count(b"{")


def _json_children(part: _Part) -> Iterable[msgspec.Raw]:
    return _json_list.decode(part) if part[:1] == b"[" else _json_map.decode(part).values()


def _json_too_deep(body: bytes, limit: int) -> bool:
    """Return whether a malformed document nests deeper than the limit near its beginning."""
    depth = 0
    for token in _JSON_TOKEN.finditer(body, 0, _JUDGED_BYTES):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(token[0], 0)
        if depth > limit:
            return True
    return False


def _msgpack_bound(part: _Part) -> int:
    if part[0] not in _CONTAINERS:
        return 0
    if len(part) > _COUNTED_BYTES:
        # Opening is faster than counting: texts and bodies are skipped by length.
        return len(part)
    return len(part) - len(bytes(part).translate(None, _CONTAINER_BYTES))


def _msgpack_children(part: _Part) -> Iterable[msgspec.Raw]:
    return _msgpack_list.decode(part) if part[0] in _ARRAYS else _msgpack_map.decode(part).values()


def _msgpack_too_deep(body: bytes, _limit: int) -> bool:
    """Return whether a malformed document exhausts the stack before its mistake is met."""
    try:
        msgspec.msgpack.decode(body)
    except RecursionError:
        return True
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return False
