"""The port of a storage node: what every adapter promises, and what one contract test holds.

A node keeps *shards*: collections (a table, a MongoDB collection) in databases. Times are whole
milliseconds since 1970; every change takes the caller's ``now``, and ``cutoff`` is the ``ts`` at
and before which a request of this biz has expired. Whoever asks treats an expired request as
expired, also when nobody has swept it yet.

Every change of the flag is one guarded update, so that of two who try one wins; a repeat of a
change that has happened is harmless. Batches: each method takes many and does them in few
statements. No method needs to look through a whole shard, except ``count`` and ``size``.

The books: ``stored = new + taken + moving + processed (by flag) + expired``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from apps.requeststore.engine.limits import MAX_TS

# Part of this port: importable from here.
from apps.requeststore.engine.shard import Shard as Shard


class StepKind(enum.StrEnum):
    """What happened to a request."""

    STORED = "stored"
    QUEUED = "queued"
    TAKEN = "taken"
    # Given back by its owner, to be tried again.
    RETURNED = "returned"
    # Its owner had not finished it by the deadline.
    OVERDUE = "overdue"
    # Stored and in no queue: the sweep put it there.
    REQUEUED = "requeued"
    FINISHED = "finished"
    # Somebody wants it tried again though it had ended.
    REOPENED = "reopened"
    EXPIRED = "expired"
    MOVED = "moved"


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One line of a request's story. ``by``: the process; ``text``: one line, at most 500."""

    at: int
    kind: StepKind
    by: str
    text: str = ""


class NewRequest(msgspec.Struct, frozen=True):
    """What a producer hands over; ``data`` is opaque here (see ``engine.entity``)."""

    id: int
    biz: str
    ts: int
    data: bytes
    priority: int = 0


class StoredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it lies there. ``tries``: how often it was taken; ``deadline``: 0 unless taken.

    ``queued_at``: when it was last put into a queue, 0 for never. ``result``: what its last owner
    said at the end, a small JSON object as bytes (``{"status": 200, "records": 3}``), or b"".
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
    steps: list[Step] = []


class Entry(msgspec.Struct, frozen=True):
    """What a queue holds of a request (seed S4.19)."""

    id: int
    biz: str
    ts: int


class TakeCode(enum.StrEnum):
    """Why a request was not handed out."""

    TAKEN = "taken"  # this one was: the only success
    UNKNOWN = "unknown"  # no such id here, or of another biz
    WRONG_TS = "wrong_ts"  # there is one, with another ts
    BUSY = "busy"  # somebody has it, and his deadline is not over; or it is being moved
    DONE = "done"  # processed already
    EXPIRED = "expired"
    # Only ``Yard.take`` says so, no node: perhaps it lies on one that does not answer, so the
    # entry has to stay in the queue.
    AWAY = "away"


class Take(msgspec.Struct, frozen=True):
    """The answer to one entry. ``request`` only with ``TAKEN``; its ``tries`` fences its owner."""

    code: TakeCode
    request: StoredRequest | None = None


class Finish(msgspec.Struct, frozen=True):
    """The end of a request that ``owner`` took at its ``tries``-th time."""

    id: int
    tries: int
    flag: int
    result: bytes = b""
    text: str = ""


class GiveBack(msgspec.Struct, frozen=True):
    """Back to flag 0, to be taken again not before ``not_before`` (0: at once).

    The store only keeps the flag; who wants a delay queues it later.
    """

    id: int
    tries: int
    text: str = ""
    not_before: int = 0


class EndCode(enum.StrEnum):
    """What became of a finish or of a give-back."""

    DONE = "done"  # changed by this call
    REPEATED = "repeated"  # an earlier call of the same owner had made this very change
    LATE = "late"  # not his any more: another try, moved on, or expired
    UNKNOWN = "unknown"


class Counts(msgspec.Struct, frozen=True):
    """Of a shard, or of a span of ``ts`` in it: how many by flag, negative ones included."""

    by_flag: Mapping[int, int] = {}

    def of(self, flag: int) -> int:
        """How many have this flag."""
        return self.by_flag.get(flag, 0)

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.by_flag.values())


class Size(msgspec.Struct, frozen=True):
    """Of a shard; ``bytes`` may be an estimate."""

    requests: int
    bytes: int


