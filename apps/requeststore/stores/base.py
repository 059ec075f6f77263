"""Interface of storage nodes; one contract test covers every adapter.

A node keeps *shards*: collections (tables) in databases. Times are Unix ms; every change takes the
caller's ``now``, and ``cutoff`` is the latest ``ts`` that has expired. An expired request is
treated as expired, even before a sweep marks it.

Every change of a flag is one guarded update: of two concurrent callers one wins, and repeats are
harmless. Methods take batches and use few statements. No method scans a whole shard, except
``count`` and ``size``.

Accounting: ``stored = new + taken + moving + processed (by flag) + expired``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from apps.requeststore.engine.limits import MAX_TS

# Re-exported as part of the interface.
from apps.requeststore.engine.shard import Shard as Shard


class HistoryStepKind(enum.StrEnum):
    """Kind of event in a request's history."""

    STORED = "stored"
    QUEUED = "queued"
    TAKEN = "taken"
    # Returned by its owner for another try.
    RETURNED = "returned"
    # The lease expired.
    OVERDUE = "overdue"
    # Queue entry missing; queued by the sweep.
    REQUEUED = "requeued"
    FINISHED = "finished"
    # Reopened by a user after its end.
    REOPENED = "reopened"
    EXPIRED = "expired"
    MOVED = "moved"


class HistoryStep(msgspec.Struct, frozen=True, array_like=True):
    """Event in a request's history. ``by``: the process; ``text``: one line of at most 500
    characters.
    """

    at: int
    kind: HistoryStepKind
    by: str
    text: str = ""


class NewRequest(msgspec.Struct, frozen=True):
    """Request to store; ``data`` is opaque to the store (see ``engine.entity``)."""

    id: int
    biz: str
    ts: int
    data: bytes
    priority: int = 0


class StoredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Stored request. ``tries``: number of leases; ``deadline``: end of the lease, 0 without one.

    ``queued_at``: when it was last queued, 0 for never. ``result``: small JSON object of the last
    consumer as bytes (``{"status": 200, "records": 3}``), or b"".
    """

    id: int
    biz: str
    ts: int
    flag: int
    data: bytes
    priority: int = 0
    owner: str = ""
    deadline: int = 0
    tries: int = 0
    queued_at: int = 0
    finished_at: int = 0
    result: bytes = b""
    steps: list[HistoryStep] = []


class QueueEntry(msgspec.Struct, frozen=True):
    """Queue entry of a request."""

    id: int
    biz: str
    ts: int


class TakeCode(enum.StrEnum):
    """Result of taking one entry."""

    TAKEN = "taken"  # leased by this call: the only success
    UNKNOWN = "unknown"  # no such ID in this shard, or it belongs to another biz
    WRONG_TS = "wrong_ts"  # the ID exists with another ts
    BUSY = "busy"  # leased by another owner, or being moved
    DONE = "done"  # already processed
    EXPIRED = "expired"
    # Returned by ``RequestStore.take`` only: the request may be on an unreachable node, so the
    # entry must stay in the queue.
    AWAY = "away"


class Take(msgspec.Struct, frozen=True):
    """Answer to one entry. ``request`` only with ``TAKEN``; its ``tries`` is the fencing token."""

    code: TakeCode
    request: StoredRequest | None = None


class Finish(msgspec.Struct, frozen=True):
    """End of a request under the lease number ``tries``."""

    id: int
    tries: int
    flag: int
    result: bytes = b""
    text: str = ""


class GiveBack(msgspec.Struct, frozen=True):
    """Return of a leased request: new again, due at ``not_before`` (0: at once).

    The store only sets the flag; the caller queues the request when it is due.
    """

    id: int
    tries: int
    text: str = ""
    not_before: int = 0


class EndCode(enum.StrEnum):
    """Result of finishing or returning one request."""

    DONE = "done"  # changed by this call
    REPEATED = "repeated"  # an earlier call of the same owner made this change
    LATE = "late"  # the lease has ended: another try, or expired
    UNKNOWN = "unknown"


class ShardCounts(msgspec.Struct, frozen=True):
    """Requests by flag, of a shard or a span of ``ts``; negative flags included."""

    by_flag: Mapping[int, int] = {}

    def of(self, flag: int) -> int:
        """Return the count of a flag."""
        return self.by_flag.get(flag, 0)

    @property
    def total(self) -> int:
        """Return the sum."""
        return sum(self.by_flag.values())


class ShardSize(msgspec.Struct, frozen=True):
    """Size of a shard; ``bytes`` may be an estimate."""

    requests: int
    bytes: int


class SlowOperation(msgspec.Struct, frozen=True):
    """Slow or running operation of a server. ``text`` contains no request data."""

    seconds: float
    text: str


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Health of a node; None where its kind does not report a number."""

    kind: str
    version: str = ""
    storage_bytes: int | None = None
    memory_bytes: int | None = None
    connections: int | None = None
    members: list[str] = []
    slow: list[SlowOperation] = []


