"""Addresses whose views fail in every way there is; the URL conf of the error tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.exceptions import PermissionDenied, SuspiciousOperation, ValidationError
from django.db import DataError, IntegrityError, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.access.api.routers import api_path
from apps.access.errors import DomainError
from apps.runtime.errors import DeadLetterResolved
from crawlyard.urls import handler400, handler403, handler404, handler500, urlpatterns
from yardkit.broker import BrokerError

__all__ = ["handler400", "handler403", "handler404", "handler500", "urlpatterns"]


class TooHungry(DomainError):
    """A domain error as apps define them."""

    code = "too_hungry"
    status = 422
    detail = "Eat first."


class Inner(serializers.Serializer[Any]):
    """A nested input."""

    url = serializers.URLField()


class Body(serializers.Serializer[Any]):
    """An input with everything that can be wrong."""

    name = serializers.CharField(max_length=3)
    items = serializers.ListField(child=Inner())  # type: ignore[assignment]

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """A general refusal."""
        raise serializers.ValidationError("All of it is wrong.")


def _fails(error: Exception) -> Callable[..., Any]:
    class Failing(ApiView):
        area = "trouble"

        def get(self, request: Request) -> Response:
            raise error

        def post(self, request: Request) -> Response:
            Body(data=request.data).is_valid(raise_exception=True)
            return Response({})

    return Failing.as_view()


def _page_fails(error: Exception) -> Callable[..., Any]:
    def page(request: HttpRequest) -> HttpResponse:
        raise error

    return page


FAILURES: dict[str, tuple[Exception, int, str]] = {
    "domain": (TooHungry(fields={"food": ["none"]}), 422, "too_hungry"),
    "runtime": (DeadLetterResolved(), 409, "dead_letter_resolved"),
    "forbidden": (PermissionDenied(), 403, "permission_denied"),
    "django-validation": (ValidationError({"name": ["wrong"]}), 400, "invalid"),
    "conflict": (IntegrityError("UNIQUE"), 409, "conflict"),
    "too-large": (OverflowError("int too large"), 400, "out_of_range"),
    "unstorable": (DataError("out of range"), 400, "out_of_range"),
    "database": (OperationalError("gone"), 503, "unavailable"),
    "connection": (InterfaceError("closed"), 503, "unavailable"),
    "broker": (BrokerError("refused"), 503, "unavailable"),
    "bug": (ZeroDivisionError(), 500, "server_error"),
}
PAGES: dict[str, tuple[Exception, int, str]] = {
    "page-bug": (ZeroDivisionError(), 500, "server_error"),
    "page-database": (OperationalError("gone"), 503, "unavailable"),
    "page-suspicious": (SuspiciousOperation(), 400, "bad_request"),
    "page-forbidden": (PermissionDenied(), 403, "permission_denied"),
}
urlpatterns = [
    *(
        api_path(f"api/v1/trouble/{name}", _fails(each[0]), name=name)
        for name, each in FAILURES.items()
    ),
    *(path(f"api/v1/trouble/{name}", _page_fails(each[0])) for name, each in PAGES.items()),
    *(path(f"pages/{name}", _page_fails(each[0])) for name, each in PAGES.items()),
    *urlpatterns,
]
