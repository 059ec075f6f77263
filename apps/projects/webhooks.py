"""Endpoint ``POST /webhooks/<project>/`` for deliveries of git servers and registries.

Uses no session and no CSRF token: a delivery is authenticated by its signature alone.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from apps.access.api.errors import RETRY_AFTER_SECONDS, UNAVAILABLE, error_body
from apps.projects.engine.senders import IncomingDelivery
from apps.projects.errors import RegistryAway
from apps.projects.services.deliveries import DeliveryReceipt, receive_delivery

MAX_TOKEN: Final = 200


@csrf_exempt
@never_cache
@require_POST
def receive(request: HttpRequest, slug: str) -> JsonResponse:
    """Process a delivery.

    Answers 202 for an authenticated delivery, whatever its result, and 200 to a registry. Answers
    400 for a malformed body; 401 for a delivery that is not authenticated, whether or not the
    project exists; 413 for a body that is too long; 503 while the database or the registry does not
    answer, so that the sender retries.
    """
    body = _read(request)
    if body is None:
        limit = settings.WEBHOOK_MAX_BYTES
        return _error("body_too_large", f"at most {limit} bytes", HTTPStatus(413))
    incoming = IncomingDelivery(
        headers={name.lower(): value for name, value in request.headers.items()},
        body=body,
        token=request.GET.get("token", "")[:MAX_TOKEN],
    )
    try:
        receipt = receive_delivery(
            slug=slug,
            incoming=incoming,
            remote_address=request.META.get("REMOTE_ADDR") or "",
            now=timezone.now(),
        )
    except (*UNAVAILABLE, RegistryAway):
        return _unavailable()
    if receipt is None:
        detail = "the signature or the token is missing or wrong"
        return _error("unauthorized", detail, HTTPStatus.UNAUTHORIZED)
    return JsonResponse(_answer(receipt), status=_status(receipt))


def _read(request: HttpRequest) -> bytes | None:
    """Return the body; None if it is too long. The reverse proxy usually rejects it earlier."""
    limit: int = settings.WEBHOOK_MAX_BYTES
    length = request.META.get("CONTENT_LENGTH") or "0"
    if length.isdigit() and int(length[:20]) > limit:
        return None
    body: bytes = request.read(limit + 1)
    return None if len(body) > limit else body


def _status(receipt: DeliveryReceipt) -> HTTPStatus:
    if receipt.malformed:
        return HTTPStatus.BAD_REQUEST
    return HTTPStatus.OK if receipt.of_registry else HTTPStatus.ACCEPTED


def _answer(receipt: DeliveryReceipt) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "delivery": receipt.delivery.pk,
        "verdict": receipt.delivery.verdict,
        "code": receipt.code,
        "reason": receipt.reason,
    }
    if receipt.of_registry:
        # Response format that registries expect.
        envelope = {"Code": 100, "Status": "Success", "Message": receipt.reason}
        answer = {**answer, **envelope, "Data": receipt.delivery.tag}
    return answer


def _error(code: str, detail: str, status: HTTPStatus) -> JsonResponse:
    return JsonResponse(error_body(code, detail), status=status)


def _unavailable() -> JsonResponse:
    detail = "a part of the platform does not answer; try again in a moment"
    response = _error("unavailable", detail, HTTPStatus.SERVICE_UNAVAILABLE)
    response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response