class StorageNode(Protocol):
    """Thread-safe. Methods raise ``RequestStoreUnavailable`` when the server does not answer."""

    def ensure(self, shard: Shard, *, delete_after_seconds: int) -> None:
        """Make the shard and its indexes, or change its retention; cheap when nothing changes.

        Requests are deleted ``delete_after_seconds`` after their ``ts``: by the server where it
        has TTL indexes (MongoDB), else by ``delete``.
        """

    def insert(
        self, shard: Shard, requests: Sequence[NewRequest], *, by: str, now: int
    ) -> list[bool]:
        """Store requests with flag 0; return False for an existing ID, which stays unchanged.

        After an error any part may be stored: repeating the call completes it.
        """

    def queued(
        self, shard: Shard, ids: Sequence[int], *, by: str, now: int, again: bool = False
    ) -> None:
        """Note that requests were queued; ``again``: by the sweep. Unknown IDs are ignored."""

    def take(
        self,
        shard: Shard,
        entries: Sequence[QueueEntry],
        *,
        owner: str,
        now: int,
        deadline: int,
        cutoff: int,
    ) -> list[Take]:
        """Lease requests that match ID, biz and ts and are new, or leased past their deadline.

        One answer for each entry, in order; a duplicate entry is leased once.
        """

    def finish(
        self, shard: Shard, ends: Sequence[Finish], *, owner: str, now: int
    ) -> list[EndCode]:
        """Set final flags. Only the owner of the current lease (``tries``) succeeds."""

    def give_back(
        self, shard: Shard, ends: Sequence[GiveBack], *, owner: str, now: int
    ) -> list[EndCode]:
        """Set flag 0 and ``queued_at`` 0, under the same conditions."""

    def find(self, shard: Shard, ids: Sequence[int]) -> list[StoredRequest | None]:
        """Return the requests in the order of ``ids``; None for a missing one."""

    def page(
        self,
        shard: Shard,
        *,
        biz: str,
        flag: int | None = None,
        since: int = 0,
        until: int = MAX_TS,
        after: tuple[int, int] | None = None,
        limit: int = 100,
    ) -> list[StoredRequest]:
        """Return requests with ``since <= ts < until``, newest first by (ts, ID), before
        ``after``.

        Without ``data`` and ``steps``.
        """

    def orphans(self, shard: Shard, *, before: int, cutoff: int, limit: int) -> list[QueueEntry]:
        """Return new requests that were never queued, with a ``ts`` up to ``before``."""

    def forgotten(self, shard: Shard, *, before: int, cutoff: int, limit: int) -> list[QueueEntry]:
        """Return new requests that were queued up to ``before``: their entries may be lost."""

    def overdue(
        self, shard: Shard, *, now: int, cutoff: int, limit: int, by: str
    ) -> list[StoredRequest]:
        """End leases past their deadline: flag 0, ``queued_at`` 0.

        Returns the requests without ``data``, with ``tries`` and ``owner`` of the lease.
        """

    def count(self, shard: Shard, *, since: int = 0, until: int = MAX_TS) -> ShardCounts:
        """Count requests with ``since <= ts < until`` by flag, from an index."""

    def oldest(self, shard: Shard, *, flag: int) -> int | None:
        """Return the smallest ``ts`` with this flag; None without any."""

    def expire(self, shard: Shard, *, cutoff: int, limit: int, by: str, now: int) -> int:
        """Mark up to ``limit`` new or leased requests with ``ts <= cutoff`` as expired.

        Returns their number; 0 when none is left. Consumers cannot finish expired requests.
        """

    def delete(self, shard: Shard, *, before: int, limit: int) -> int:
        """Delete up to ``limit`` final requests with ``ts < before``; return how many.

        Harmless where the server deletes by itself.
        """

    def start_move(
        self, shard: Shard, ids: Sequence[int], *, now: int
    ) -> list[StoredRequest | None]:
        """Set the flag ``MOVING`` on requests that are not leased, and return them whole.

        In order, with their previous flag, requests already ``MOVING`` included; None for a leased
        or missing one.
        """

    def undo_move(self, shard: Shard, ids: Sequence[int]) -> int:
        """Restore the flag of requests with ``MOVING``; return how many.

        For requests that must stay, such as those that expired meanwhile.
        """

    def receive(self, shard: Shard, requests: Sequence[StoredRequest], *, by: str, now: int) -> int:
        """Insert whole requests from another shard, unless they exist; return how many were
        new.
        """

    def end_move(self, shard: Shard, ids: Sequence[int]) -> int:
        """Delete requests with flag ``MOVING``, which are safe in their new shard."""

    def reopen(
        self,
        shard: Shard,
        ids: Sequence[int],
        *,
        flags: Sequence[int],
        by: str,
        now: int,
        cutoff: int,
    ) -> list[bool]:
        """Reset requests that ended with one of ``flags`` and have not expired: flag 0, no tries,
        no result, step ``REOPENED``. Return True for each that changed.

        In order; a repeat returns False.
        """

    def size(self, shard: Shard) -> ShardSize:
        """Return the size of a shard."""

    def shards(self, prefix: str) -> list[Shard]:
        """Return the shards whose database begins with ``prefix``."""

    def drop(self, shard: Shard) -> None:
        """Delete a shard with its requests; harmless when it is missing."""

    def health(self) -> NodeHealth:
        """Query the server's health, with a short timeout."""

    def close(self) -> None:
        """Close all connections."""
