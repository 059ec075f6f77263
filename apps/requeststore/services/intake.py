"""Submission by users and programs: all requests are stored, or none.

entities = read_requests(bound, values)
submitted = submit(bound, entities, by="rest:ann")

IDs are reserved before anything is stored, so that a repeat of ``submit`` completes the first call
and keeps what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.utils.translation import gettext as _

from apps.requeststore.engine.entity import Entity
from apps.requeststore.engine.limits import MAX_BATCH
from apps.requeststore.engine.request_parser import read_request
from apps.requeststore.errors import BadRequests, BizDisabled
from apps.requeststore.services.store import BoundBiz, RequestStore, shared_request_store
from apps.requeststore.texts import told
from apps.runtime.services import database_now

# Most problems reported at once.
MOST_TOLD: Final = 100

Keep = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class SubmittedRequests:
    """IDs in the order of the requests; ``ts``: time of storage, Unix ms."""

    ids: list[int]
    ts: int


def read_requests(
    bound: BoundBiz, values: Sequence[object], place: str = "requests"
) -> list[Entity]:
    """Parse URLs and objects. Raises ``BadRequests`` with the first 100 problems and their places.

    ``place``: prefix of the places, as in ``requests.3.url``; "" for none.
    """
    if not 1 <= len(values) <= MAX_BATCH:
        text = _("Submit 1 to %(most)s requests per call.") % {"most": f"{MAX_BATCH:,}"}
        raise BadRequests(fields={place or "requests": [text]})
    entities = []
    fields: dict[str, list[str]] = {}
    for number, value in enumerate(values):
        entity, flaws = read_request(value, bound.settings)
        entities.append(entity)
        for flaw in flaws:
            where = ".".join(filter(None, (place and f"{place}.{number}", flaw.place)))
            fields.setdefault(where or "url", []).append(told(flaw).text)
        if len(fields) >= MOST_TOLD:
            break
    if fields:
        raise BadRequests(fields=fields)
    return entities


def submit(
    bound: BoundBiz,
    entities: Sequence[Entity],
    *,
    by: str,
    kept: dict[str, Any] | None = None,
    keep: Keep | None = None,
    request_store: RequestStore | None = None,
) -> SubmittedRequests:
    """Store and queue requests. Call it outside of a transaction.

    Args:
        keep: called with the reserved IDs before anything is stored.
        kept: what ``keep`` was called with by an earlier attempt.

    Raises:
        BizDisabled, BizFull
        RequestStoreUnavailable: any part may be stored; repeat with the same IDs.
    """
    request_store = request_store or shared_request_store()
    if not bound.settings.enabled:
        raise BizDisabled
    if kept is not None:
        ids, ts = [int(number) for number in kept["ids"]], int(kept["ts"])
        now = int(database_now().timestamp() * 1000)
        if ts < now - bound.settings.ttl_seconds * 500:
            # Requests that the first call has not stored get a new ``ts``: the old one may have
            # expired, and its accounting may be closed.
            ts = now
    else:
        # Not for a repeat, which completes an accepted call.
        request_store.check_room(bound, len(entities))
        ids, ts = request_store.reserve(len(entities)), int(database_now().timestamp() * 1000)
        if keep is not None:
            keep({"ids": [str(number) for number in ids], "ts": ts})
    request_store.submit(bound, entities, by=by, now=ts, ids=ids)
    return SubmittedRequests(ids, ts)
