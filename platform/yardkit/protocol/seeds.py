"""Seeds: what is added, leased and finished at the seed service, in batches with one reply each.

Every call shows the token of what it speaks for (``yardkit.tokens.sign_scope``): that of a frontier
for the calls of spiders and rules, another one for managing it. Times are milliseconds since 1970.
A call that cannot be answered as asked is answered by ``SeedsRefused``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import msgspec

from yardkit.protocol.base import Message

# Seeds in one call.
MAX_SEEDS: Final = 10_000
# What a lease may wait for its first seed, in seconds.
MAX_WAIT_SECONDS: Final = 30.0
# What a grab may hand back, as MessagePack.
MAX_RESULT_BYTES: Final = 1024 * 1024


class SeedState(IntEnum):
    """0 to 4 are VSCrawler's (seed S3.11); for ``IGNORED`` it has a flag instead."""

    INIT = 0
    SUCCEEDED = 1
    FAILED = 2
    RETRY = 3
    RUNNING = 4
    IGNORED = 5


class SeedOutcome(IntEnum):
    """What came of a leased seed."""

    SUCCESS = 1
    # Tried again while it has retries left.
    FAILURE = 2
    # Failed, and another try would not help.
    GIVEN_UP = 3
    IGNORED = 4


class Seed(msgspec.Struct, frozen=True, array_like=True):
    """What somebody adds. ``active_at``: not to be crawled before, ms since 1970.

    ``urgent``: handed out before all others; only without ``active_at``.
    """

    data: str
    active_at: int | None = None
    max_retry: int | None = None
    ext: dict[str, Any] | None = None
    urgent: bool = False


class SeedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What became of one added seed.

    ``code``: "new"; "duplicate", known ``since`` and by now in ``state``; else why it was refused,
    such as "empty_data", with ``text`` for people.
    """

    code: str
    since: int = 0
    state: SeedState = SeedState.INIT
    text: str = ""


class LeasedSeed(msgspec.Struct, frozen=True, array_like=True):
    """A seed handed out. ``retry``: tries that have failed before."""

    segment: int
    key: str
    data: str
    retry: int
    max_retry: int
    ext: dict[str, Any] | None = None


class SeedFinish(msgspec.Struct, frozen=True, array_like=True):
    """What came of one leased seed.

    ``grab``: what ``ext`` of the seed had under ``GRAB``, so that whoever waits for it gets
    ``result``, anything that JSON could hold.
    """

    segment: int
    key: str
    generation: int
    outcome: SeedOutcome
    grab: str = ""
    result: Any = None


class SeedFinished(msgspec.Struct, frozen=True, array_like=True):
    """The answer to one finish. ``state``: that of the seed now, None where there is none.

    ``code``: ``finished``, ``retried`` (pending again), or what was refused and changed nothing:
    ``late`` (leased anew or expired since), ``repeated`` (finished by this lease before),
    ``wrong_lease`` (no lease of this owner), ``unknown_key``.
    """

    code: str
    state: SeedState | None


class KnownSeed(msgspec.Struct, frozen=True):
    """All that is stored about a seed. ``owner`` and ``deadline``: of its lease."""

    segment: int
    key: str
    data: str
    state: SeedState
    retry: int
    max_retry: int
    added_at: int
    changed_at: int
    due: int
    generation: int
    ext: dict[str, Any] | None = None
    owner: str | None = None
    deadline: int | None = None


# Under this name ``ext`` of a seed says who waits for what comes of it.
GRAB: Final = "_grab"


class AddSeeds(Message, frozen=True, kw_only=True, tag="seeds_add"):
    """At most ``MAX_SEEDS``. Answered by ``SeedsAdded``; the same once more changes nothing."""

    frontier: int
    token: str
    seeds: list[Seed]


class SeedsAdded(Message, frozen=True, kw_only=True, tag="seeds_added"):
    """One answer for each seed, in order."""

    answers: list[SeedAnswer]


class LeaseSeeds(Message, frozen=True, kw_only=True, tag="seeds_lease"):
    """Hand out up to ``limit`` seeds to ``owner`` for ``seconds`` (0: as the frontier says).

    ``wait_seconds``: while nothing is due the answer waits so long. ``call``: the owner's name of
    this call; when it comes ``again``, since its answer got lost, it gets the same lease.
    """

    frontier: int
    token: str
    owner: str
    limit: int = 100
    seconds: float = 0.0
    wait_seconds: float = 0.0
    call: str = ""
    again: bool = False


class SeedsLeased(Message, frozen=True, kw_only=True, tag="seeds_leased"):
    """``seeds``: in the order to crawl them; empty: nothing is due before ``next_due``.

    ``pending``: how many wait in the frontier, those not due yet among them.
    """

    generation: int
    deadline: int
    seeds: list[LeasedSeed]
    next_due: int | None = None
    pending: int = 0


class FinishSeeds(Message, frozen=True, kw_only=True, tag="seeds_finish"):
    """What came of leased seeds; ``found`` are new ones, added afterwards (seed S3.17)."""

    frontier: int
    token: str
    owner: str
    finishes: list[SeedFinish]
    found: list[Seed] = []


class SeedsFinished(Message, frozen=True, kw_only=True, tag="seeds_finished"):
    """One answer for each finish and each seed found, in order."""

    answers: list[SeedFinished]
    added: list[SeedAnswer] = []


class ExtendLease(Message, frozen=True, kw_only=True, tag="seeds_extend"):
    """The lease lasts ``seconds`` from now on (0: as the frontier says)."""

    frontier: int
    token: str
    owner: str
    generation: int
    seconds: float = 0.0


class LeaseExtended(Message, frozen=True, kw_only=True, tag="seeds_extended"):
    """Its new deadline."""

    deadline: int


class GiveBackLease(Message, frozen=True, kw_only=True, tag="seeds_give_back"):
    """What is still leased becomes pending at its old place; no try is counted."""

    frontier: int
    token: str
    owner: str
    generation: int


class LeaseGivenBack(Message, frozen=True, kw_only=True, tag="seeds_given_back"):
    """How many seeds it were."""

    count: int


class LookUpSeed(Message, frozen=True, kw_only=True, tag="seeds_look_up"):
    """Would this seed be new, and if not, since when?"""

    frontier: int
    token: str
    seed: Seed


class SeedLookedUp(Message, frozen=True, kw_only=True, tag="seeds_looked_up"):
    """Where it would go; ``known``: what stands in its way, None where it would be new."""

    segment: int
    key: str
    due: int
    known: KnownSeed | None


class GrabSeed(Message, frozen=True, kw_only=True, tag="seeds_grab"):
    """Crawl this one before all others; ``SeedGrabbed`` comes when it has ended (seed S3.20).

    Nobody may wait that long: then the seed is crawled all the same. ``again``: also when it has
    ended before; what is pending or leased is refused as ``seed_in_use``.
    """

    frontier: int
    token: str
    seed: Seed
    again: bool = False


class SeedGrabbed(Message, frozen=True, kw_only=True, tag="seeds_grabbed"):
    """How it ended, and what its spider hands back."""

    segment: int
    key: str
    state: SeedState
    result: Any = None


class ManageSeeds(Message, frozen=True, kw_only=True, tag="seeds_manage"):
    """What only those who manage a frontier may do; ``operation`` is one of the service's own."""

    frontier: int
    token: str
    operation: msgspec.Raw


class SeedsManaged(Message, frozen=True, kw_only=True, tag="seeds_managed"):
    """What came of it, in the service's own form."""

    result: msgspec.Raw


class SeedsRefused(Message, frozen=True, kw_only=True, tag="seeds_refused"):
    """Nothing was done. ``retry_seconds``: worth asking again after so long; 0: not as it is.

    ``code``: ``bad_call``, ``wrong_token``, ``unknown_frontier``, ``wrong_lease``, ``clock_back``,
    ``store_unavailable``, ``ask_again`` (it was away meanwhile), ``frozen`` (the frontier is being
    moved), ``stopping``, ...
    """

    code: str
    text: str
    retry_seconds: float = 0.0


SeedCall = (
    AddSeeds
    | LeaseSeeds
    | FinishSeeds
    | ExtendLease
    | GiveBackLease
    | LookUpSeed
    | GrabSeed
    | ManageSeeds
)
SeedReply = (
    SeedsAdded
    | SeedsLeased
    | SeedsFinished
    | LeaseExtended
    | LeaseGivenBack
    | SeedLookedUp
    | SeedGrabbed
    | SeedsManaged
    | SeedsRefused
)
