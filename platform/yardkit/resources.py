"""Client of resource pools: leases accounts, tokens and proxies for spiders."""

from __future__ import annotations

import time
import uuid
from typing import Final

from yardkit.broker.base import Broker
from yardkit.protocol import (
    LeasedResource,
    LeaseResource,
    ResourceLeased,
    ResourceOutcome,
    ResourceReturned,
    ReturnResource,
)
from yardkit.protocol.resources import MAX_REASON
from yardkit.seeds import SeedServiceClient
from yardkit.stop import Stop

# A resource may be given back before its announced time.
_LOOK_AGAIN_SECONDS: Final = 2.0
_SOONEST_SECONDS: Final = 0.05


class NoResource(Exception):
    """No resource of the pool is free.
    ``next_at``: when one may become free, Unix milliseconds; None: only an operator can free one.
    """

    def __init__(self, pool: str, next_at: int | None) -> None:
        when = "" if next_at is None else f"; the next one may be in {_seconds_to(next_at):.0f} s"
        super().__init__(f"no resource of pool {pool!r} is free{when}")
        self.pool = pool
        self.next_at = next_at


class ResourceClient(SeedServiceClient):
    """Client of one project's pools. Calls are idempotent.

    Args:
        token: ``sign_scope(secret, pools_scope(project))``.
    """

    def __init__(
        self,
        broker: Broker,
        project: int,
        token: str,
        *,
        owner: str,
        timeout: float = 10.0,
        patience: float = 30.0,
        stop: Stop | None = None,
    ) -> None:
        super().__init__(broker, token, owner=owner, timeout=timeout, patience=patience, stop=stop)
        self._project = project

    def lease(
        self, pool: str, *, seconds: float = 0.0, wait_seconds: float = 0.0
    ) -> LeasedResource:
        """Lease the best free resource of ``pool`` for ``seconds`` (0: the pool's default).

        While none is free the call is repeated, for up to ``wait_seconds``.

        Raises:
            NoResource
            SeedServiceAway: the outcome is unknown; a lease that was given ends with the run.
            CallRefused: ``unknown_pool``, ``pool_disabled``, ``wrong_token``, ``bad_lease``.
        """
        give_up = time.monotonic() + wait_seconds
        while True:
            answer = self._ask(self._lease_call(pool, seconds), ResourceLeased)
            if answer.resource is not None:
                return answer.resource
            pause = _LOOK_AGAIN_SECONDS
            if answer.next_at is not None:
                pause = min(pause, max(_SOONEST_SECONDS, _seconds_to(answer.next_at)))
            if time.monotonic() + pause > give_up or self._pause(pause):
                raise NoResource(pool, answer.next_at)

    def give_back(
        self, leased: LeasedResource, outcome: ResourceOutcome, reason: str = ""
    ) -> ResourceReturned:
        """End a lease and report the outcome. Raises ``SeedServiceAway`` and ``CallRefused``."""
        call = ReturnResource(
            project=self._project,
            token=self._token,
            owner=self.owner,
            id=leased.id,
            lease=leased.lease,
            outcome=outcome,
            reason=reason[:MAX_REASON],
        )
        return self._ask(call, ResourceReturned)

    def _lease_call(self, pool: str, seconds: float) -> LeaseResource:
        return LeaseResource(
            project=self._project,
            token=self._token,
            pool=pool,
            owner=self.owner,
            key=uuid.uuid4().hex,
            seconds=seconds,
        )


def _seconds_to(at: int) -> float:
    return max(0.0, at / 1000 - time.time())
