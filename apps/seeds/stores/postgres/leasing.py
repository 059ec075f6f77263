"""Handing seeds out and taking them back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from apps.seeds.engine.errors import WrongLease
from apps.seeds.engine.keys import key_hash
from apps.seeds.engine.seeds import Outcome, State, after
from apps.seeds.stores.base import Books, Finish, Finished, Lease, refusal
from apps.seeds.stores.bodies import unpack_body
from apps.seeds.stores.postgres.database import Cursor, Database, Row, move, next_turns, one
from yardkit.protocol import LeasedSeed

# So many leases are taken back in one transaction.
_EXPIRE = 10

_SEGMENTS = """
SELECT segment FROM books WHERE frontier = %s AND segment <= %s
GROUP BY segment HAVING sum(pending) > 0 ORDER BY segment
"""
_TAKE = """
WITH picked AS (
    SELECT hash FROM seeds
    WHERE frontier = %(frontier)s AND segment = %(segment)s AND state IN (0, 3) AND due <= %(now)s
    ORDER BY due, turn LIMIT %(most)s FOR UPDATE SKIP LOCKED
)
UPDATE seeds s SET state = 4, generation = %(generation)s, changed_at = %(now)s
FROM picked
WHERE s.frontier = %(frontier)s AND s.segment = %(segment)s AND s.hash = picked.hash
RETURNING s.due, s.turn, s.retry, s.max_retry, s.body
"""
_LEASED = """
SELECT segment, retry, max_retry, body FROM seeds
WHERE frontier = %s AND state = 4 AND generation = %s ORDER BY segment, due, turn
"""
_FOR_FINISH = """
SELECT hash, state, retry, max_retry, generation, turn FROM seeds
WHERE frontier = %s AND segment = %s AND hash = ANY(%b) ORDER BY hash FOR UPDATE
"""
_MOVE = """
UPDATE seeds s SET state = u.state, retry = u.retry, turn = u.turn, changed_at = %s
FROM unnest(%b::bytea[], %b::smallint[], %b::smallint[], %b::bigint[])
    AS u (hash, state, retry, turn)
