"""A storage node in plain Python: slow, and right by being short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from apps.requeststore.stores.base import QueueEntry, StoredRequest

NEW, TAKEN, EXPIRED, MOVING = 0, -1, -2, -3


@dataclass
class Row:
    """One request."""

    id: int
    ts: int
    data: bytes
    flag: int = NEW
    owner: str = ""
    deadline: int = 0
    tries: int = 0
    queued_at: int = 0
    finished_at: int = 0
    was: int = NEW
    steps: list[str] = field(default_factory=lambda: ["stored"])

    def as_seen(self) -> tuple[object, ...]:
        """What is compared with the store."""
        return (
            self.id,
            self.ts,
            self.data,
            self.flag,
            self.owner,
            self.deadline,
            self.tries,
            self.queued_at,
            self.finished_at,
            self.steps,
        )


def seen(request: StoredRequest) -> tuple[object, ...]:
    """The same of what the store says."""
    return (
        request.id,
        request.ts,
        request.data,
        request.flag,
        request.owner,
        request.deadline,
        request.tries,
        request.queued_at,
        request.finished_at,
        [str(step.kind) for step in request.steps],
    )


class Model:
    """One shard of one biz."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}

    def insert(self, requests: Sequence[tuple[int, int]]) -> list[bool]:
        new = []
        for id_, ts in requests:
            new.append(id_ not in self.rows)
            self.rows.setdefault(id_, Row(id_, ts, b"d%d" % id_))
        return new

    def queued(self, ids: Sequence[int], now: int, again: bool) -> None:
        for id_ in set(ids):
            row = self.rows.get(id_)
            if row and row.flag != MOVING and row.queued_at < now:
                row.queued_at = now
                row.steps.append("requeued" if again else "queued")

    def take(
        self, entries: Sequence[QueueEntry], owner: str, now: int, deadline: int, cutoff: int
    ) -> list[str]:
        return [self._take(each, owner, now, deadline, cutoff) for each in entries]

    def _take(self, entry: QueueEntry, owner: str, now: int, deadline: int, cutoff: int) -> str:
        row = self.rows.get(entry.id)
        if row is None or entry.biz != "news":
            return "unknown"
        if row.ts != entry.ts:
            return "wrong_ts"
        if row.flag > NEW:
            return "done"
        if row.flag == EXPIRED or (row.flag != MOVING and row.ts <= cutoff):
            return "expired"
        if row.flag == MOVING or (row.flag == TAKEN and row.deadline > now):
            return "busy"
        row.flag, row.owner, row.deadline = TAKEN, owner, deadline
        row.tries += 1
        row.steps.append("taken")
        return "taken"

    def end(self, id_: int, tries: int, flag: int, owner: str, now: int) -> str:
        """A finish, or with flag 0 a give-back."""
        row = self.rows.get(id_)
        if row is None:
            return "unknown"
        if (row.owner, row.tries) != (owner, tries):
            return "late"
        if row.flag != TAKEN:
            return "repeated" if row.flag == flag else "late"
        row.flag, row.deadline = flag, 0
        if flag == NEW:
            row.queued_at = 0
        else:
            row.finished_at = now
        row.steps.append("finished" if flag else "returned")
        return "done"

    def orphans(self, before: int, cutoff: int) -> set[int]:
        return {
            row.id
            for row in self.rows.values()
            if row.flag == NEW and not row.queued_at and cutoff < row.ts <= before
        }

    def forgotten(self, before: int, cutoff: int) -> set[int]:
        return {
            row.id
            for row in self.rows.values()
            if row.flag == NEW and 0 < row.queued_at <= before and row.ts > cutoff
        }

    def overdue(self, now: int, cutoff: int) -> set[int]:
        found = {
            row.id
            for row in self.rows.values()
            if row.flag == TAKEN and row.deadline <= now and row.ts > cutoff
        }
        for id_ in found:
            row = self.rows[id_]
            row.flag, row.owner, row.deadline, row.queued_at = NEW, "", 0, 0
            row.steps.append("overdue")
        return found

    def expire(self, cutoff: int, now: int) -> int:
        found = [row for row in self.rows.values() if row.flag in (NEW, TAKEN) and row.ts <= cutoff]
        for row in found:
            row.flag, row.deadline, row.finished_at = EXPIRED, 0, now
            row.steps.append("expired")
        return len(found)

    def delete(self, before: int) -> int:
        found = [
            row.id
            for row in self.rows.values()
            if (row.flag > NEW or row.flag == EXPIRED) and row.ts < before
        ]
        for id_ in found:
            del self.rows[id_]
        return len(found)

    def start_move(self, ids: Sequence[int]) -> list[int | None]:
        """The flags they had."""
        return [self._start_move(id_) for id_ in ids]

    def _start_move(self, id_: int) -> int | None:
        row = self.rows.get(id_)
        if row is None or row.flag == TAKEN:
            return None
        if row.flag != MOVING:
            row.was, row.flag = row.flag, MOVING
        return row.was

    def undo_move(self, ids: Sequence[int]) -> int:
        found = self._moving(ids)
        for row in found:
            row.flag = row.was
        return len(found)

    def end_move(self, ids: Sequence[int]) -> int:
        found = self._moving(ids)
        for row in found:
            del self.rows[row.id]
        return len(found)

    def _moving(self, ids: Sequence[int]) -> list[Row]:
        rows = (self.rows.get(id_) for id_ in set(ids))
        return [row for row in rows if row and row.flag == MOVING]

    def reopen(self, ids: Sequence[int], flags: Sequence[int], cutoff: int) -> list[bool]:
        return [self._reopen(id_, flags, cutoff) for id_ in ids]

    def _reopen(self, id_: int, flags: Sequence[int], cutoff: int) -> bool:
        row = self.rows.get(id_)
        if row is None or row.flag <= NEW or row.flag not in flags or row.ts <= cutoff:
            return False
        row.flag = row.tries = row.queued_at = row.finished_at = 0
        row.owner = ""
        row.steps.append("reopened")
        return True

    def page(self, flag: int | None, since: int, until: int) -> list[int]:
        rows = [
            row
            for row in self.rows.values()
            if since <= row.ts < until and flag in (None, row.flag)
        ]
        return [row.id for row in sorted(rows, key=lambda row: (-row.ts, -row.id))]

    def counts(self) -> dict[int, int]:
        return dict(Counter(row.flag for row in self.rows.values()))

    def oldest(self, flag: int) -> int | None:
        return min((row.ts for row in self.rows.values() if row.flag == flag), default=None)
