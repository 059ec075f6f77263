"""Format of every error: ``{code, detail, fields, request_id}``.

``code`` is stable, for programs; ``detail`` is translated, for people; ``fields`` maps input names
(nested ones with dots, ``items.0.url``) to lists of messages.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.core.exceptions import ValidationError as DjangoValidationError
from django.db import DataError, IntegrityError
from django.db.models import ProtectedError, RestrictedError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views import defaults
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import set_rollback

from apps.access.errors import DomainError
from apps.access.services import current_request_id
from apps.runtime.errors import DATABASE_AWAY, RuntimeRefusal
from yardkit.broker import BrokerError

logger = logging.getLogger(__name__)

RETRY_AFTER_SECONDS: Final = 5
_PASSING: Final = (status.HTTP_429_TOO_MANY_REQUESTS, status.HTTP_503_SERVICE_UNAVAILABLE)
API_PREFIX: Final = "/api/"
UNAVAILABLE: Final = (*DATABASE_AWAY, BrokerError)


class PreconditionFailed(exceptions.APIException):
    """If-Match does not match: the object has changed."""

    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_code = "changed_meanwhile"
    default_detail = gettext_lazy("The object has changed since you read it; read it again.")


class BadRequest(exceptions.APIException):
    """An invalid header or query parameter."""

    status_code = status.HTTP_400_BAD_REQUEST
    default_code = "bad_request"


def error_body(
    code: str, detail: object, fields: Mapping[str, list[str]] | None = None
) -> dict[str, Any]:
    """Return the body of an error response."""
    return {
        "code": code,
        "detail": str(detail),
        "fields": dict(fields or {}),
        "request_id": current_request_id(),
    }


def exception_handler(exc: Exception, context: Mapping[str, Any]) -> Response | None:
    """DRF's exception handler; None lets Django return 500 and log the exception."""
    response = _answer(exc)
    if response is not None:
        set_rollback()
    return response


def _answer(exc: Exception) -> Response | None:
    if isinstance(exc, DomainError | RuntimeRefusal):
        fields = {name: [str(message) for message in texts] for name, texts in exc.fields.items()}
        # All temporary failures have the same Retry-After.
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if exc.status in _PASSING else {}
        return Response(error_body(exc.code, exc, fields), status=exc.status, headers=headers)
    if isinstance(exc, Http404):
        return Response(error_body("not_found", _("Not found.")), status=404)
    if isinstance(exc, PermissionDenied):
        text = _("You are not allowed to do this.")
        return Response(error_body("permission_denied", text), status=403)
    if isinstance(exc, DjangoValidationError):
        return _from_django_validation(exc)
    if isinstance(exc, ProtectedError | RestrictedError):
        text = _("Other things still refer to this; delete them first.")
        return Response(error_body("in_use", text), status=409)
    if isinstance(exc, IntegrityError):
        logger.warning("a database constraint refused a request", exc_info=exc)
        text = _("This conflicts with what is stored already.")
        return Response(error_body("conflict", text), status=409)
    if isinstance(exc, DataError | OverflowError):
        logger.warning("a value does not fit into its column", exc_info=exc)
        text = _("A value is too large, or holds characters that cannot be stored.")
        return Response(error_body("out_of_range", text), status=400)
    if isinstance(exc, UNAVAILABLE):
        return _unavailable(exc)
    if isinstance(exc, exceptions.APIException):
        return _from_rest(exc)
    return None


def _unavailable(exc: BaseException) -> Response:
    # No traceback: during an outage every request would log one.
    first_line = str(exc).strip().partition("\n")[0]
    logger.error("a store does not answer: %s: %s", type(exc).__name__, first_line)
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return Response(_unavailable_body(), status=503, headers=headers)


def _unavailable_body() -> dict[str, Any]:
    text = _("A part of the platform does not answer; try again in a moment.")
    return error_body("unavailable", text)


