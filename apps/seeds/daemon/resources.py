"""Answers spiders' calls about resources in the daemon of the seed service.

Needs the control plane's database and no seed store; the caller manages database connections.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any, Final

from django.conf import settings

from apps.runtime.queries import database_now
from apps.seeds.engine.errors import SeedError
from apps.seeds.errors import SeedsRefusal
from apps.seeds.models import Resource, ResourcePool
from apps.seeds.services.resources import Leased, give_back, lease, release_expired
from yardkit.protocol import (
    AnyMessage,
    LeasedResource,
    LeaseResource,
    ResourceLeased,
    ResourceReturned,
    ReturnResource,
)
from yardkit.tokens import pools_scope, verify_scope

logger = logging.getLogger(__name__)

# Interval of the search for expired leases; each lease call looks for them, too.
SWEEP_SECONDS: Final = 5.0


class ResourceRefused(SeedError):
    """A resource call cannot be executed. ``code``: see ``SeedsRefused``, and ``unknown_pool``."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code  # type: ignore[misc]  # code differs per instance


def lease_resource(call: LeaseResource) -> ResourceLeased:
    """Lease the best resource, or return when one may be free. Raises ``ResourceRefused``,
    ``DatabaseError``.
    """
    _check_token(call.project, call.token)
    pool = _pool(call)
    try:
        result = lease(
            pool=pool, owner=call.owner, now=database_now(), seconds=call.seconds, key=call.key
        )
    except SeedsRefusal as error:
        raise ResourceRefused(error.code, error.text) from None
    if not isinstance(result, Leased):
        return ResourceLeased(
            resource=None, next_at=_ms(result.next_at) if result.next_at else None
        )
    return ResourceLeased(
        resource=LeasedResource(
            id=result.resource.pk,
            pool=pool.name,
            name=result.resource.name,
            lease=result.lease,
            until=_ms(result.until),
            secret=result.secret,
        )
    )


def return_resource(call: ReturnResource) -> ResourceReturned:
    """End the lease of a resource. Raises ``ResourceRefused``, ``DatabaseError``."""
    _check_token(call.project, call.token)
    try:
        done = give_back(
            project=call.project,
            resource=call.id,
            lease=call.lease,
            outcome=call.outcome,
            now=database_now(),
            owner=call.owner,
            reason=call.reason,
        )
    except Resource.DoesNotExist:
        raise ResourceRefused("unknown_resource", "there is no such resource (any more)") from None
    except SeedsRefusal as error:
        raise ResourceRefused(error.code, error.text) from None
    return ResourceReturned(
        code=done.code,
        state=done.resource.state,
        score=done.resource.score,
        available_at=_ms(done.resource.available_at),
    )


# Message types and the functions that answer them.
HANDLERS: Final[dict[type[AnyMessage], Any]] = {
    LeaseResource: lease_resource,
    ReturnResource: return_resource,
}


def sweep() -> None:
    """Release expired leases. Raises ``DatabaseError``."""
    # Query first: most sweeps find nothing and need no transaction.
    now = database_now()
    if Resource.objects.overdue(now).exists():
        release_expired(now=now)


def _check_token(project: int, token: str) -> None:
    if not verify_scope(settings.SECRET_KEY, pools_scope(project), token):
        raise ResourceRefused("wrong_token", "this token is not that of the project's pools")


def _pool(call: LeaseResource) -> ResourcePool:
    # No pool can have a name with NUL, and databases reject such a query.
    named = ResourcePool.objects.filter(project=call.project, name=call.pool.replace("\x00", "?"))
    pool = named.first()
    if pool is None:
        raise ResourceRefused("unknown_pool", "the project has no pool of this name")
    return pool


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
