"""``Idempotency-Key``: a repeated POST gets the first response instead of a second effect.

The key is reserved in its own transaction, so that a concurrent call sees it. Effect and stored
response are committed together: a crash leaves both or neither.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, cast

from django.core.files import File
from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from django.utils.datastructures import MultiValueDict
from django.utils.translation import gettext_lazy as _
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from apps.access.api.errors import BadRequest
from apps.access.errors import AccessError
from apps.runtime.engine.background import BackgroundWorker
from apps.runtime.errors import DATABASE_ERRORS
from apps.runtime.models import IdempotencyKey
from apps.runtime.queries import threads_share_database

P = ParamSpec("P")
Action = Callable[Concatenate[Any, Request, P], Response]

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotent-Replayed"
# A reservation this old belongs to a process that died before its commit.
ABANDONED: Final = timedelta(minutes=2)
_FREE_AGAIN_SECONDS: Final = 1.0
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_RESERVATION: Final = "_idempotency_reservation"


class IdempotencyKeyReused(AccessError):
    """The key was used before with another body."""

    code = "idempotency_key_reused"
    status = 422
    detail = _("This Idempotency-Key was used for a different request.")


class IdempotencyKeyInUse(AccessError):
    """The first call with this key is still in progress."""

    code = "idempotency_key_in_use"
    detail = _("The first request with this Idempotency-Key is still in progress.")


def idempotent(action: Action[P]) -> Action[P]:
    """Decorator of POST actions that honours the header.

    Only 2xx responses are stored; after an error the key is free again. View sets with secrets in
    their responses override ``stored_answer``.
    """

    return _honouring(action, transaction.atomic)


def repeatable(action: Action[P]) -> Action[P]:
    """Like ``idempotent``, without a transaction, for actions that wait for another process.

    An open transaction would lock an embedded database, perhaps for that very process. A crash at
    the wrong moment repeats the effect, which must tolerate this.
    """
    return _honouring(action, nullcontext)


def resumable(action: Action[P]) -> Action[P]:
    """Like ``repeatable``, for an external effect that a repeated call can complete.

    Before its effect the action calls ``keep_for_repeat(self, {...})`` with what a repetition
    needs, such as ids. After a crash or an error the repeated call reads it by
    ``kept_for_repeat(self)``; the key may be used again at once.
    """
    return _honouring(action, nullcontext)


def keep_for_repeat(view: Any, notes: dict[str, Any]) -> None:
    """Store ``notes`` with the idempotency key of this call, if it has one, for a repeated call."""
    reservation: IdempotencyKey | None = getattr(view, _RESERVATION, None)
    if reservation is None:
        return
    if not IdempotencyKey.objects.filter(**_mine(reservation)).update(body=notes):
        raise IdempotencyKeyInUse
    reservation.body = notes


def kept_for_repeat(view: Any) -> dict[str, Any] | None:
    """Return the notes that an earlier, unfinished call with this key has stored."""
    reservation: IdempotencyKey | None = getattr(view, _RESERVATION, None)
    return None if reservation is None else reservation.body


def by_its_own_means(action: Action[P]) -> Action[P]:
    """Mark an action that detects repetitions itself by ``key_of``; no response is stored."""

    @wraps(action)
    def answer(view: Any, request: Request, *args: P.args, **kwargs: P.kwargs) -> Response:
        key_of(request)
        return action(view, request, *args, **kwargs)

    # Read by the schema generator.
    answer.honours_idempotency_key = True  # type: ignore[attr-defined]
    return cast("Action[P]", answer)


def honours_key(view: Any, action: str | None) -> bool:
    """Whether a POST to this view or action accepts an Idempotency-Key."""
    return hasattr(getattr(view, action or "post", None), "honours_idempotency_key")


def key_of(request: Request) -> str | None:
    """Return the key of the request. Raises ``BadRequest`` for an invalid key."""
    key = request.headers.get(HEADER)
    if key is not None and not _KEY.fullmatch(key):
        text = _("Idempotency-Key must be 1 to 255 visible ASCII characters.")
        raise BadRequest(text, code="bad_idempotency_key")
    return key


def _honouring(
    action: Action[P], together: Callable[[], AbstractContextManager[None]]
) -> Action[P]:
    @wraps(action)
    def answer(view: Any, request: Request, *args: P.args, **kwargs: P.kwargs) -> Response:
        key = key_of(request) if request.method == "POST" else None
        if key is None:
            return action(view, request, *args, **kwargs)
        with _let_go(request):
            reservation, replay = _reserve(request, key)
            if replay is not None:
                return replay
            setattr(view, _RESERVATION, reservation)
            try:
                with together():
                    response = action(view, request, *args, **kwargs)
                    keep = getattr(view, "stored_answer", None)
                    _store(reservation, response, keep(response.data) if keep else response.data)
            # In any case: a repeated call must not find the key in use.
            except BaseException:
                _free(reservation)
                raise
            return response

    # Read by the schema generator.
    answer.honours_idempotency_key = True  # type: ignore[attr-defined]
    return cast("Action[P]", answer)


@contextmanager
def _let_go(request: Request) -> Iterator[None]:
    """Release the stored copy of the body, which was needed for the fingerprint only."""
    try:
        yield
    finally:
        close = getattr(request.data, "close", None)
        if close is not None:
            close()


def _reserve(request: Request, key: str) -> tuple[IdempotencyKey, Response | None]:
    place = {
        "user_id": request.user.pk,
        "key": key,
        "method": "POST",
        "path": request.path.rstrip("/")[:500],
    }
    digest = _hash_of(request)
    now = timezone.now()
    try:
        with transaction.atomic():
            made = IdempotencyKey.objects.create(**place, request_hash=digest, created_at=now)
    except IntegrityError:
        stored = IdempotencyKey.objects.filter(**place).first()
        if stored is None:
            # The first call failed at this moment and freed the key.
            raise IdempotencyKeyInUse from None
        return _known(stored, digest=digest, now=now)
    return made, None


def _known(
    found: IdempotencyKey, *, digest: str, now: datetime
) -> tuple[IdempotencyKey, Response | None]:
    if found.request_hash != digest:
        raise IdempotencyKeyReused
    if found.status is not None:
        headers = {REPLAYED: "true"}
        return found, Response(found.body, status=found.status, headers=headers)
    over = found.created_at < now - ABANDONED or _taken.pop(found.pk, None) is not None
    taken_over = over and (IdempotencyKey.objects.filter(**_mine(found)).update(created_at=now))
    if not taken_over:
        raise IdempotencyKeyInUse
    found.created_at = now
    return found, None


def _free(reservation: IdempotencyKey) -> None:
    """Free the key once the database is available."""
    try:
        _release(reservation)
    except DATABASE_ERRORS:
        connection.close()
        _taken[reservation.pk] = reservation
        if threads_share_database():
            _worker.wake()


def _free_later() -> float | None:
    """Free the keys of calls that failed because of a database outage."""
    try:
        for pk, reservation in list(_taken.items()):
            _release(reservation)
            _taken.pop(pk, None)
    except DATABASE_ERRORS:
        return _FREE_AGAIN_SECONDS
    finally:
        connection.close()
    return None


def _release(reservation: IdempotencyKey) -> None:
    mine = IdempotencyKey.objects.filter(**_mine(reservation))
    if reservation.body is None:
        # Nothing was committed.
        mine.delete()
    else:
        # The effect may be partial: a repeated call needs the notes to complete it.
        mine.update(created_at=timezone.now() - ABANDONED - timedelta(seconds=1))


def _mine(reservation: IdempotencyKey) -> dict[str, Any]:
    # created_at is the fencing token: after a takeover the row is not found, and the effect is
    # rolled back.
    return {"pk": reservation.pk, "status": None, "created_at": reservation.created_at}


def _store(reservation: IdempotencyKey, response: Response, body: Any) -> None:
    mine = IdempotencyKey.objects.filter(**_mine(reservation))
    if not 200 <= response.status_code < 300:
        mine.delete()
        return
    plain = json.loads(json.dumps(body, cls=JSONEncoder))
    if not mine.update(status=response.status_code, body=plain):
        raise IdempotencyKeyInUse


def _hash_of(request: Request) -> str:
    data = request.data
    # In a form a name may occur more than once.
    payload = dict(data.lists()) if isinstance(data, MultiValueDict) else data
    body = json.dumps(payload, sort_keys=True, separators=(",", ":"), default=_fingerprint)
    query = request.META.get("QUERY_STRING", "")
    # The key is bound to the token's project: another token must not get this response.
    project = getattr(request.auth, "project_id", None)
    return hashlib.sha256(
        f"{project}\n{query}\n{body}".encode("utf-8", "surrogatepass")
    ).hexdigest()


def _fingerprint(value: Any) -> str:
    """Return a digest for a part of a body that is not JSON; of a file, its name and content."""
    if isinstance(value, File):
        digest = hashlib.sha256()
        for piece in value.chunks():
            digest.update(piece)
        value.seek(0)
        return f"{value.name} {digest.hexdigest()}"
    read = getattr(value, "fingerprint", None)
    return str(read() if read else value)


# Primary keys of keys that this process could not free.
_taken: dict[int, IdempotencyKey] = {}
_worker = BackgroundWorker("idempotency-keys", _free_later)
