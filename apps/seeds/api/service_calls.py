"""Calls from REST views to the seed service, and the HTTP answers to its errors."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.db import connection
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework import status
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import set_rollback

from apps.access.api.errors import RETRY_AFTER_SECONDS, error_body
from apps.access.models import User
from apps.seeds.engine.errors import BadSeed, InvalidFrontierSetting, UnknownSegment
from apps.seeds.models import Frontier
from apps.seeds.services import client_of
from yardkit.seeds import CallRefused, SeedClient, SeedServiceAway

# Limit of concurrently waiting calls per process; each blocks a thread.
MAX_WAITING: Final = 64
MAX_NAME: Final = 40

_NOT_FOUND: Final = frozenset({"unknown_key", "unknown_segment"})
_CONFLICTS: Final = frozenset(
    {"wrong_lease", "seed_in_use", "seed_known", "seed_not_final", "frozen", "result_too_large"}
)
_AWAY: Final = frozenset(
    {
        "store_unavailable",
        "database_away",
        "stopping",
        "clock_back",
        "bad_setting",
        "wrong_token",
        "bad_answer",
        "service_error",
        # The frontier exists in the database, but the service has not loaded it yet.
        "unknown_frontier",
    }
)
_waiting = threading.BoundedSemaphore(MAX_WAITING)


class TooManyWait(APIException):
    """Too many concurrent calls of this process wait for seeds."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "too_many_wait"
    default_detail = gettext_lazy("Too many calls are waiting for seeds; try again in a moment.")


class SeedServiceMixin:
    """View mixin that converts errors of the seed service to API errors."""

    def handle_exception(self, exc: Exception) -> Response:
        """Return the response to an exception."""
        answer = answer_to(exc)
        if answer is None:
            other: Response = super().handle_exception(exc)  # type: ignore[misc]
            if isinstance(exc, TooManyWait):
                other.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
            return other
        set_rollback()
        answer.exception = True
        return answer


def answer_to(error: Exception) -> Response | None:
    """Return the HTTP response to an error of the service; None for any other error."""
    if isinstance(error, SeedServiceAway):
        text = _("The seed service is unavailable; try again in a moment.")
        return _answer("seed_service_away", text, 503, RETRY_AFTER_SECONDS)
    if isinstance(error, CallRefused):
        http_status = status_of(error.code)
        pause = error.retry_seconds
        if http_status == status.HTTP_503_SERVICE_UNAVAILABLE:
            pause = pause or RETRY_AFTER_SECONDS
        return _answer(error.code, str(error), http_status, pause)
    if isinstance(error, UnknownSegment):
        return _answer(error.code, str(error), status_of(error.code), 0)
    if isinstance(error, BadSeed | InvalidFrontierSetting):
        return _answer(error.code, str(error), 400, 0)
    return None


def status_of(code: str) -> int:
    """Return the HTTP status of an error code."""
    if code in _NOT_FOUND:
        return status.HTTP_404_NOT_FOUND
    if code in _CONFLICTS:
        return status.HTTP_409_CONFLICT
    if code in _AWAY:
        return status.HTTP_503_SERVICE_UNAVAILABLE
    return status.HTTP_400_BAD_REQUEST


def _answer(code: str, text: str, http_status: int, retry_seconds: float) -> Response:
    headers = {"Retry-After": str(math.ceil(retry_seconds))} if retry_seconds > 0 else {}
    return Response(error_body(code, text), status=http_status, headers=headers)


def asker(frontier: Frontier, owner: str = "", *, patience: float = 0.0) -> SeedClient:
    """Return a client that sends once, within the time of a web request, unless ``patience`` is
    given.
    """
    return client_of(frontier, owner=owner, patience=patience)


def owner_of(request: Request, name: str) -> str:
    """Return the owner of leases: the user name and the caller's own name."""
    if not isinstance(request.user, User):
        raise TypeError("only people lease")
    return f"rest:{request.user.get_username()}:{name}"


@contextmanager
def waiting() -> Iterator[None]:
    """Reserve one of the slots for waiting calls, and release the database connection meanwhile.

    Raises:
        TooManyWait
    """
    if not _waiting.acquire(blocking=False):
        raise TooManyWait
    try:
        if not connection.in_atomic_block:
            connection.close()
        yield
    finally:
        _waiting.release()