def _from_rest(exc: exceptions.APIException) -> Response:
    headers: dict[str, str] = {}
    if isinstance(exc, exceptions.Throttled):
        headers["Retry-After"] = str(max(1, int(getattr(exc, "wait", None) or 1)))
    if isinstance(exc, exceptions.AuthenticationFailed | exceptions.NotAuthenticated):
        # DRF puts the authenticator's challenge on the exception before it calls the handler.
        challenge = getattr(exc, "auth_header", None)
        if challenge:
            headers["WWW-Authenticate"] = challenge
    if isinstance(exc, exceptions.ValidationError):
        body = _validation_body(exc.detail)
    else:
        codes = exc.get_codes()
        code = codes if isinstance(codes, str) else str(exc.default_code)
        body = error_body(_stable(code), exc.detail)
    return Response(body, status=exc.status_code, headers=headers)


def _stable(code: str) -> str:
    return {"error": "server_error"}.get(code, code)


def _from_django_validation(exc: DjangoValidationError) -> Response:
    if hasattr(exc, "error_dict"):
        return Response(_validation_body(exc.message_dict), status=400)
    return Response(_validation_body({"non_field_errors": exc.messages}), status=400)


def _validation_body(detail: Any) -> dict[str, Any]:
    fields: dict[str, list[str]] = {}
    _flatten(detail, "", fields)
    general = fields.pop("", [])
    for name in [
        field for field in fields if field.split(".")[-1] in ("non_field_errors", "__all__")
    ]:
        holder = name.rpartition(".")[0]
        if holder:
            fields.setdefault(holder, []).extend(fields.pop(name))
        else:
            general += fields.pop(name)
    text = " ".join(general) or _("The input is not valid.")
    return error_body("invalid", text, fields)


def _flatten(detail: Any, path: str, into: dict[str, list[str]]) -> None:
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            _flatten(inner, f"{path}.{name}" if path else str(name), into)
    elif isinstance(detail, list | tuple):
        for index, inner in enumerate(detail):
            if isinstance(inner, Mapping | list | tuple):
                _flatten(inner, f"{path}.{index}" if path else str(index), into)
            else:
                into.setdefault(path, []).append(str(inner))
    else:
        into.setdefault(path, []).append(str(detail))


# --- failures outside of REST views, under /api/ ---------------------------------------------


def _is_api(request: HttpRequest) -> bool:
    return request.path_info.startswith(API_PREFIX)


def _plain(code: str, text: str, http_status: HTTPStatus) -> JsonResponse:
    return JsonResponse(error_body(code, text), status=http_status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """``handler400``."""
    if isinstance(exception, RequestDataTooBig) and _is_api(request):
        text = _("The body is too large.")
        return _plain("body_too_large", text, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    if _is_api(request):
        return _plain("bad_request", _("The request is malformed."), HTTPStatus.BAD_REQUEST)
    return defaults.bad_request(request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """``handler403``."""
    if _is_api(request):
        text = _("You are not allowed to do this.")
        return _plain("permission_denied", text, HTTPStatus.FORBIDDEN)
    return defaults.permission_denied(request, exception)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """``handler404``."""
    if _is_api(request):
        return _plain("not_found", _("There is no page at this address."), HTTPStatus.NOT_FOUND)
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """``handler500``: 503 if a store is unreachable, else 500; Django has logged it."""
    if isinstance(sys.exc_info()[1], UNAVAILABLE):
        return _unavailable_page(request)
    if _is_api(request):
        text = _("Something went wrong here; the request id helps to find out what.")
        return _plain("server_error", text, HTTPStatus.INTERNAL_SERVER_ERROR)
    return defaults.server_error(request)


def _unavailable_page(request: HttpRequest) -> HttpResponse:
    response: HttpResponse
    if _is_api(request):
        response = JsonResponse(_unavailable_body(), status=503)
    else:
        response = HttpResponse(
            _unavailable_body()["detail"], status=503, content_type="text/plain; charset=utf-8"
        )
    response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response