class SlowOperation(msgspec.Struct, frozen=True):
    """One that takes or took long. ``text`` holds no data of requests."""

    seconds: float
    text: str


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How a node is; numbers that its kind cannot tell are None (seed S4.26)."""

    kind: str
    version: str = ""
    storage_bytes: int | None = None
    memory_bytes: int | None = None
    connections: int | None = None
    members: list[str] = []
    slow: list[SlowOperation] = []


class StorageNode(Protocol):
    """Thread-safe. Methods raise ``StoreUnavailable`` when the server does not answer."""

    def ensure(self, shard: Shard, *, delete_after_seconds: int) -> None:
        """Make the shard with its indexes, or adjust when it deletes; cheap when nothing changes.

        Requests are deleted by the store itself ``delete_after_seconds`` after their ``ts``: at
        once where it has such an index (MongoDB), else by ``delete``.
        """

    def insert(
        self, shard: Shard, requests: Sequence[NewRequest], *, by: str, now: int
    ) -> list[bool]:
        """Store them with flag 0; False for an id that is there already, which stays as it is.

        All of them or, after an error, any of them: repeating the call completes it.
        """

    def queued(
        self, shard: Shard, ids: Sequence[int], *, by: str, now: int, again: bool = False
    ) -> None:
        """Note that these are in a queue now; ``again``: by the sweep. Unknown ids are ignored."""

    def take(
        self,
        shard: Shard,
        entries: Sequence[Entry],
        *,
        owner: str,
        now: int,
        deadline: int,
        cutoff: int,
    ) -> list[Take]:
        """findAndModify by id, biz and ts: those with flag 0, or taken and overdue, are his now.

        An answer for each entry, in their order; one that is named twice is handed out once.
        """

    def finish(
        self, shard: Shard, ends: Sequence[Finish], *, owner: str, now: int
    ) -> list[EndCode]:
        """Give each its last flag. Only its owner at that try may, and only while it is taken."""

    def give_back(
        self, shard: Shard, ends: Sequence[GiveBack], *, owner: str, now: int
    ) -> list[EndCode]:
        """Flag 0 again, under the same conditions; ``queued_at`` becomes 0."""

    def find(self, shard: Shard, ids: Sequence[int]) -> list[StoredRequest | None]:
        """In their order."""

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
        """Those with ``since <= ts < until``, newest first by (ts, id), before ``after``.

        ``data`` and ``steps`` are left out (empty).
        """

    def orphans(self, shard: Shard, *, before: int, cutoff: int, limit: int) -> list[Entry]:
        """Flag 0, stored and in no queue (``queued_at`` 0), with a ts of ``before`` or older."""

    def forgotten(self, shard: Shard, *, before: int, cutoff: int, limit: int) -> list[Entry]:
        """Flag 0 and queued at ``before`` or earlier: the queue may have lost them."""

    def overdue(
        self, shard: Shard, *, now: int, cutoff: int, limit: int, by: str
    ) -> list[StoredRequest]:
        """Those whose deadline is over, which are new again (flag 0, ``queued_at`` 0) with this.

        Without ``data``; with the ``tries`` and the ``owner`` they had.
        """

    def count(self, shard: Shard, *, since: int = 0, until: int = MAX_TS) -> Counts:
        """By flag, of those with ``since <= ts < until``; answered from an index."""

    def oldest(self, shard: Shard, *, flag: int) -> int | None:
        """The smallest ``ts`` with this flag; None without any."""

    def expire(self, shard: Shard, *, cutoff: int, limit: int, by: str, now: int) -> int:
        """Mark up to ``limit`` of those at or before ``cutoff`` that are new or taken as expired.

        How many; 0 once all are. From then on no owner can finish them.
        """

    def delete(self, shard: Shard, *, before: int, limit: int) -> int:
        """Delete up to ``limit`` final ones with a ts before ``before``; how many.

        Where the store deletes by itself, it is harmless to ask, too.
        """

    def start_move(
        self, shard: Shard, ids: Sequence[int], *, now: int
    ) -> list[StoredRequest | None]:
        """Those of them that are not taken have the flag ``MOVING`` with this, whole.

        In their order, each with the flag it had, those that had ``MOVING`` before included; None
        for one that is taken, or not there.
        """

    def undo_move(self, shard: Shard, ids: Sequence[int]) -> int:
        """Those with flag ``MOVING`` have the flag they had before; how many.

        For one that shall stay after all, such as one that has expired on its way.
        """

    def receive(self, shard: Shard, requests: Sequence[StoredRequest], *, by: str, now: int) -> int:
        """Insert whole requests that come from another shard; those that are there stay.

        How many were new.
        """

    def end_move(self, shard: Shard, ids: Sequence[int]) -> int:
        """Delete those with flag ``MOVING``: they are safe in their new shard."""

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
        """New again (flag 0, no tries, ``queued_at`` 0, no result) if it ended with one of
        ``flags`` and has not expired, as ``REOPENED`` in its story; True for those that are.

        In their order. A repeat is answered with False.
        """

    def size(self, shard: Shard) -> Size:
        """How much there is."""

    def shards(self, prefix: str) -> list[Shard]:
        """Those whose database begins with ``prefix``."""

    def drop(self, shard: Shard) -> None:
        """Delete the shard with all that is in it; harmless when it is not there."""

    def health(self) -> NodeHealth:
        """Asks the server, quickly."""

    def close(self) -> None:
        """Let go of every connection."""
