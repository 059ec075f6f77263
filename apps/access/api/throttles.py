"""Limits per token and per person, so that one script can neither keep the web busy alone nor
keep the others of its person from working."""

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
    # Its client takes long to load, and an embedded installation never does; where it is not
    # loaded, nothing can have raised its errors.
    redis = sys.modules.get("redis.exceptions")
    return () if redis is None else (redis.RedisError,)


class PerUserThrottle(BaseThrottle):
    """Requests of one token, of one person (all tokens and sessions together), or of one address.

    What is beyond the limit of its token does not count for the person. Counts in windows of the
    rate's period: one number in the cache, where a list of times would grow with the limit.
    """

    scope = "user"
    clock = staticmethod(time.time)

    _wait_seconds = 0.0

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Count this request.

        Without its cache the limit is lifted: it protects, it must not become the outage.
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
        """Seconds until the next window."""
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
        # However low the limit of a person is: one token leaves half of it to the others.
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
            # It fell out of the cache between the two calls: this is the first again.
            return 1


class GuessThrottle(PerUserThrottle):
    """Wrong secrets for one token (its prefix) from one address: more are not even looked at."""

    scope = "guess"

    def may_try(self, address: str, prefix: str) -> bool:
        """Whether another secret is looked at. Right ones are not counted."""
        return self._counted(
            self._of(address, prefix),
            lambda key, _period: cache.get(key, 0) + 1,
            self._limit(self.scope),
        )

    def failed(self, address: str, prefix: str) -> None:
        """Count a wrong one."""
        self._counted(self._of(address, prefix), self._count, self._limit(self.scope))

    @staticmethod
    def _of(address: str, prefix: str) -> str:
        # What strangers wrote becomes part of no key as it is.
        digest = hashlib.sha256(f"{address} {prefix}".encode("utf-8", "replace")).hexdigest()
        return f"guess-{digest[:32]}"
