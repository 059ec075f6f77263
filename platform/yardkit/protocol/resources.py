"""Messages about leased resources of pools.

Calls carry the token of the project whose pools they use (``yardkit.tokens.pools_scope``). Refusals
are ``SeedsRefused``. Times are Unix milliseconds.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from yardkit.protocol.base import Message

# What a person may write about a resource.
MAX_REASON: Final = 500


class ResourceOutcome(IntEnum):
    """Outcome of using a resource."""

    OK = 1
    NOT_OK = 2
    # Never to be handed out again, until a person says otherwise.
    BAN = 3
    # It says nothing about the resource.
    UNUSED = 4


class LeasedResource(msgspec.Struct, frozen=True):
    """A leased resource. ``lease`` is its number; ``repr`` hides the secret."""

    id: int
    pool: str
    name: str
    lease: int
    until: int
    secret: dict[str, str]

    def __repr__(self) -> str:
        return f"LeasedResource({self.pool!r}, {self.name!r}, lease={self.lease})"


class LeaseResource(Message, frozen=True, kw_only=True, tag="resource_lease"):
    """Lease the best resource of ``pool`` for ``seconds`` (0: the pool's default).

    ``key``: idempotency key; a repeated call gets the same resource.
    """

    project: int
    token: str
    pool: str
    owner: str
    key: str
    seconds: float = 0.0


class ResourceLeased(Message, frozen=True, kw_only=True, tag="resource_leased"):
    """``resource`` None: none is free; the next one at ``next_at``, if any.

    One may be returned earlier, so callers retry.
    """

    resource: LeasedResource | None
    next_at: int | None = None


class ReturnResource(Message, frozen=True, kw_only=True, tag="resource_return"):
    """Return the resource ``id`` leased under ``lease``."""

    project: int
    token: str
    owner: str
    id: int
    lease: int
    outcome: ResourceOutcome
    reason: str = ""


class ResourceReturned(Message, frozen=True, kw_only=True, tag="resource_returned"):
    """``code``: ``returned``, ``repeated`` (already returned) or ``late`` (the lease had ended;
    counted).

    Only the first changes anything. ``state`` and ``available_at`` are current.
    """

    code: str
    state: str
    score: float
    available_at: int


ResourceCall = LeaseResource | ReturnResource
ResourceReply = ResourceLeased | ResourceReturned
