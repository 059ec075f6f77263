"""Fingerprints of item values, to find the pages that may contain a value without an index.

A fingerprint is the CRC-32 of a value as text: fast, and equal for 7 and "7". A match may be a
collision, so the query reads the candidate items and compares their values.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from zlib import crc32

BYTES: Final = 4
# Only this prefix of a text is hashed; longer texts that share it have equal fingerprints.
CHARACTERS: Final = 512


def values_of(item: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (key, text) for each searchable value, including those nested in lists and dicts.

    Booleans, null and empty texts are not searchable, because nearly every item has them.
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
    """Return the fingerprint of a value: ``BYTES`` bytes, little-endian."""
    return _code(value).to_bytes(BYTES, "little")


def fingerprints(items: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the concatenated fingerprints of all values of ``items``, without duplicates."""
    codes = array("I", {_code(text) for text in _texts(items)})
    if sys.byteorder == "big":
        codes.byteswap()
    return codes.tobytes()


def _texts(items: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the texts of ``values_of`` for all items.

    Written without ``values_of`` for speed: it runs for each item and takes a third of the time.
    """
    texts: set[str] = set()
    add = texts.add
    for item in items:
        waiting: list[Iterable[Any]] = [item.values()]
        # The list grows while it is iterated.
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
    texts.discard("")
    return texts


def joined(parts: Iterable[bytes]) -> bytes:
    """Merge several results of ``fingerprints`` into one without duplicates."""
    values: set[bytes] = set()
    for part in parts:
        values.update(part[at : at + BYTES] for at in range(0, len(part), BYTES))
    return b"".join(values)


def _code(value: str) -> int:
    return crc32(value[:CHARACTERS].encode("utf-8", "surrogatepass"))
