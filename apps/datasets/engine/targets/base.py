"""Interface of targets; one contract test covers every kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec

from apps.datasets.engine.errors import DatasetError
from apps.datasets.engine.item_types import Item


class TargetUnavailable(DatasetError):
    """The target does not answer, or refuses access; repeating the call is harmless."""

    code = "target_unavailable"


class BadTarget(DatasetError):
    """Settings that can never work; ``field`` is the part of them, and the text says what to do."""

    code = "bad_target"

    def __init__(self, field: str, text: str, /, **params: object) -> None:
        super().__init__(text, **params)
        self.field = field

    def __str__(self) -> str:
        return f"{self.field}: {super().__str__()}"


class NoKey(DatasetError):
    """The item lacks a field of the key."""

    code = "no_key"


class Chunk(msgspec.Struct, frozen=True):
    """Consecutive items of a dataset, after ``offset`` items of ``batch``.

    A repeated chunk begins at the same place. For targets with ``by_place`` it has the same items;
    for others it may be longer.
    """

    dataset: str
    batch: int
    offset: int
    items: Sequence[Item]

    @property
    def id(self) -> str:
        """Return the identity of the chunk's beginning."""
        return f"{self.batch}-{self.offset}"


class Target(Protocol):
    """Destination of items. One thread at a time.

    ``most_items``: of one chunk. ``by_place``: the target recognises a repeat by the place of its
    chunk, so a chunk never goes beyond a batch and always has the same items.
    """

    most_items: int
    by_place: bool

    def write(self, chunk: Chunk) -> Mapping[int, str]:
        """Deliver all items; durable on return.

        Return the reason, by position in the chunk, of items that can never be delivered. Raises
        ``TargetUnavailable``: any part may have been delivered; a repeat completes it.
        """

    def close(self) -> None:
        """Close files and connections."""


# Fields that describe an item, in targets without columns of their own for them.
SYSTEM: Final = ("_id", "_run", "_at", "_url")

_encoder: Final = msgspec.json.Encoder(enc_hook=str)


def as_json(value: Any) -> bytes:
    """Return compact JSON; other types become their text."""
    return _encoder.encode(value)


def stamp(at: datetime) -> str:
    """Return ``2026-11-22T01:02:03.004Z``."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def message(item: Item) -> bytes:
    """Return an item with its identity as JSON, for queues and webhooks.

    ``{"id": "7-b2f0-15", "run": 7, "at": "...", "url": "...", "item": {...}}``; ``item`` is the
    item as it came.
    """
    head = as_json({"id": item.id, "run": item.run, "at": stamp(item.at), "url": item.url})
    return head[:-1] + b',"item":' + item.json.encode() + b"}"


def identified(item: Item) -> dict[str, Any]:
    """Return the item's fields after its identity; a field named like that gets a "_"."""
    head = {"_id": item.id, "_run": item.run, "_at": stamp(item.at), "_url": item.url}
    return head | {f"{name}_" if name in SYSTEM else name: each for name, each in item.data.items()}


def identity_of(item: Item, data: Mapping[str, Any], key_fields: Sequence[str]) -> str:
    """Return what identifies an item in the target: its key, or its own identity without one.

    Raises ``NoKey``.
    """
    if not key_fields:
        return item.id
    parts = [data.get(field) for field in key_fields]
    if None in parts:
        raise NoKey(f"the key field {key_fields[parts.index(None)]} has no value")
    return str(clean(as_json(parts).decode()))


def clean(value: Any) -> Any:
    """Remove what UTF-8 or PostgreSQL cannot store: lone surrogates and NUL."""
    if isinstance(value, str):
        if "\0" in value:
            value = value.replace("\0", "")
        try:
            value.encode()
        except UnicodeEncodeError:
            value = value.encode("utf-8", "replace").decode()
        return value
    if isinstance(value, Mapping):
        return {clean(str(key)): clean(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(each) for each in value]
    return value
