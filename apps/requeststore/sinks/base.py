"""Interface of sinks; one contract test covers every kind.

The records of a request are one unit. ``again`` marks a request whose records an earlier lease may
have stored; sinks then avoid duplicates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Protocol

import msgspec

from apps.requeststore.engine.errors import RequestStoreError


class SinkUnavailable(RequestStoreError):
    """Records cannot be stored now; repeating the call is harmless."""

    code: ClassVar[str] = "sink_unavailable"


class RequestRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one request. ``ts`` and ``fetched_at``: Unix ms; ``url``: after redirects.

    ``again``: an earlier attempt may have stored them. ``extraction``: number of the re-extraction
    that they come from, 0 for the first extraction.
    """

    request_id: int
    ts: int
    biz: str
    rule: str
    url: str
    fetched_at: int
    rows: Sequence[Mapping[str, Any]]
    meta: Mapping[str, Any] = {}
    again: bool = False
    extraction: int = 0

    @property
    def name(self) -> str:
        """Return what is stored once: the request, for each of its extractions."""
        return f"{self.request_id}.{self.extraction}" if self.extraction else str(self.request_id)


class Sink(Protocol):
    """Destination of records. One thread at a time."""

    def write(self, batch: Sequence[RequestRecords]) -> dict[int, str]:
        """Store all records; durable on return. Return the reason, by request ID, of records that
        can never be stored.

        Raises ``SinkUnavailable``: any part may be stored; a repeat completes it.
        """

    def close(self) -> None:
        """Close files and connections."""


class NullSink:
    """Sink that stores nothing, for a biz without records."""

    def write(self, batch: Sequence[RequestRecords]) -> dict[int, str]:
        return {}

    def close(self) -> None:
        pass


def moment(ms: int) -> datetime:
    """Convert Unix ms to a time in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def stamp(ms: int) -> str:
    """Return ``2026-11-22T01:02:03.004Z``."""
    return moment(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
        return {clean(str(key)): clean(element) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(element) for element in value]
    return value


_encoder: Final = msgspec.json.Encoder(enc_hook=str)


def as_json(value: Any) -> bytes:
    """Return compact JSON; other types become their text."""
    return _encoder.encode(value)


def as_message(one: RequestRecords, position: int) -> bytes:
    """Return one record as JSON, with IDs as text.

    ``{"request_id": "7", "position": 0, "of": 2, "biz": "news", "rule": "article", "url": "...",
    "fetched_at": "...", "meta": {}, "record": {}}``; the first three keys always come first.
    """
    rest = as_json(
        {
            "biz": one.biz,
            "rule": one.rule,
            "url": clean(one.url),
            "fetched_at": stamp(one.fetched_at),
            "meta": clean(one.meta),
            "record": clean(one.rows[position]),
        }
    )
    head = f'{{"request_id":"{one.request_id}","position":{position},"of":{len(one.rows)},'
    return head.encode() + rest[1:]
