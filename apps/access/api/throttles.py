"""Rate limits for each token and each user.

A single script can neither saturate the web processes nor use up the limit of its user.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from django.core.cache import cache
from django.core.exceptions import ImproperlyConfigured
from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from apps.access.engine.rates import RATE_SETTINGS, Rate, limit_of
from apps.access.models import ApiToken

if TYPE_CHECKING:
    from rest_framework.views import APIView

logger = logging.getLogger(__name__)


def _cache_errors() -> tuple[type[Exception], ...]:
    # Imported lazily: the Redis client loads slowly, and an embedded installation never needs
    # it; where it is not loaded, its errors cannot occur.
    redis = sys.modules.get("redis.exceptions")
    return () if redis is None else (redis.RedisError,)


class PerUserThrottle(BaseThrottle):
    """Limits requests of a token, of a user (all tokens and sessions), or of an address.

    Requests beyond the limit of a token do not count for its user. Fixed windows: one counter in
    the cache, where a list of times would grow with the limit.
    """

    scope = "user"
    clock = staticmethod(time.time)

    _wait_seconds = 0.0

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Count this request. Allow it if the cache is unreachable: a limit must not cause an
        outage.
        """
        token = request.auth
        if isinstance(token, ApiToken) and not self._counted(
            f"token-{token.pk}", self._count, self._token_limit()
        ):
            return False
        return self._counted(self._who(request), self._count, self._limit(self.scope))

    def _counted(self, who: str, count: Callable[[str, int], int], rate: Rate) -> bool:
        limit, period = rate
        if limit is None or period is None:
            return True
        now = self.clock()
        window = int(now // period)
        self._wait_seconds = (window + 1) * period - now
        try:
            return count(f"rest-rate:{who}:{period}:{window}", period) <= limit
        except _cache_errors() as error:
            logger.warning("no request limits: the cache does not answer: %s", error)
            return True

    def wait(self) -> float:
        """Return the seconds until the next window."""
        return self._wait_seconds

    @staticmethod
    def _limit(scope: str) -> Rate:
        rates = cast("dict[str, str]", api_settings.DEFAULT_THROTTLE_RATES)
        try:
            return limit_of(rates.get(scope))
        except ValueError as error:
            raise ImproperlyConfigured(f"{RATE_SETTINGS[scope]}: {error}") from error

    def _token_limit(self) -> Rate:
        rates = cast("dict[str, str]", api_settings.DEFAULT_THROTTLE_RATES)
        if rates.get("token"):
            return self._limit("token")
        # A token may use at most half the limit of its user, however low that is.
        limit, period = self._limit("user")
        return (None if limit is None else max(1, limit // 2)), period

    def _who(self, request: Request) -> str:
        user = request.user
        if user is not None and user.is_authenticated:
            return f"user-{user.pk}"
        return f"address-{self.get_ident(request)}"

    @staticmethod
    def _count(key: str, period: int) -> int:
        cache.add(key, 0, timeout=period)
        try:
            return cache.incr(key)
        except ValueError:
            # The key expired between the two calls: this is the first request of a new window.
            return 1


class GuessThrottle(PerUserThrottle):
    """Limits wrong secrets for one token prefix from one address."""

    scope = "guess"

    def may_try(self, address: str, prefix: str) -> bool:
        """Whether another secret is checked. Valid secrets are not counted."""
        return self._counted(
            self._of(address, prefix),
            lambda key, _period: cache.get(key, 0) + 1,
            self._limit(self.scope),
        )

    def failed(self, address: str, prefix: str) -> None:
        """Count a wrong secret."""
        self._counted(self._of(address, prefix), self._count, self._limit(self.scope))

    @staticmethod
    def _of(address: str, prefix: str) -> str:
        # Hashed: input of strangers must not become a cache key.
        digest = hashlib.sha256(f"{address} {prefix}".encode("utf-8", "replace")).hexdigest()
        return f"guess-{digest[:32]}"
