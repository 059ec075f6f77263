"""The port of a sink: what every kind promises, and what one contract test holds (seed S4.20).

A request's records are one unit. Whoever takes a request for the second time may find its records
there already; ``again`` says so, and no sink then keeps them twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Protocol

import msgspec

from apps.requeststore.engine.errors import RequestStoreError

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class SinkUnavailable(RequestStoreError):
    """Records cannot be stored just now: try again, a repeat does no harm."""

    code: ClassVar[str] = "sink_unavailable"


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """The records of one request. ``ts`` and ``fetched_at``: Unix ms; ``url``: the last one.

    ``again``: an earlier try may have stored records of this request.
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


class Sink(Protocol):
    """Used by one thread at a time."""

    def write(self, batch: Sequence[Gathered]) -> dict[int, str]:
        """Store all; durable on return. What can never be stored: why, by the request's id.

        Raises ``SinkUnavailable``: any part may be stored, and a repeat completes it.
        """

    def close(self) -> None:
        """Let go of everything."""


class Nowhere:
    """For a biz that keeps no records."""

    def write(self, batch: Sequence[Gathered]) -> dict[int, str]:
        """Nothing is stored."""
        return {}

    def close(self) -> None:
        """Nothing is held."""


def moment(ms: int) -> datetime:
    """Unix ms as a time in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def stamp(ms: int) -> str:
    """``2026-11-22T01:02:03.004Z``."""
    return moment(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clean(value: Any) -> Any:
    """Without what no UTF-8 and no PostgreSQL can hold: lone surrogates and NUL characters."""
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


_encoder: Final = msgspec.json.Encoder(enc_hook=str)


def as_json(value: Any) -> bytes:
    """Compact JSON; what JSON does not know becomes its text."""
    return _encoder.encode(value)


def as_message(one: Gathered, position: int) -> bytes:
    """One record as JSON (seed S4.8: the id as a text).

    ``{"request_id": "7", "position": 0, "of": 2, "biz": "news", "rule": "article", "url": "...",
    "fetched_at": "...", "meta": {}, "record": {}}``; the first three always come first.
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
