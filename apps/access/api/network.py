"""Clients without a token, on the paths that the seeds name, from networks of the operator."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.access.api.permissions import InsideScopes
from apps.access.api.throttles import PerUserThrottle
from apps.access.services import client_address, stands_in


class Guest(AnonymousUser):
    """Anonymous caller from a network whose clients need no token."""

    # Keys of Idempotency-Key belong to a number; people's begin with 1.
    pk = 0  # type: ignore[assignment]  # Django's stranger has none


class NetworkAuthentication(BaseAuthentication):
    """Whom ``COMPAT_ANONYMOUS_FROM`` lets in; stands behind those that know people."""

    def authenticate(self, request: Request) -> tuple[Guest, None] | None:
        """None for clients of any other network."""
        inside = stands_in(client_address(request), settings.COMPAT_ANONYMOUS_FROM)
        return (Guest(), None) if inside else None


def of_another_site(request: Request) -> bool:
    """Return whether the browser says that a page of another site sent the request.

    Programs send no such header. Over plain http a browser may leave out the origin of an image or
    a link when the page asks it to.
    """
    if request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
        return True
    page = request.headers.get("Origin") or request.headers.get("Referer")
    if page is None or page in settings.CSRF_TRUSTED_ORIGINS:
        return False
    try:
        return urlsplit(page).netloc != request.get_host()
    except ValueError:
        return True


class InsideScopesOrNetwork(InsideScopes):
    """By token or login as everywhere, or from a network of ``COMPAT_ANONYMOUS_FROM``."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Limit a token to its scopes, wherever the call comes from.

        A browser in an open network also shows pages of strangers, whose requests come from inside:
        they may change nothing.
        """
        if not isinstance(request.user, Guest):
            return super().has_permission(request, view)
        changes = request.method not in SAFE_METHODS or getattr(view, "changes_by_get", False)
        if changes and of_another_site(request):
            raise PermissionDenied(code="cross_site")
        return True


class PerCallerThrottle(PerUserThrottle):
    """Strangers are counted by the address that the call came from, not by what a header says."""

    def get_ident(self, request: Request) -> str:
        """That address."""
        return client_address(request)
