"""The port of a log store, and what goes in and out of it.

A line is known by its stream (``run:7``, ``build:3``), the number of the execution in the stream
(``boot_number``, 1 for the first whose lines came) and its ``seq`` in that execution. That is its
place in the log, its permalink (``2.1234``) and its cursor; it never changes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from apps.joblogs.engine.lines import LogLine

# How long a reader waits for missing lines before a gap, in seconds.
GAP_SECONDS: Final = 5.0
MOST_LINES: Final = 1000
_REF: Final = re.compile(r"([1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,18})")


class LogStoreUnavailable(Exception):
    """The store does not answer, or refuses for now: nothing was written that is not repeatable.

    The text holds no password.
    """


class BadQuery(ValueError):
    """A question that no store can answer, such as a cursor that none has given out."""


class Ref(NamedTuple):
    """The place of a line in its stream; places are compared as they follow each other."""

    boot_number: int
    seq: int

    def __str__(self) -> str:
        return f"{self.boot_number}.{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Ref:
        """``2.1234``. Raises ``BadQuery``."""
        found = _REF.fullmatch(text)
        if found is None or int(found[2]) >= 2**63:
            raise BadQuery(f"{text[:40]!r} is no place in a log")
        return cls(int(found[1]), int(found[2]))


BEGINNING: Final = Ref(1, 0)


@dataclass(frozen=True, slots=True)
class LineBatch:
    """Lines of one execution, from one or several messages.

    ``job`` is 0 for a build. ``dropped``: lines that the sender has discarded since it started.
    """

    project: int
    job: int
    stream: str
    boot: str
    dropped: int
    lines: Sequence[LogLine]


@dataclass(frozen=True, slots=True)
class StoredLine:
    """A line as it comes out."""

    project: int
    job: int
    stream: str
    boot: str
    ref: Ref
    at: datetime
    level: str
    source: str
    text: str
    # Fingerprint of the error group, see engine.fingerprints; "" for other lines.
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Search:
    """Conditions of a search, combined by AND.

    ``projects``: None searches all; an empty set finds nothing. ``text``: words that must all occur
    (case-insensitive, phrases in double quotes, Chinese of any length, see ``engine.words``); text
    without any word is a ``BadQuery``. ``contains``: exact substring, case-insensitive; slow, for
    one stream. ``since`` and ``until``: of ``at``, the end excluded.
    """

    projects: Collection[int] | None
    stream: str = ""
    job: int | None = None
    levels: Collection[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    text: str = ""
    contains: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class FoundLines:
    """Lines, and the cursor for those behind them; "" when there are none."""

    lines: list[StoredLine]
    next: str = ""


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """Errors of one fingerprint in what was asked for, the newest group first."""

    project: int
    job: int
    fingerprint: str
    count: int
    streams: int
    first_at: datetime
    last_at: datetime
    # One of them, to show.
    sample: StoredLine


@dataclass(frozen=True, slots=True)
class StreamState:
    """State of a stream, all executions together."""

    stream: str
    project: int
    job: int
    lines: int
    # Size of the texts, without indexes.
    bytes: int
    dropped: int
    first_at: datetime
    last_at: datetime
    # Lines once stored and deleted since by retention.
    forgotten: int = 0
    # Boot number -> (first seq, last seq) of spans that never came, oldest first, at most 100.
    missing: dict[int, list[tuple[int, int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Usage:
    """How much is kept of a job (0: builds) in all."""

    project: int
    job: int
    lines: int
    bytes: int
    # No line that is kept is older; right after a deletion the oldest may be younger.
    oldest_at: datetime


class LogStore(Protocol):
    """Thread-safe. Everything raises ``LogStoreUnavailable`` when the engine is away."""

    def setup(self) -> None:
        """Make tables, indexes or templates; repeatable, also by several processes at once."""

    def close(self) -> None:
        """Let go of connections."""

    def check(self) -> str:
        """Ask the engine for its name and version, in one line."""

    def write(self, batches: Sequence[LineBatch], *, now: datetime) -> int:
        """Store each line once, whatever comes again, late or out of order; how many were new.

        All or nothing where the engine can do that; else a repetition completes it. ``dropped`` of
        an execution only rises. Searchable when this returns (SQL) or within 1 s.

        Raises:
            ValueError: a line no store can hold (a level that does not exist, a seq that is not
                from 1 to 2**63 - 1, half a surrogate); the caller then tries batch by batch.
        """

    def page(
        self,
        stream: str,
        *,
        after: Ref | None = None,
        before: Ref | None = None,
        limit: int,
        levels: Collection[str] = (),
        contains: str = "",
    ) -> list[StoredLine]:
        """Return up to ``limit`` lines in the order of their places.

        ``after`` (``BEGINNING`` for all): the lines that follow. Stops before a gap until the
        missing line arrives or ``GAP_SECONDS`` have passed, and as long before the first line of a
        new execution, so that a reader with a cursor misses no line. ``before``: the lines right
        before. Neither: the last.
        """

    def stream_state(self, stream: str) -> StreamState | None:
        """Return the state of a stream; None when nothing ever arrived."""

    def find(self, stream: str, ref: Ref) -> StoredLine | None:
        """The line at this place."""

    def first(self, stream: str, levels: Collection[str]) -> StoredLine | None:
        """The first line of these levels: the first error of a run."""

    def search(self, search: Search, *, cursor: str = "", limit: int) -> FoundLines:
        """The newest first (by ``at``), from ``cursor`` on. Raises ``BadQuery``."""

    def groups(self, search: Search, *, limit: int) -> list[ErrorCount]:
        """Errors put together by project, job and fingerprint, those seen last first."""

    def delete(
        self,
        *,
        project: int,
        job: int,
        before: datetime,
        levels: Collection[str] | None = None,
        limit: int,
    ) -> int:
        """Delete lines older than ``before`` (of these levels), at most about ``limit``; how many.

        More where a whole day can go at once. Less than ``limit``: nothing older is left. A deleted
        line does not come back by a repetition of its message.
        """

    def delete_oldest(self, *, project: int, job: int, keep_bytes: int, limit: int) -> int:
        """Delete the oldest lines of a job until it holds no more than that; how many."""

    def usages(self) -> list[Usage]:
        """Return the stored amount of each job. Cheap: maintained by writes and deletions."""

    def prune(self, *, now: datetime) -> None:
        """Drop what holds no lines any more: partitions, indexes, executions silent for long."""
