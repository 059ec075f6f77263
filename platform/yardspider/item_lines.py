"""Items as lines of JSON: encoded once, with the field of what cannot be written."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from yardkit.items.batches import encode_line
from yardkit.nesting import MAX_DEPTH, NestedTooDeeply, check_json
from yardkit.protocol import MAX_ITEM_BYTES

log = logging.getLogger("yardspider")

TOO_DEEP: Final = f"an item is nested deeper than {MAX_DEPTH} levels"
TOO_LARGE: Final = f"an item is larger than {MAX_ITEM_BYTES} bytes"


class ItemEncoder:
    """Encodes items; counts those that cannot be stored in ``dropped``, by reason."""

    def __init__(self, dropped: dict[str, int]) -> None:
        self._dropped = dropped

    def line(self, item: dict[str, Any], url: str) -> bytes | None:
        """Return the line of an item, None for one that is dropped.

        Raises ``TypeError`` that names the field when the item cannot be written as JSON.
        """
        try:
            line = encode_line(url, item)
        except RecursionError:
            reason = TOO_DEEP
        except (TypeError, ValueError) as error:
            raise TypeError(f"{_unwritable(item) or 'the item'}: {error}") from error
        else:
            reason = _problem(line)
        if not reason:
            return line
        drop(self._dropped, reason, url)
        return None


def drop(dropped: dict[str, int], reason: str, url: str) -> None:
    """Count an item that is not stored, and log the first one of each reason."""
    if reason not in dropped:
        log.warning("items dropped: %s (page %s)", reason, url or "unknown")
    dropped[reason] = dropped.get(reason, 0) + 1


def misfit(item: dict[str, Any], item_type: Any) -> str:
    """Return why an item is not one of the spider's ``item_type``, "" if it is.

    The text names the field and never the value, so that equal reasons are counted together.
    """
    try:
        msgspec.convert(item, item_type)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        text = text.partition(" '")[0]
        return f"{place.rstrip('`')}: {text}" if place else text
    return ""


def _problem(line: bytes) -> str:
    if len(line) > MAX_ITEM_BYTES:
        return TOO_LARGE
    # Fewer brackets cannot be too deep: most items cost no more than the count.
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH:
        try:
            # The line is a list around the item.
            check_json(line, MAX_DEPTH + 1)
        except NestedTooDeeply:
            return TOO_DEEP
    return ""


def _unwritable(value: Any, depth: int = 0) -> str:
    """Return the path of the first value that is not JSON, such as ``price.parts[0]``."""
    if depth > MAX_DEPTH:
        return ""
    for step, inner in _children(value):
        try:
            encode_line("", inner)
        except (TypeError, ValueError):
            return step + _unwritable(inner, depth + 1)
    return ""


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield f"[{key!r}]", inner
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield f"[{number}]", inner
