"""``Authorization: Bearer cy_<prefix>_<secret>`` (``Token`` instead of ``Bearer`` works too)."""

from __future__ import annotations

from typing import Final

from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied, Throttled
from rest_framework.request import Request

from apps.access.api.throttles import GuessThrottle
from apps.access.models import ApiToken, User
from apps.access.services import client_address, find_token, stands_in, touch_token

SCHEMES: Final = frozenset({b"bearer", b"token"})


class TokenAuthentication(BaseAuthentication):
    """Authenticates the token's user; ``user.acting_token`` is the token."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """Return user and token; None without the header, so that session authentication is tried.

        Raises 401 for a wrong token, 429 after too many wrong secrets for one prefix, and 403 for a
        valid token used from outside its networks. Without the right secret the response never
        names the problem; with it, an expired token is reported as expired.
        """
        words = get_authorization_header(request).split()
        if not words or words[0].lower() not in SCHEMES:
            return None
        if len(words) != 2:
            raise AuthenticationFailed(_("The token is malformed."), code="invalid_token")
        presented, address = words[1].decode("latin-1"), client_address(request)
        prefix = presented.split("_")[1] if presented.count("_") >= 2 else ""
        guesses = GuessThrottle()
        if not guesses.may_try(address, prefix):
            raise Throttled(guesses.wait())
        token = find_token(presented)
        if token is None:
            guesses.failed(address, prefix)
        if token is None or not token.user.is_active:
            raise AuthenticationFailed(_("The token is not valid."), code="invalid_token")
        now = timezone.now()
        if token.revoked_at is not None:
            raise AuthenticationFailed(_("The token has been revoked."), code="token_revoked")
        if not token.usable(now):
            raise AuthenticationFailed(_("The token has expired."), code="token_expired")
        if token.allowed_networks and not stands_in(address, token.allowed_networks):
            text = _("This token is not accepted from %(address)s.") % {"address": address}
            raise PermissionDenied(text, code="network_not_allowed")
        touch_token(token, now=now, address=address)
        user = token.user
        user.acting_token = token
        return user, token

    def authenticate_header(self, request: Request) -> str:
        """Value of WWW-Authenticate in 401 responses."""
        return 'Bearer realm="crawlyard"'
