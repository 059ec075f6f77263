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
    """Settings that can never work; the text names the field and what to do."""

    code = "bad_target"


class Chunk(msgspec.Struct, frozen=True):
    """Consecutive items of a dataset, after ``offset`` items of ``batch``.

    A repeated chunk begins at the same place, and may be longer.
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
    """Destination of items. One thread at a time."""

    def write(self, chunk: Chunk) -> Mapping[int, str]:
        """Deliver all items; durable on return.

        Return the reason, by position in the chunk, of items that can never be delivered. Raises
        ``TargetUnavailable``: any part may have been delivered; a repeat completes it.
        """

    def close(self) -> None:
        """Close files and connections."""


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
