"""Request with its history, for pages and REST.

IDs are text, because JavaScript loses digits beyond 2^53. Values with secret-sounding names are
masked for everyone; headers, parameters, body and meta are for operators.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.access.services import mask
from apps.access.services.audit import MASK
from apps.requeststore.engine.biz import Biz
from apps.requeststore.engine.entity import decode_entity
from apps.requeststore.engine.errors import InvalidRequest
from apps.requeststore.engine.flags import EXPIRED, FAILED, MOVING, NEW, PROCESSED, TAKEN
from apps.requeststore.engine.placement import ShardPlace
from apps.requeststore.stores.base import HistoryStepKind, StoredRequest
from yardkit.nesting import check_json
from yardkit.snowflake import decode

# Characters of a body that are shown.
MOST_BODY: Final = 20_000
_STATES: Final[Mapping[int, str]] = {
    NEW: "new",
    TAKEN: "taken",
    PROCESSED: "processed",
    EXPIRED: "expired",
    MOVING: "moving",
}
LABELS: Final[Mapping[str, Promise]] = {
    "new": gettext_lazy("new"),
    "taken": gettext_lazy("leased"),
    "processed": gettext_lazy("processed"),
    "failed": gettext_lazy("failed"),
    "expired": gettext_lazy("expired"),
    "moving": gettext_lazy("being moved"),
    "own": gettext_lazy("ended"),
}
TONES: Final[Mapping[str, str]] = {
    "new": "default",
    "taken": "info",
    "processed": "success",
    "failed": "danger",
    "expired": "warning",
    "moving": "info",
    "own": "success",
}
STEPS: Final[Mapping[str, Promise]] = {
    HistoryStepKind.STORED: gettext_lazy("stored"),
    HistoryStepKind.QUEUED: gettext_lazy("queued"),
    HistoryStepKind.TAKEN: gettext_lazy("leased"),
    HistoryStepKind.RETURNED: gettext_lazy("returned for another try"),
    HistoryStepKind.OVERDUE: gettext_lazy("lease expired; returned for another try"),
    HistoryStepKind.REQUEUED: gettext_lazy("queue entry lost; queued again"),
    HistoryStepKind.FINISHED: gettext_lazy("finished"),
    HistoryStepKind.REOPENED: gettext_lazy("reopened"),
    HistoryStepKind.EXPIRED: gettext_lazy("expired unprocessed"),
    HistoryStepKind.MOVED: gettext_lazy("moved to another shard"),
}
# In addition to the secret-sounding names of the whole platform.
_SECRET_HEADER: Final = re.compile(r"auth|cookie|token|secret|key|session|passw", re.IGNORECASE)


def state_of(request: StoredRequest, biz: Biz, now: int) -> str:
    """Return ``new``, ``taken``, ``processed``, ``failed``, ``expired``, ``moving``, or ``own`` (a
    flag of the biz). A request past its time is expired, even before upkeep marks it.
    """
    if request.flag in (NEW, TAKEN) and request.ts <= biz.cutoff(now):
        return "expired"
    if request.flag in (FAILED, biz.failed_flag):
        return "failed"
    return _STATES.get(request.flag, "own")


def row_of(request: StoredRequest, biz: Biz, *, project_id: int, now: int) -> dict[str, Any]:
    """Return a request for a list."""
    return {
        "id": str(request.id),
        "project": project_id,
        "biz": request.biz,
        "ts": request.ts,
        "stored_at": moment(request.ts),
        "flag": request.flag,
        "state": state_of(request, biz, now),
        "meaning": biz.flags.get(str(request.flag), ""),
        "priority": request.priority,
        "tries": request.tries,
        "owner": request.owner,
        "deadline_at": moment(request.deadline),
        "queued_at": moment(request.queued_at),
        "finished_at": moment(request.finished_at),
        "expires_at": moment(request.ts + biz.ttl_seconds * 1000),
        "deleted_at": moment(request.ts + biz.delete_after_seconds * 1000),
        "result": result_of(request.result),
    }


def story_of(
    request: StoredRequest,
    biz: Biz,
    *,
    project_id: int,
    version: int,
    place: ShardPlace,
    whole: bool,
    now: int,
) -> dict[str, Any]:
    """Return a request with its history; ``whole`` adds what only operators see."""
    made_at, worker = made_by(request.id)
    return {
        **row_of(request, biz, project_id=project_id, now=now),
        "settings_version": version,
        "place": {
            "node": place.node,
            "database": place.shard.database,
            "collection": place.shard.collection,
        },
        "id_made_at": made_at,
        "id_worker": worker,
        "data_bytes": len(request.data),
        "data": shown_data(request.data, whole=whole),
        "steps": [
            {"at": moment(step.at), "kind": str(step.kind), "by": step.by, "text": step.text}
            for step in request.steps
        ],
    }


def shown_data(data: bytes, *, whole: bool) -> dict[str, Any]:
    """Return the request's data; ``problem`` says why it cannot be read."""
    try:
        entity = decode_entity(data)
    except InvalidRequest as error:
        return {"problem": str(error)}
    shown = {"url": masked_url(entity.url), "rule": entity.rule, "method": entity.method}
    if not whole:
        return shown
    body = entity.body[:MOST_BODY].decode("utf-8", "replace")
    return {
        **shown,
        "headers": _masked_headers(entity.headers),
        "params": dict(mask(entity.params)),
        "body": body,
        "body_bytes": len(entity.body),
        "meta": plain(dict(mask(entity.meta))),
    }


def masked_url(url: str) -> str:
    """Return the URL without password and without values of secret-sounding parameters."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return url
    host = parts.netloc.rpartition("@")
    netloc = f"{MASK}@{host[2]}" if host[1] else parts.netloc
    hidden = mask(dict(pairs))
    secret = {name for name, value in pairs if value and hidden[name] == MASK}
    query = parts.query
    if secret:
        query = urlencode([(name, MASK if name in secret else value) for name, value in pairs])
        # Unquoted, so that the mask is shown as dots.
        query = query.replace(quote(MASK), MASK)
    if netloc == parts.netloc and query == parts.query:
        return url
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def _masked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    hidden = mask(headers)
    return {name: MASK if _SECRET_HEADER.search(name) else str(hidden[name]) for name in headers}


def result_of(raw: bytes) -> Any:
    """Return the result of the last consumer; a string when it is not JSON."""
    if not raw:
        return None
    try:
        check_json(raw)
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return raw[:MOST_BODY].decode("utf-8", "replace")


def made_by(number: int) -> tuple[datetime | None, int | None]:
    """Return the time and the worker of an ID; None for an ID that is not ours."""
    try:
        made_at, worker, _sequence = decode(number)
    except (ValueError, OverflowError):
        return None, None
    return made_at, worker


def moment(ms: int) -> datetime | None:
    """Convert Unix ms to a time; None for 0."""
    return datetime.fromtimestamp(ms / 1000, UTC) if ms else None


def plain(value: Any) -> Any:
    """Convert MessagePack values for JSON; bytes become their length."""
    if isinstance(value, bytes):
        return _("%(count)d bytes") % {"count": len(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(element) for name, element in value.items()}
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    return value
