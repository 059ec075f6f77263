"""Messages to and from the seed service, in batches with one reply each.

Calls carry a token (``yardkit.tokens.sign_scope``) of the frontier, or for managing it. Times are
Unix milliseconds. Refusals are ``SeedsRefused``.
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
    """States 0 to 4 are VSCrawler's (S3.11); ``IGNORED`` is a flag there."""

    INIT = 0
    SUCCEEDED = 1
    FAILED = 2
    RETRY = 3
    RUNNING = 4
    IGNORED = 5


class SeedOutcome(IntEnum):
    """Outcome of a leased seed."""

    SUCCESS = 1
    # Tried again while it has retries left.
    FAILURE = 2
    # Failed, and another try would not help.
    GIVEN_UP = 3
    IGNORED = 4


class Seed(msgspec.Struct, frozen=True, array_like=True):
    """A seed to add. ``active_at``: not crawled before, Unix milliseconds.

    ``urgent``: handed out first; only without ``active_at``.
    """

    data: str
    active_at: int | None = None
    max_retry: int | None = None
    ext: dict[str, Any] | None = None
    urgent: bool = False


class SeedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Result of adding one seed.

    ``code``: "new"; "duplicate", known ``since``, now in ``state``; or a refusal such as
    "empty_data" with ``text``.
    """

    code: str
    since: int = 0
    state: SeedState = SeedState.INIT
    text: str = ""


class LeasedSeed(msgspec.Struct, frozen=True, array_like=True):
    """A leased seed. ``retry``: number of failed tries."""

    segment: int
    key: str
    data: str
    retry: int
    max_retry: int
    ext: dict[str, Any] | None = None


class SeedFinish(msgspec.Struct, frozen=True, array_like=True):
    """Outcome of one leased seed.

    ``grab``: value of ``GRAB`` in the seed's ``ext``, so that the waiting caller gets ``result``
    (JSON types).
    """

    segment: int
    key: str
    generation: int
    outcome: SeedOutcome
    grab: str = ""
    result: Any = None


class SeedFinished(msgspec.Struct, frozen=True, array_like=True):
    """Answer to one finish. ``state``: the seed's state now, None where there is none.

    ``code``: ``finished``, ``retried`` (pending again), or a refusal that changed nothing: ``late``
    (leased again or expired since), ``repeated`` (finished by this lease before), ``wrong_lease``
    (no lease of this owner), ``unknown_key``.
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
    """Lease up to ``limit`` seeds to ``owner`` for ``seconds`` (0: the frontier's default).

    ``wait_seconds``: longest wait while nothing is due. ``call``: the owner's name of this call;
    when it is repeated with ``again``, since its answer got lost, it gets the same lease.
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
    """``seeds`` in crawl order; empty: nothing is due before ``next_due``.

    ``pending``: waiting seeds of the frontier, also later ones.
    """

    generation: int
    deadline: int
    seeds: list[LeasedSeed]
    next_due: int | None = None
    pending: int = 0


class FinishSeeds(Message, frozen=True, kw_only=True, tag="seeds_finish"):
    """Outcomes of leased seeds; ``found`` are added afterwards."""

    frontier: int
    token: str
    owner: str
    finishes: list[SeedFinish]
    found: list[Seed] = []


class SeedsFinished(Message, frozen=True, kw_only=True, tag="seeds_finished"):
    """One answer for each finish and each found seed, in order."""

    answers: list[SeedFinished]
    added: list[SeedAnswer] = []


class ExtendLease(Message, frozen=True, kw_only=True, tag="seeds_extend"):
    """Extend the lease to ``seconds`` from now (0: the frontier's default)."""

    frontier: int
    token: str
    owner: str
    generation: int
    seconds: float = 0.0


class LeaseExtended(Message, frozen=True, kw_only=True, tag="seeds_extended"):
    """New deadline of the lease."""

    deadline: int


class GiveBackLease(Message, frozen=True, kw_only=True, tag="seeds_give_back"):
    """Return leased seeds to their old place without counting a try."""

    frontier: int
    token: str
    owner: str
    generation: int


class LeaseGivenBack(Message, frozen=True, kw_only=True, tag="seeds_given_back"):
    """Number of seeds returned."""

    count: int


class LookUpSeed(Message, frozen=True, kw_only=True, tag="seeds_look_up"):
    """Ask whether a seed would be new, and since when it is known."""

    frontier: int
    token: str
    seed: Seed


class SeedLookedUp(Message, frozen=True, kw_only=True, tag="seeds_looked_up"):
    """Place of the seed; ``known``: the existing one, None: it would be new."""

    segment: int
    key: str
    due: int
    known: KnownSeed | None


class GrabSeed(Message, frozen=True, kw_only=True, tag="seeds_grab"):
    """Crawl this seed first; answered by ``SeedGrabbed`` when it has ended.

    ``again``: also when it has ended before; a pending or leased one is refused as ``seed_in_use``.
    """

    frontier: int
    token: str
    seed: Seed
    again: bool = False


class SeedGrabbed(Message, frozen=True, kw_only=True, tag="seeds_grabbed"):
    """Outcome and the spider's result."""

    segment: int
    key: str
    state: SeedState
    result: Any = None


class ManageSeeds(Message, frozen=True, kw_only=True, tag="seeds_manage"):
    """Management of a frontier; ``operation`` is one of the service's own."""

    frontier: int
    token: str
    operation: msgspec.Raw


class SeedsManaged(Message, frozen=True, kw_only=True, tag="seeds_managed"):
    """Result of a management call."""

    result: msgspec.Raw


class SeedsRefused(Message, frozen=True, kw_only=True, tag="seeds_refused"):
    """A refused call; nothing changed. ``retry_seconds``: retry after; 0: do not repeat it
    unchanged.

    ``code``: ``bad_call``, ``wrong_token``, ``unknown_frontier``, ``wrong_lease``, ``clock_back``,
    ``store_unavailable``, ``ask_again`` (it was unavailable meanwhile), ``frozen`` (the frontier is
    being moved), ``stopping``, ...
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
