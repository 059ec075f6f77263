"""Clients without a token, on the paths that the seeds name, from networks of the operator."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.access.api.permissions import InsideScopes
from apps.access.api.throttles import PerUserThrottle
from apps.access.services import client_address, stands_in


class Guest(AnonymousUser):
    """Nobody in particular, from a network whose clients need no token."""

    # Keys of Idempotency-Key belong to a number; people's begin with 1.
    pk = 0  # type: ignore[assignment]  # Django's stranger has none


class NetworkAuthentication(BaseAuthentication):
    """Whom ``COMPAT_ANONYMOUS_FROM`` lets in; stands behind those that know people."""

    def authenticate(self, request: Request) -> tuple[Guest, None] | None:
        """None for clients of any other network."""
        inside = stands_in(client_address(request), settings.COMPAT_ANONYMOUS_FROM)
        return (Guest(), None) if inside else None


class InsideScopesOrNetwork(InsideScopes):
    """By token or login as everywhere, or from a network of ``COMPAT_ANONYMOUS_FROM``."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Who has a token is held to it, wherever the call comes from."""
        return isinstance(request.user, Guest) or super().has_permission(request, view)


class PerCallerThrottle(PerUserThrottle):
    """Strangers are counted by the address that the call came from, not by what a header says."""

    def get_ident(self, request: Request) -> str:
        """That address."""
        return client_address(request)
