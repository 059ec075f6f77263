"""Items of Scrapy as plain data, and where they go: to the platform, or into a local dataset."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Protocol
from uuid import UUID

from itemadapter import ItemAdapter, is_item

from yardkit.items.files import LINK
from yardspider.item_lines import TOO_DEEP
from yardspider.outputs import ItemSink

log = logging.getLogger("yardscrapy")

# Reasons are kept by their text, so a text must not hold data of an item.
ITEM_ERROR: Final = "an exception in an item pipeline"
_AS_IT_IS: Final = frozenset({str, int, float, bool, type(None)})
# What the JSON encoder writes by itself, beside what is taken apart here.
_ENCODED: Final = (str, int, float, date, time, timedelta, Decimal, UUID, Enum)
_REASON_CHARACTERS: Final = 200
# Fields of an entry that a media pipeline writes into an item.
_STORED_FILE: Final = frozenset({"url", "path", "checksum", "status"})


def plain_item(item: Any, *, keeps_files: bool = False) -> dict[str, Any]:
    """Return an item as a dict for JSON, as Scrapy's feed exports write it.

    Serializers of fields are applied. Bytes become text, or Base64 where they are no UTF-8; dates,
    decimals and the like are left to the JSON encoder (ISO 8601, text). Other objects that have a
    text of their own become it, such as paths and the URLs of pydantic.

    Args:
        keeps_files: media pipelines store with the run; their paths become links to its files.
    """
    adapter = ItemAdapter(item)
    values = {}
    for name, value in adapter.items():
        serializer = adapter.get_field_meta(name).get("serializer")
        values[str(name)] = _plain(serializer(value) if serializer else value, keeps_files)
    return values


def _plain(value: Any, keeps_files: bool) -> Any:
    if type(value) in _AS_IT_IS:
        return value
    if isinstance(value, Mapping):
        inner = {_key(key): _plain(one, keeps_files) for key, one in value.items()}
        if keeps_files and inner.keys() == _STORED_FILE and isinstance(inner["path"], str):
            inner["path"] = LINK + inner["path"]
        return inner
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one, keeps_files) for one in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return _text(bytes(value))
    if is_item(value):
        return plain_item(value, keeps_files=keeps_files)
    kind: Any = type(value)
    if isinstance(value, _ENCODED) or kind.__str__ is object.__str__:
        return value
    return str(value)


def _key(key: Any) -> str:
    return _text(key) if isinstance(key, bytes) else str(key)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii")


class ItemCounter(Protocol):
    """Counters of items: those of ``CrawlAccounting``. ``items`` includes dropped ones."""

    items: int
    dropped: dict[str, int]

    def take_item(self, item: dict[str, Any]) -> None: ...


def convert(item: Any, *, keeps_files: bool = False) -> tuple[dict[str, Any], str]:
    """Return an item as plain data, and "" or the reason why that is not possible."""
    try:
        return plain_item(item, keeps_files=keeps_files), ""
    except RecursionError:
        return {}, TOO_DEEP
    except Exception as error:  # noqa: BLE001 - serializers are code of the project
        return {}, f"a serializer failed: {type(error).__name__}: {error}"


def add_item(sink: ItemSink, counter: ItemCounter, values: dict[str, Any], url: str) -> None:
    """Add plain data to a sink; what cannot be written is dropped and counted."""
    try:
        sink.add(values, url)
    except (TypeError, ValueError) as error:
        log.error("item dropped: %s (page %s)", error, url or "unknown")
        drop(counter, f"not writable as JSON: {error}")
    else:
        counter.take_item(values)


def drop(counter: ItemCounter, reason: str) -> None:
    """Count an item that is not stored, by reason."""
    reason = " ".join(reason.split())[:_REASON_CHARACTERS]
    counter.items += 1
    counter.dropped[reason] = counter.dropped.get(reason, 0) + 1
