"""Interface of a log store, and its input and output types.

A line is identified by its stream (``run:7``, ``build:3``), the number of the execution in the
stream (``boot_number``, 1 for the first whose lines arrived) and its ``seq`` in that execution.
This is its place in the log, its permalink (``2.1234``) and its cursor; it never changes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from apps.joblogs.engine.lines import LogLine

# Seconds for which a reader waits at a gap for missing lines.
GAP_SECONDS: Final = 5.0
MOST_LINES: Final = 1000
_REF: Final = re.compile(r"([1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,18})")


class LogStoreUnavailable(Exception):
    """The store is unavailable or temporarily rejects calls; the call can be repeated safely.

    The text holds no password.
    """


class BadQuery(ValueError):
    """The query is invalid, such as an unknown cursor."""


class Ref(NamedTuple):
    """Position of a line in the log of a run: number of the execution and of the line; sortable."""

    boot_number: int
    seq: int

    def __str__(self) -> str:
        return f"{self.boot_number}.{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Ref:
        """Parse ``2.1234``: line 1234 of the second execution. Raises ``BadQuery``."""
        match = _REF.fullmatch(text)
        if match is None or int(match[2]) >= 2**63:
            raise BadQuery(f"{text[:40]!r} is no place in a log")
        return cls(int(match[1]), int(match[2]))


BEGINNING: Final = Ref(1, 0)


@dataclass(frozen=True, slots=True)
class LineBatch:
    """Lines of one execution, from one or several messages.

    ``job`` is 0 for a build. ``dropped``: total of lines discarded by the sender since its start.
    """

    project: int
    job: int
    stream: str
    boot: str
    dropped: int
    lines: Sequence[LogLine]


@dataclass(frozen=True, slots=True)
class StoredLine:
    """Line with its owner and place."""

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
    one stream only. ``since`` (included) and ``until`` (excluded) limit ``at``.
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
    """Matching lines, and the cursor of the next ones; "" at the end."""

    lines: list[StoredLine]
    next: str = ""


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """Number of errors with one fingerprint."""

    project: int
    job: int
    fingerprint: str
    count: int
    streams: int
    first_at: datetime
    last_at: datetime
    # Any one of the lines, as an example.
    sample: StoredLine


@dataclass(frozen=True, slots=True)
class StreamState:
    """State of a stream, over all executions."""

    stream: str
    project: int
    job: int
    lines: int
    # Bytes of text, without indexes.
    bytes: int
    dropped: int
    first_at: datetime
    last_at: datetime
    # Lines deleted by retention.
    forgotten: int = 0
    # Boot number -> ranges (first seq, last seq) that never arrived, oldest first, at most 100.
    missing: dict[int, list[tuple[int, int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Usage:
    """Stored amount of a job (0: builds)."""

    project: int
    job: int
    lines: int
    bytes: int
    # Lower bound of the times of stored lines; exact except right after a deletion.
    oldest_at: datetime


class LogStore(Protocol):
    """Store of log lines. Thread-safe. All methods raise ``LogStoreUnavailable`` during an
    outage.
    """

    def setup(self) -> None:
        """Create tables, indexes or templates; idempotent, also when called by several processes at
        once.
        """

    def close(self) -> None:
        """Close the connections."""

    def check(self) -> str:
        """Query the engine; return its name and version in one line."""

    def write(self, batches: Sequence[LineBatch], *, now: datetime) -> int:
        """Store each line once, even if it is repeated, late or out of order; return how many were
        new.

        Atomic if the engine supports it; otherwise a repetition completes the write. ``dropped`` of
        an execution never decreases. Searchable when this returns (SQL) or within 1 s.

        Raises:
            ValueError: a line that no store can hold (an unknown level, a seq outside 1 to 2**63 -
                1, a lone surrogate); the caller then tries batch by batch.
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
        """Return the state of a stream; None if no line ever arrived."""

    def find(self, stream: str, ref: Ref) -> StoredLine | None:
        """Return the line at this place; None if there is none."""

    def first(self, stream: str, levels: Collection[str]) -> StoredLine | None:
        """Return the first line with one of these levels."""

    def search(self, search: Search, *, cursor: str = "", limit: int) -> FoundLines:
        """Return matching lines, the newest first by ``at``, from ``cursor`` on. Raises
        ``BadQuery``.
        """

    def groups(self, search: Search, *, limit: int) -> list[ErrorCount]:
        """Count errors by project, job and fingerprint, the latest group first."""

    def delete(
        self,
        *,
        project: int,
        job: int,
        before: datetime,
        levels: Collection[str] | None = None,
        limit: int,
    ) -> int:
        """Delete lines (of these levels) older than ``before``, about ``limit`` at most; return how
        many.

        May exceed ``limit`` if a whole day can be dropped. Less than ``limit`` means that nothing
        older is left. A deleted line does not come back when its message is redelivered.
        """

    def delete_oldest(self, *, project: int, job: int, keep_bytes: int, limit: int) -> int:
        """Delete the oldest lines of a job until ``keep_bytes`` are left; return how many."""

    def usages(self) -> list[Usage]:
        """Return the stored amount of each job. Cheap: maintained by writes and deletions."""

    def prune(self, *, now: datetime) -> None:
        """Drop empty partitions and indexes, and records of executions that were silent for
        long.
        """
