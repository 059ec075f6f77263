"""Records as messages: ids, bodies and filters.

The id of a record depends only on its source and content or position. It is the broker's
``message_id``, by which consumers drop duplicates after a crash, and by which the overlap of two
imports is recognised.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from apps.sources.engine.dates import Age, age_of
from apps.sources.engine.paths import find
from apps.sources.engine.progress import HarvestCounts
from apps.sources.engine.settings import BadDatePolicy, Source
from yardkit.broker.base import Outgoing

# Maximum size of one record: the platform's limit for messages.
MAX_RECORD_BYTES: Final = 8 * 1024 * 1024
# Header: expiry of the record, Unix milliseconds. Brokers do not reveal theirs.
EXPIRES_AT: Final = "x-expires-at"
_ID_BYTES: Final = 16
_JSON: Final = "application/json"
_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class RecordOrigin:
    """Project and source of records: part of every id and of the headers."""

    project: int
    slug: str
    source: str


@dataclass(slots=True)
class SortedBatch:
    """A sorted batch: messages to send, and counts of the rest."""

    messages: list[Outgoing] = field(default_factory=list)
    counts: HarvestCounts = field(default_factory=HarvestCounts)
    # Of all records in order, including those that are not sent.
    ids: list[str] = field(default_factory=list)
    # Number of ids that the caller passed as known.
    known: int = 0

    @property
    def expired(self) -> bool:
        """Whether all records of the batch are too old."""
        return self.counts.read > 0 and self.counts.filtered == self.counts.read


def sort_batch(
    records: Sequence[Any],
    *,
    origin: RecordOrigin,
    source: Source,
    now: datetime,
    offset: int | None,
    known: Collection[str] = (),
) -> SortedBatch:
    """Sort a batch into too old, read before, refused, and to be sent.

    ``offset``: that of the first record; None where records have no position, as in the mode
    not_exported: there equal records of a batch are distinguished by their order.
    """
    batch = SortedBatch()
    counts = batch.counts
    counts.batches = 1
    seen: Counter[bytes] = Counter()
    for index, record in enumerate(records):
        counts.read += 1
        body = _encoded(record)
        digest = hashlib.blake2b(body, digest_size=_ID_BYTES).digest()
        place = seen[digest] if offset is None else offset + index
        seen[digest] += 1
        message_id = _id(origin, source, record, digest, place)
        batch.ids.append(message_id)
        age = age_of(record, source, now)
        counts.bad_dates += age in (Age.UNREADABLE, Age.FUTURE)
        if message_id in known:
            batch.known += 1
        if age is Age.EXPIRED:
            counts.filtered += 1
        elif message_id in known:
            counts.re_read += 1
        elif _refused(record, body, age, source):
            counts.refused += 1
        else:
            counts.published += 1
            batch.messages.append(_message(body, message_id, origin, source, place, now))
    return batch


def _message(
    body: bytes, message_id: str, origin: RecordOrigin, source: Source, place: int, now: datetime
) -> Outgoing:
    expires_at = now.timestamp() + source.ttl_seconds
    return Outgoing(
        body=body,
        key=source.queue,
        ttl_seconds=source.ttl_seconds,
        message_id=message_id,
        headers={
            "content-type": _JSON,
            "project": origin.slug,
            "source": origin.source,
            "offset": place,
            EXPIRES_AT: round(expires_at * 1000),
        },
        content_type=_JSON,
    )


def _encoded(record: Any) -> bytes:
    return _encoder.encode(record)


def _refused(record: Any, body: bytes, age: Age, source: Source) -> bool:
    if not isinstance(record, dict) or len(body) > MAX_RECORD_BYTES:
        return True
    return source.bad_dates is BadDatePolicy.REFUSE and age in (Age.UNREADABLE, Age.FUTURE)


def _id(origin: RecordOrigin, source: Source, record: Any, digest: bytes, place: int) -> str:
    """Id by ``id_field`` if the record has it, else by position and content."""
    own = find(source.id_field, record) if source.id_field else None
    name = f"{origin.project}\0{origin.source}\0{source.content}\0".encode()
    if own is not None and not isinstance(own, bool):
        name += b"i" + _encoder.encode(own)
    else:
        name += b"p" + str(place).encode() + b"\0" + digest
    return hashlib.blake2b(name, digest_size=_ID_BYTES).hexdigest()
