"""Resources: what a pool hands out to one at a time, and how it went (seed S3.21).

Every call shows the token of the project whose pools it asks (``yardkit.tokens.pools_scope``). What
is refused is answered by ``SeedsRefused``. Times are milliseconds since 1970.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from yardkit.protocol.base import Message

# What a person may write about a resource.
MAX_REASON: Final = 500


class ResourceOutcome(IntEnum):
    """How the use of a resource went."""

    OK = 1
    NOT_OK = 2
    # Never to be handed out again, until a person says otherwise.
    BAN = 3
    # It says nothing about the resource.
    UNUSED = 4


class LeasedResource(msgspec.Struct, frozen=True):
    """One resource in the hands of one owner. ``lease`` is its number; its ``repr`` is discreet."""

    id: int
    pool: str
    name: str
    lease: int
    until: int
    secret: dict[str, str]

    def __repr__(self) -> str:
        return f"LeasedResource({self.pool!r}, {self.name!r}, lease={self.lease})"


class LeaseResource(Message, frozen=True, kw_only=True, tag="resource_lease"):
    """Hand out the best resource of ``pool`` to ``owner`` for ``seconds`` (0: as the pool says).

    ``key``: made up anew for each call; the same call once more gets the same resource.
    """

    project: int
    token: str
    pool: str
    owner: str
    key: str
    seconds: float = 0.0


class ResourceLeased(Message, frozen=True, kw_only=True, tag="resource_leased"):
    """``resource`` is None while none is free: then the next one is at ``next_at``, if any.

    Before that time one may be given back; whoever waits asks again now and then.
    """

    resource: LeasedResource | None
    next_at: int | None = None


class ReturnResource(Message, frozen=True, kw_only=True, tag="resource_return"):
    """The resource ``id`` is no longer used under ``lease``."""

    project: int
    token: str
    owner: str
    id: int
    lease: int
    outcome: ResourceOutcome
    reason: str = ""


class ResourceReturned(Message, frozen=True, kw_only=True, tag="resource_returned"):
    """``code``: ``returned``; ``repeated``, said before; ``late``, the lease was over, and counted.

    Only the first changes anything. ``state`` and ``available_at`` are those of the resource now.
    """

    code: str
    state: str
    score: float
    available_at: int


ResourceCall = LeaseResource | ReturnResource
ResourceReply = ResourceLeased | ResourceReturned
