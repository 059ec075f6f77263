"""Anonymous access to seed-compatible paths from trusted networks."""

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

    # Owner id of idempotency keys; ids of users begin with 1.
    pk = 0  # type: ignore[assignment]  # Django's stranger has none


class NetworkAuthentication(BaseAuthentication):
    """Admits callers from ``COMPAT_ANONYMOUS_FROM``; placed after user authentication."""

    def authenticate(self, request: Request) -> tuple[Guest, None] | None:
        """Return a ``Guest``; None for clients of any other network."""
        inside = stands_in(client_address(request), settings.COMPAT_ANONYMOUS_FROM)
        return (Guest(), None) if inside else None


def of_another_site(request: Request) -> bool:
    """Return whether a page of another site sent the request (Sec-Fetch-Site, Origin, Referer).

    Programs send no such header. Over plain HTTP a browser may omit the origin of images and links.
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
    """Require a token or session as everywhere, or a network of ``COMPAT_ANONYMOUS_FROM``."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Check the scopes of a token; refuse changes by foreign web pages.

        A browser in a trusted network also loads pages of other sites, whose requests come from
        inside the network.
        """
        if not isinstance(request.user, Guest):
            return super().has_permission(request, view)
        changes = request.method not in SAFE_METHODS or getattr(view, "changes_by_get", False)
        if changes and of_another_site(request):
            raise PermissionDenied(code="cross_site")
        return True


class PerCallerThrottle(PerUserThrottle):
    """Throttle that counts anonymous callers by their real address, whatever headers say."""

    def get_ident(self, request: Request) -> str:
        """Return the client's address."""
        return client_address(request)
