"""Short fingerprints of an item's values, by which a page of items is found without an index.

A fingerprint is the CRC-32 of a value as text: fast, and equal for 7 and "7". It only says where
to look: the query reads the items that it finds and compares.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from zlib import crc32

BYTES: Final = 4
# Longer texts are distinguished by their beginning.
CHARACTERS: Final = 512


def values_of(item: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each value that can be asked for, with its key; what is inside a list or a dict too.

    Not asked for are true, false, null and the empty text, which nearly every item holds.
    """
    waiting: list[tuple[str, Any]] = list(item.items())
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, str):
            if value:
                yield key, value
        elif isinstance(value, dict):
            waiting.extend(value.items())
        elif isinstance(value, list):
            waiting.extend((key, part) for part in value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield key, str(value)


def fingerprint(value: str) -> bytes:
    """The four bytes that stand for this value."""
    return _code(value).to_bytes(BYTES, "little")


def fingerprints(items: Iterable[Mapping[str, Any]]) -> bytes:
    """Those of all values of all these items, each once."""
    codes = array("I", {_code(text) for text in _texts(items)})
    if sys.byteorder == "big":
        codes.byteswap()
    return codes.tobytes()


def _texts(items: Iterable[Mapping[str, Any]]) -> set[str]:
    """The texts of ``values_of`` for all of them, in a third of the time: each item pays it."""
    found: set[str] = set()
    add = found.add
    for item in items:
        waiting: list[Iterable[Any]] = [item.values()]
        # It grows while it is gone through.
        for parts in waiting:
            for value in parts:
                kind = type(value)
                if kind is str:
                    add(value)
                elif kind is dict:
                    waiting.append(value.values())
                elif kind is list:
                    waiting.append(value)
                elif kind is int or kind is float:
                    add(str(value))
    found.discard("")
    return found


def joined(parts: Iterable[bytes]) -> bytes:
    """Several sets of fingerprints as one, each once."""
    found: set[bytes] = set()
    for part in parts:
        found.update(part[at : at + BYTES] for at in range(0, len(part), BYTES))
    return b"".join(found)


def _code(value: str) -> int:
    return crc32(value[:CHARACTERS].encode("utf-8", "surrogatepass"))
