"""Lease, finish, extend, return and expire seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from apps.seeds.engine.errors import CallInWork, WrongSeedLease
from apps.seeds.engine.keys import key_hash
from apps.seeds.engine.seeds import Outcome, State, after
from apps.seeds.stores.base import Finish, Finished, Lease, SegmentCounts, refusal
from apps.seeds.stores.bodies import unpack_body
from apps.seeds.stores.postgres.database import SeedDatabase, move, next_turns, one
from apps.seeds.stores.postgres.tables import Cursor, Row
from yardkit.protocol import LeasedSeed

# Namespace of the advisory locks of calls being answered; the second key identifies the call.
_CALLS = 0x5EED5
# A transaction idle for this long counts as abandoned.
STILL_SECONDS = 5.0

# Limit of leases expired in one transaction.
_EXPIRE = 10

# ClientRead: the server waits for the process, and not the other way round.
_PART = """
SELECT pg_terminate_backend(a.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
    AND l.classid::bigint = %(kind)s AND l.objid::bigint = %(number)s AND a.datid = l.database
    AND a.datname = current_database() AND a.wait_event = 'ClientRead'
    AND a.xact_start < clock_timestamp() - make_interval(secs => %(still)s)
"""
_SEGMENTS = """
SELECT segment FROM books WHERE frontier = %s AND segment <= %s
GROUP BY segment HAVING sum(pending) > 0 ORDER BY segment
"""
_TAKE = """
WITH picked AS (
    DELETE FROM queue
    WHERE frontier = %(frontier)s AND segment = %(segment)s AND ctid = ANY (ARRAY (
        SELECT ctid FROM queue
        WHERE frontier = %(frontier)s AND segment = %(segment)s AND due <= %(now)s
        ORDER BY due, turn LIMIT %(most)s FOR UPDATE SKIP LOCKED
    ))
    RETURNING hash
)
UPDATE known k SET state = 4, generation = %(generation)s, changed_at = %(now)s
FROM picked
WHERE k.frontier = %(frontier)s AND k.segment = %(segment)s AND k.hash = picked.hash
RETURNING k.due, k.turn, k.retry, k.max_retry, k.body, k.hash
"""
# A leased seed changes only while its lease row, which lists its seeds, is locked.
_LEASED = """
SELECT k.frontier, k.segment, k.hash, k.retry, k.max_retry, k.turn, k.body
FROM grants g, unnest(g.segments, g.hashes) AS p (segment, hashes),
    generate_series(1, length(p.hashes), 16) AS place, known k
WHERE g.generation = ANY(%s) AND k.frontier = g.frontier AND k.segment = p.segment
    AND k.hash = substr(p.hashes, place, 16) AND k.state = 4 AND k.generation = g.generation
ORDER BY k.generation, k.segment, k.due, k.turn
"""
_END = """
UPDATE known k SET state = %(state)s, changed_at = %(now)s
FROM unnest(%(hashes)b::bytea[], %(generations)b::bigint[]) AS u (hash, generation)
WHERE k.frontier = %(frontier)s AND k.segment = %(segment)s AND k.hash = u.hash
    AND k.state = 4 AND k.generation = u.generation
RETURNING k.hash
"""
_FOR_FINISH = """
SELECT hash, state, retry, max_retry, generation, turn FROM known
WHERE frontier = %s AND segment = %s AND hash = ANY(%b)
"""
# Pending seeds are in the queue.
_MOVE = """
WITH moved AS (
    UPDATE known k SET state = u.state, retry = u.retry, turn = u.turn, changed_at = %(now)s
    FROM unnest(%(hashes)b::bytea[], %(states)b::smallint[], %(retries)b::smallint[],
                %(turns)b::bigint[]) AS u (hash, state, retry, turn)
    WHERE k.frontier = %(frontier)s AND k.segment = %(segment)s AND k.hash = u.hash
    RETURNING k.state, k.due, k.turn, k.hash
)
INSERT INTO queue SELECT %(frontier)s, %(segment)s, due, turn, hash FROM moved
WHERE state IN (0, 3)
"""
_GIVE_BACK = """
WITH back AS (
    UPDATE known k SET state = CASE WHEN k.retry > 0 THEN 3 ELSE 0 END, changed_at = %(now)s
    FROM unnest(%(segments)s::bigint[], %(hashes)b::bytea[]) AS p (segment, hashes),
        generate_series(1, length(p.hashes), 16) AS place
    WHERE k.frontier = %(frontier)s AND k.segment = p.segment
        AND k.hash = substr(p.hashes, place, 16)
        AND k.state = 4 AND k.generation = %(generation)s
    RETURNING k.segment, k.due, k.turn, k.hash
), queued AS (
    INSERT INTO queue SELECT %(frontier)s, segment, due, turn, hash FROM back
)
SELECT segment, count(*) FROM back GROUP BY segment ORDER BY segment
"""
_OVERDUE = """
SELECT generation FROM grants WHERE deadline <= %s
ORDER BY generation LIMIT %s FOR UPDATE SKIP LOCKED
"""


def begin(cursor: Cursor, frontier: int, owner: str, call: str) -> int:
    """Create a lease and return its number. The call is locked until the transaction ends.

    Raises ``CallInWork`` instead of waiting: a process at a standstill may hold the lock for long.
    """
    cursor.execute(
        "SELECT nextval('generations'), %s OR pg_try_advisory_xact_lock(%s, %s)",
        [not call, _CALLS, _number(frontier, owner, call)],
    )
    generation, is_mine = one(cursor)
    if not is_mine:
        raise CallInWork("another service is answering this call; ask again")
    return int(generation)


def part_from(cursor: Cursor, frontier: int, owner: str, call: str) -> None:
    """Terminate the connection of a process that is stuck in this call, before it has leased
    anything.
    """
    number = _number(frontier, owner, call) % 2**32
    cursor.execute(_PART, {"kind": _CALLS, "number": number, "still": STILL_SECONDS})


def _number(frontier: int, owner: str, call: str) -> int:
    return int.from_bytes(key_hash(f"{frontier} {owner} {call}")[:4], signed=True)


def lease(
    database: SeedDatabase,
    cursor: Cursor,
    frontier: int,
    generation: int,
    owner: str,
    limit: int,
    deadline: int,
    now: int,
    call: str,
) -> Lease:
    """Lease up to ``limit`` due seeds that no other transaction is taking."""
    cursor.execute(_SEGMENTS, [frontier, now])
    seeds: list[LeasedSeed] = []
    hashes: dict[int, bytes] = {}
    books = {}
    for (segment,) in cursor.fetchall():
        if len(seeds) == limit:
            break
        taken = _take(cursor, frontier, segment, generation, limit - len(seeds), now)
        for _, _, retry, max_retry, body, _ in taken:
            key, data, ext = unpack_body(body)
            seeds.append(LeasedSeed(segment, key, data, retry, max_retry, ext))
        hashes[segment] = b"".join(row[5] for row in taken)
        books[segment] = SegmentCounts(pending=-len(taken), leased=len(taken))
    if seeds:
        cursor.execute(
            "INSERT INTO grants VALUES (%s, %s, %s, %s, %s, %s, %s, %b)",
            [
                *(generation, frontier, owner, deadline, len(seeds), call),
                *(list(hashes), list(hashes.values())),
            ],
        )
    for segment, changed in books.items():
        database.book(cursor, frontier, segment, changed)
    return Lease(generation, owner, deadline, seeds)


def recall(cursor: Cursor, frontier: int, owner: str, call: str) -> Lease | None:
    """Return the lease already granted to this call, as far as it is still held."""
    cursor.execute(
        "SELECT generation, deadline FROM grants WHERE frontier = %s AND owner = %s AND call = %s",
        [frontier, owner, call],
    )
    row = cursor.fetchone()
    if row is None:
        return None
    generation, deadline = row
    cursor.execute(_LEASED, [[generation]])
    seeds = []
    for _, segment, _, retry, max_retry, _, body in cursor.fetchall():
        key, data, ext = unpack_body(body)
        seeds.append(LeasedSeed(segment, key, data, retry, max_retry, ext))
    return Lease(generation, owner, deadline, seeds)


def _take(
    cursor: Cursor, frontier: int, segment: int, generation: int, most: int, now: int
) -> list[Row]:
    """Return due, turn, retry, max_retry, body and hash of due seeds, in queue order."""
    values = {"frontier": frontier, "segment": segment, "generation": generation}
    cursor.execute(_TAKE, values | {"most": most, "now": now})
    return sorted(cursor.fetchall(), key=lambda row: row[:2])


def finish(
    database: SeedDatabase,
    cursor: Cursor,
    frontier: int,
    finishes: Sequence[Finish],
    owner: str,
    now: int,
) -> list[Finished]:
    """Finish seeds as if they were given one after another; return one result for each."""
    cursor.execute(
        "SELECT generation, owner FROM grants WHERE generation = ANY(%s) "
        "ORDER BY generation FOR UPDATE",
        [list({finish.generation for finish in finishes})],
    )
    holders: dict[int, str] = dict(cursor.fetchall())
    segments: dict[int, list[int]] = {}
    for index, finish in enumerate(finishes):
        segments.setdefault(finish.segment, []).append(index)
    answers: dict[int, Finished] = {}
    books: dict[int, SegmentCounts] = {}
    ended: Counter[int] = Counter()
    turns = _turns(cursor, len(finishes))
    for segment, places in sorted(segments.items()):
        mine = [finishes[index] for index in places]
        work = _Finishing(cursor, frontier, segment, mine, owner, holders, now)
        for index, finish in zip(places, mine, strict=True):
            answer = answers[index] = work.finish(finish, turns)
            if answer.code in ("finished", "retried"):
                ended[finish.generation] += 1
        work.write(cursor)
        books[segment] = work.counts
    leave(cursor, ended)
    for segment, changed in books.items():
        database.book(cursor, frontier, segment, changed)
    return [answers[index] for index in range(len(finishes))]


class _Finishing:
    """The finishes of one segment.

    Most finishes are final whatever the stored state: those are written without reading the seed.
    """

    def __init__(
        self,
        cursor: Cursor,
        frontier: int,
        segment: int,
        finishes: Sequence[Finish],
        owner: str,
        holders: dict[int, str],
        now: int,
    ) -> None:
        self._place = frontier, segment
        self._owner = owner
        self._holders = holders
        self._now = now
        self.counts = SegmentCounts()
        self._hashes = {finish.key: key_hash(finish.key) for finish in finishes}
        first: dict[bytes, Finish] = {}
        for finish in finishes:
            first.setdefault(self._hashes[finish.key], finish)
        self._seeds: dict[bytes, Row] = {}
        # Results of seeds that are already written.
        self._ended: dict[bytes, Finished] = {}
        self._moved: dict[bytes, tuple[int, int, int]] = {}
        for outcome in (Outcome.SUCCESS, Outcome.IGNORED):
            self._end(cursor, first, outcome)
        rest = [key for key in first if key not in self._ended]
        if rest:
            cursor.execute(_FOR_FINISH, [frontier, segment, rest])
            self._seeds |= {row[0]: row[1:] for row in cursor.fetchall()}

    def _end(self, cursor: Cursor, first: dict[bytes, Finish], outcome: Outcome) -> None:
        """Finish seeds with this outcome whose lease the owner has; ``first``: finishes by hash."""
        mine = {
            key: ended.generation
            for key, ended in first.items()
            if ended.outcome == outcome and self._holders.get(ended.generation) == self._owner
        }
        if not mine:
            return
        frontier, segment = self._place
        state, _ = after(outcome, 0, 0)
        values = {"frontier": frontier, "segment": segment, "state": state.value, "now": self._now}
        arrays = {"hashes": list(mine), "generations": list(mine.values())}
        cursor.execute(_END, values | arrays)
        ended = [row[0] for row in cursor.fetchall()]
        self._ended |= dict.fromkeys(ended, Finished("finished", state))
        # Needed if the call finishes the same seed twice.
        self._seeds |= {key: (state, 0, 0, mine[key], 0) for key in ended}
        move(self.counts, State.RUNNING, state, len(ended))

    def finish(self, one: Finish, turns: Iterator[int]) -> Finished:
        """Return the result; other changes are kept for ``write``."""
        key = self._hashes[one.key]
        ended = self._ended.pop(key, None)
        if ended is not None:
            return ended
        if key not in self._seeds:
            return Finished("unknown_key", None)
        state, retry, max_retry, generation, turn = self._seeds[key]
        holder = self._holders.get(one.generation)
        refused = refusal(
            one.generation, self._owner, state=state, generation=generation, holder=holder
        )
        if refused:
            self.counts.late += refused == "late"
            return Finished(refused, State(state))
        new, retry = after(one.outcome, retry, max_retry)
        move(self.counts, State.RUNNING, new)
        if new == State.RETRY:
            turn = next(turns)
            self.counts.retried += 1
        self._seeds[key] = new, retry, max_retry, generation, turn
        self._moved[key] = new, retry, turn
        return Finished("retried" if new == State.RETRY else "finished", new)

    def write(self, cursor: Cursor) -> None:
        write_moves(cursor, *self._place, self._moved, self._now)


def write_moves(
    cursor: Cursor, frontier: int, segment: int, moved: dict[bytes, tuple[int, int, int]], now: int
) -> None:
    """Write state, retry count and queue number of each seed, by hash; queue the pending ones."""
    if moved:
        states, retries, turns = map(list, zip(*moved.values(), strict=True))
        values = {"frontier": frontier, "segment": segment, "now": now}
        arrays = {"hashes": list(moved), "states": [int(state) for state in states]}
        cursor.execute(_MOVE, values | arrays | {"retries": retries, "turns": turns})


def _turns(cursor: Cursor, most: int) -> Iterator[int]:
    """Yield up to ``most`` queue numbers, which are allocated at the first use."""
    yield from next_turns(cursor, most)


def leave(cursor: Cursor, ended: Counter[int]) -> None:
    """Subtract finished seeds from the leases, by generation."""
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
    """Extend a lease; return its new deadline."""
    cursor.execute(
        "UPDATE grants SET deadline = greatest(deadline, %s) "
        "WHERE generation = %s AND frontier = %s AND owner = %s RETURNING deadline",
        [deadline, generation, frontier, owner],
    )
    row = cursor.fetchone()
    if row is None:
        raise WrongSeedLease(f"{owner} has no lease {generation}; it may have expired")
    new: int = row[0]
    return new


def give_back(
    database: SeedDatabase, cursor: Cursor, frontier: int, generation: int, owner: str, now: int
) -> int:
    """Return all leased seeds of a lease to pending, at their old place in the queue."""
    cursor.execute(
        "DELETE FROM grants WHERE generation = %s AND frontier = %s AND owner = %s "
        "RETURNING segments, hashes",
        [generation, frontier, owner],
    )
    row = cursor.fetchone()
    if row is None:
        raise WrongSeedLease(f"{owner} has no lease {generation}; it may have expired")
    values = {"frontier": frontier, "generation": generation, "now": now}
    cursor.execute(_GIVE_BACK, values | dict(zip(("segments", "hashes"), row, strict=True)))
    counts: dict[int, int] = dict(cursor.fetchall())
    for segment, count in counts.items():
        database.book(cursor, frontier, segment, SegmentCounts(pending=count, leased=-count))
    return sum(counts.values())


def expire(database: SeedDatabase, cursor: Cursor, now: int) -> int | None:
    """Expire some overdue leases; return the number of their seeds, None if no lease is overdue."""
    cursor.execute(_OVERDUE, [now, _EXPIRE])
    generations = [row[0] for row in cursor.fetchall()]
    if not generations:
        return None
    cursor.execute(_LEASED, [generations])
    rows = cursor.fetchall()
    turns = _turns(cursor, len(rows))
    books: dict[tuple[int, int], SegmentCounts] = {}
    moved: dict[tuple[int, int], dict[bytes, tuple[int, int, int]]] = {}
    for frontier, segment, key, retry, max_retry, turn, _ in rows:
        state, tries = after(Outcome.FAILURE, retry, max_retry)
        changed = books.setdefault((frontier, segment), SegmentCounts())
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
