"""A seed store in plain Python: what both adapters must answer, with nothing left out."""

from __future__ import annotations

from dataclasses import dataclass, field

from apps.seeds.engine.keys import key_hash
from apps.seeds.engine.seeds import FINAL, PENDING, Outcome, ResolvedSeed, State
from apps.seeds.stores.base import Finish, Finished, Known, Regroup, ReopenedCount, SegmentCounts


@dataclass
class Entry:
    """A seed."""

    seed: ResolvedSeed
    added_at: int
    due: int
    turn: int
    state: State = State.INIT
    retry: int = 0
    generation: int = 0


@dataclass
class Model:
    """Seeds of one frontier: by segment and key."""

    entries: dict[tuple[int, str], Entry] = field(default_factory=dict)
    books: dict[int, SegmentCounts] = field(default_factory=dict)
    leases: dict[int, tuple[str, int]] = field(default_factory=dict)
    turn: int = 0

    def _next_turn(self) -> int:
        self.turn += 1
        return self.turn

    def _members(self, generation: int) -> list[Entry]:
        return [
            one
            for one in self.entries.values()
            if one.state == State.RUNNING and one.generation == generation
        ]

    def _drop_empty_leases(self) -> None:
        for generation in list(self.leases):
            if not self._members(generation):
                del self.leases[generation]

    def add(self, seeds: list[ResolvedSeed], now: int) -> list[tuple[bool, int, State]]:
        answers = []
        for seed in seeds:
            books = self.books.setdefault(seed.segment, SegmentCounts())
            known = self.entries.get((seed.segment, seed.key))
            if known is None:
                self.entries[seed.segment, seed.key] = Entry(seed, now, seed.due, self._next_turn())
                books.added += 1
                answers.append((True, now, State.INIT))
            else:
                books.duplicates += 1
                answers.append((False, known.added_at, known.state))
        return answers

    def lease(self, generation: int, owner: str, limit: int, deadline: int, now: int) -> list[str]:
        due = [one for one in self.entries.values() if one.state in PENDING and one.due <= now]
        due.sort(key=lambda one: (one.seed.segment, one.due, one.turn))
        for one in due[:limit]:
            one.state, one.generation = State.RUNNING, generation
        if due:
            self.leases[generation] = owner, deadline
        return [one.seed.key for one in due[:limit]]

    def finish(self, finishes: list[Finish], owner: str) -> list[Finished]:
        answers = [self._finish(one, owner) for one in finishes]
        self._drop_empty_leases()
        return answers

    def _finish(self, finish: Finish, owner: str) -> Finished:
        one = self.entries.get((finish.segment, finish.key))
        if one is None:
            return Finished("unknown_key", None)
        if finish.generation < 1 or finish.generation > one.generation:
            return Finished("wrong_lease", one.state)
        stale = finish.generation < one.generation
        if stale or one.state in PENDING:
            self.books[finish.segment].late += 1
            return Finished("late", one.state)
        if one.state in FINAL:
            return Finished("repeated", one.state)
        if self.leases[finish.generation][0] != owner:
            return Finished("wrong_lease", one.state)
        return self._end(one, finish.outcome)

    def _end(self, one: Entry, outcome: Outcome) -> Finished:
        if outcome in (Outcome.SUCCESS, Outcome.IGNORED):
            one.state = State.SUCCEEDED if outcome == Outcome.SUCCESS else State.IGNORED
            return Finished("finished", one.state)
        one.retry += 1
        if outcome == Outcome.GIVEN_UP or one.retry >= one.seed.max_retry:
            one.state = State.FAILED
            return Finished("finished", one.state)
        one.state, one.turn = State.RETRY, self._next_turn()
        self.books[one.seed.segment].retried += 1
        return Finished("retried", one.state)

    def give_back(self, generation: int) -> int:
        members = self._members(generation)
        for one in members:
            one.state = State.RETRY if one.retry else State.INIT
        self._drop_empty_leases()
        return len(members)

    def expire(self, now: int) -> int:
        expired = 0
        for generation, (_, deadline) in sorted(self.leases.items()):
            if deadline <= now:
                in_turn = sorted(
                    self._members(generation), key=lambda one: (one.seed.segment, one.due, one.turn)
                )
                for one in in_turn:
                    self._end(one, Outcome.FAILURE)
                    self.books[one.seed.segment].expired += 1
                    expired += 1
        self._drop_empty_leases()
        return expired

    def reopen(self, one: Entry) -> None:
        one.state, one.retry, one.turn = State.INIT, 0, self._next_turn()

    def forget(self, one: Entry) -> None:
        del self.entries[one.seed.segment, one.seed.key]
        self.books[one.seed.segment].forgotten += 1

    def reopen_failed(self, source: int, target: int, now: int) -> ReopenedCount:
        failed = [
            one
            for one in self.entries.values()
            if one.seed.segment == source and one.state == State.FAILED
        ]
        failed.sort(key=lambda one: key_hash(one.seed.key))
        if source == target:
            for one in failed:
                self.reopen(one)
            return ReopenedCount(len(failed), 0)
        reopened = 0
        for one in failed:
            books = self.books.setdefault(target, SegmentCounts())
            if (target, one.seed.key) in self.entries:
                books.duplicates += 1
                continue
            seed = ResolvedSeed(
                target,
                one.seed.key,
                one.seed.hash,
                target or 1,
                one.seed.max_retry,
                one.seed.data,
                one.seed.ext,
            )
            self.entries[target, seed.key] = Entry(seed, now, seed.due, self._next_turn())
            books.added += 1
            reopened += 1
        return ReopenedCount(reopened, len(failed) - reopened)

    def restore(self, seeds: list[Known]) -> list[tuple[bool, int, State]]:
        answers = []
        for one in seeds:
            books = self.books.setdefault(one.segment, SegmentCounts())
            known = self.entries.get((one.segment, one.key))
            if known is not None:
                books.duplicates += 1
                answers.append((False, known.added_at, known.state))
                continue
            state = one.state if one.state in FINAL else State.RETRY if one.retry else State.INIT
            seed = ResolvedSeed(
                one.segment, one.key, key_hash(one.key), one.due, one.max_retry, one.data
            )
            self.entries[one.segment, one.key] = Entry(
                seed, one.added_at, one.due, self._next_turn(), state, one.retry
            )
            books.added += 1
            answers.append((True, one.added_at, state))
        return answers

    def move(self, regroup: Regroup) -> None:
        """All seeds go to where ``regroup`` says; of those that meet the first one stays."""
        entries: dict[tuple[int, str], Entry] = {}
        books: dict[int, SegmentCounts] = {}
        for (segment, key), one in sorted(
            self.entries.items(), key=lambda item: (item[0][0], key_hash(item[0][1]))
        ):
            new = regroup(segment, key, one.seed.data, one.due)
            counted = books.setdefault(new.segment, SegmentCounts())
            if (new.segment, new.key) in entries:
                counted.duplicates += 1
                continue
            one.seed = ResolvedSeed(
                new.segment,
                new.key,
                key_hash(new.key),
                new.due,
                one.seed.max_retry,
                one.seed.data,
                one.seed.ext,
            )
            one.due = new.due
            entries[new.segment, new.key] = one
            counted.added += 1
        for segment, old in self.books.items():
            rest = old.plus(SegmentCounts())
            rest.added = rest.forgotten
            if rest != SegmentCounts():
                home = regroup(segment, "", "home", segment).segment
                books[home] = books.get(home, SegmentCounts()).plus(rest)
        self.entries, self.books = entries, books

    def drop(self, segment: int) -> None:
        for place in [place for place in self.entries if place[0] == segment]:
            del self.entries[place]
        del self.books[segment]
        self._drop_empty_leases()

    def next_due(self, now: int) -> int | None:
        waiting = [
            one.due for one in self.entries.values() if one.state in PENDING and one.due > now
        ]
        return min(waiting, default=None)

    def books_of(self, segment: int) -> SegmentCounts:
        """With what can be counted counted."""
        books = self.books[segment].plus(SegmentCounts())
        for one in self.entries.values():
            if one.seed.segment == segment:
                books.move(None, one.state)
        return books