WHERE s.frontier = %s AND s.segment = %s AND s.hash = u.hash
"""
_GIVE_BACK = """
UPDATE seeds SET state = CASE WHEN retry > 0 THEN 3 ELSE 0 END, changed_at = %s
WHERE frontier = %s AND state = 4 AND generation = %s RETURNING segment
"""
_OVERDUE = """
SELECT generation FROM grants WHERE deadline <= %s
ORDER BY generation LIMIT %s FOR UPDATE SKIP LOCKED
"""
_MEMBERS = """
SELECT frontier, segment, hash, retry, max_retry, turn FROM seeds
WHERE state = 4 AND generation = ANY(%s) ORDER BY generation, segment, due, turn FOR UPDATE
"""


def lease(
    database: Database,
    cursor: Cursor,
    frontier: int,
    owner: str,
    limit: int,
    deadline: int,
    now: int,
    call: str,
) -> Lease:
    """Up to ``limit`` seeds that are due and that nobody else is taking."""
    cursor.execute("SELECT nextval('generations')")
    generation = one(cursor)[0]
    cursor.execute(_SEGMENTS, [frontier, now])
    seeds: list[LeasedSeed] = []
    books = {}
    for (segment,) in cursor.fetchall():
        if len(seeds) == limit:
            break
        taken = _take(cursor, frontier, segment, generation, limit - len(seeds), now)
        seeds += taken
        books[segment] = Books(pending=-len(taken), leased=len(taken))
    if seeds:
        cursor.execute(
            "INSERT INTO grants VALUES (%s, %s, %s, %s, %s, %s)",
            [generation, frontier, owner, deadline, len(seeds), call],
        )
    for segment, changed in books.items():
        database.book(cursor, frontier, segment, changed)
    return Lease(generation, owner, deadline, seeds)


def recall(cursor: Cursor, frontier: int, owner: str, call: str) -> Lease | None:
    """What this call was given and is still leased."""
    cursor.execute(
        "SELECT generation, deadline FROM grants WHERE frontier = %s AND owner = %s AND call = %s",
        [frontier, owner, call],
    )
    row = cursor.fetchone()
    if row is None:
        return None
    generation, deadline = row
    cursor.execute(_LEASED, [frontier, generation])
    seeds = []
    for segment, retry, max_retry, body in cursor.fetchall():
        key, data, ext = unpack_body(body)
        seeds.append(LeasedSeed(segment, key, data, retry, max_retry, ext))
    return Lease(generation, owner, deadline, seeds)


def _take(
    cursor: Cursor, frontier: int, segment: int, generation: int, most: int, now: int
) -> list[LeasedSeed]:
    values = {"frontier": frontier, "segment": segment, "generation": generation}
    cursor.execute(_TAKE, values | {"most": most, "now": now})
    seeds = []
    for _, _, retry, max_retry, body in sorted(cursor.fetchall(), key=lambda row: row[:2]):
        key, data, ext = unpack_body(body)
        seeds.append(LeasedSeed(segment, key, data, retry, max_retry, ext))
    return seeds


def finish(
    database: Database,
    cursor: Cursor,
    frontier: int,
    finishes: Sequence[Finish],
    owner: str,
    now: int,
) -> list[Finished]:
    """One answer for each, as if they came one after another."""
    cursor.execute(
        "SELECT generation, owner FROM grants WHERE generation = ANY(%s) "
        "ORDER BY generation FOR UPDATE",
        [[one.generation for one in finishes]],
    )
    holders: dict[int, str] = dict(cursor.fetchall())
    segments: dict[int, list[int]] = {}
    for index, finish in enumerate(finishes):
        segments.setdefault(finish.segment, []).append(index)
    answers: dict[int, Finished] = {}
    books: dict[int, Books] = {}
    ended: Counter[int] = Counter()
    turns = _turns(cursor, len(finishes))
    for segment, places in sorted(segments.items()):
        work = _Finishing(cursor, frontier, segment, [finishes[index].key for index in places])
        for index in places:
            answers[index] = work.finish(finishes[index], owner, holders, turns)
            if answers[index].code in ("finished", "retried"):
                ended[finishes[index].generation] += 1
        work.write(cursor, now)
        books[segment] = work.books
    leave(cursor, ended)
    for segment, changed in books.items():
        database.book(cursor, frontier, segment, changed)
    return [answers[index] for index in range(len(finishes))]


class _Finishing:
    """The finishes of one segment."""

    def __init__(self, cursor: Cursor, frontier: int, segment: int, keys: Sequence[str]) -> None:
        self._place = frontier, segment
        self.books = Books()
        hashes = [key_hash(key) for key in keys]
        self._hashes = dict(zip(keys, hashes, strict=True))
        cursor.execute(_FOR_FINISH, [frontier, segment, hashes])
        self._seeds: dict[bytes, Row] = {row[0]: row[1:] for row in cursor.fetchall()}
        self._moved: dict[bytes, tuple[int, int, int]] = {}

    def finish(
        self, one: Finish, owner: str, holders: dict[int, str], turns: Iterator[int]
    ) -> Finished:
        """The answer; what changes is kept for ``write``."""
        key = self._hashes[one.key]
        if key not in self._seeds:
            return Finished("unknown_key", None)
        state, retry, max_retry, generation, turn = self._seeds[key]
        holder = holders.get(one.generation)
        refused = refusal(one.generation, owner, state=state, generation=generation, holder=holder)
        if refused:
            self.books.late += refused == "late"
            return Finished(refused, State(state))
        new, retry = after(one.outcome, retry, max_retry)
        move(self.books, State.RUNNING, new)
        if new == State.RETRY:
            turn = next(turns)
            self.books.retried += 1
        self._seeds[key] = new, retry, max_retry, generation, turn
        self._moved[key] = new, retry, turn
        return Finished("retried" if new == State.RETRY else "finished", new)

    def write(self, cursor: Cursor, now: int) -> None:
        write_moves(cursor, *self._place, self._moved, now)


def write_moves(
    cursor: Cursor,
    frontier: int,
    segment: int,
    moved: dict[bytes, tuple[int, int, int]],
    now: int,
) -> None:
    """State, retry count and number in the queue of each seed, by hash."""
    if moved:
        states, retries, turns = map(list, zip(*moved.values(), strict=True))
        values = [list(moved), [int(state) for state in states], retries, turns]
        cursor.execute(_MOVE, [now, *values, frontier, segment])


def _turns(cursor: Cursor, most: int) -> Iterator[int]:
    """Up to ``most`` numbers, drawn only when the first one is wanted."""
    yield from next_turns(cursor, most)


def leave(cursor: Cursor, ended: Counter[int]) -> None:
    """So many seeds of each generation are no longer leased."""
    if ended:
        cursor.execute(
            "UPDATE grants g SET remaining = g.remaining - u.count "
            "FROM unnest(%s::bigint[], %s::int[]) AS u (generation, count) "
            "WHERE g.generation = u.generation",
            [list(ended), list(ended.values())],
        )
        cursor.execute(
            "DELETE FROM grants WHERE generation = ANY(%s) AND remaining <= 0", [list(ended)]
        )


def extend(cursor: Cursor, frontier: int, generation: int, owner: str, deadline: int) -> int:
    """The deadline of the lease from now on."""
    cursor.execute(
        "UPDATE grants SET deadline = greatest(deadline, %s) "
        "WHERE generation = %s AND frontier = %s AND owner = %s RETURNING deadline",
        [deadline, generation, frontier, owner],
    )
    row = cursor.fetchone()
    if row is None:
        raise WrongLease(f"{owner} has no lease {generation}; it may have expired")
    new: int = row[0]
    return new


def give_back(
    database: Database, cursor: Cursor, frontier: int, generation: int, owner: str, now: int
) -> int:
    """All that is still leased becomes pending at its old place."""
    cursor.execute(
        "DELETE FROM grants WHERE generation = %s AND frontier = %s AND owner = %s",
        [generation, frontier, owner],
    )
    if not cursor.rowcount:
        raise WrongLease(f"{owner} has no lease {generation}; it may have expired")
    cursor.execute(_GIVE_BACK, [now, frontier, generation])
    counts = Counter(row[0] for row in cursor.fetchall())
    for segment, count in sorted(counts.items()):
        database.book(cursor, frontier, segment, Books(pending=count, leased=-count))
    return counts.total()


def expire(database: Database, cursor: Cursor, now: int) -> int | None:
    """Seeds of some leases that are over: each has failed once more. None: no lease is over."""
    cursor.execute(_OVERDUE, [now, _EXPIRE])
    generations = [row[0] for row in cursor.fetchall()]
    if not generations:
        return None
    cursor.execute(_MEMBERS, [generations])
    rows = cursor.fetchall()
    turns = _turns(cursor, len(rows))
    books: dict[tuple[int, int], Books] = {}
    moved: dict[tuple[int, int], dict[bytes, tuple[int, int, int]]] = {}
    for frontier, segment, key, retry, max_retry, turn in rows:
        state, tries = after(Outcome.FAILURE, retry, max_retry)
        changed = books.setdefault((frontier, segment), Books())
        move(changed, State.RUNNING, state)
        changed.expired += 1
        changed.retried += state == State.RETRY
        turn_now = next(turns) if state == State.RETRY else turn
        moved.setdefault((frontier, segment), {})[key] = state, tries, turn_now
    for place, those in moved.items():
        write_moves(cursor, *place, those, now)
    cursor.execute("DELETE FROM grants WHERE generation = ANY(%s)", [generations])
    for place, changed in sorted(books.items()):
        database.book(cursor, *place, changed)
    return len(rows)
