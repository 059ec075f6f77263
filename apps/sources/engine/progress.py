"""Progress and counts of an import, and its batches.

Records are numbered from 0, the oldest, to ``total - 1``. An import goes from the newest batch down
to the one that begins at ``end``, where the last complete import began.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any, Final

import msgspec

MOST_GAPS: Final = 100


class EndReason(enum.StrEnum):
    """Why an import ended; ``states.Reason`` has the texts."""

    END = "end"
    EXPIRED = "expired"
    MANUAL = "manual"
    NOTHING = "nothing"
    SHRUNK = "shrunk"
    SWITCHED_OFF = "switched_off"
    CHANGED = "changed"
    ERROR = "error"
    SHUTDOWN = "shutdown"
    LOST = "lost"


# After these reasons the source was read completely: the marker moves.
COMPLETE: Final = frozenset({EndReason.END, EndReason.EXPIRED, EndReason.NOTHING})


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """Result of complete imports, see ``models.SourceState``; ``start`` None: there was none."""

    start: int | None = None
    total: int | None = None
    overlap: list[str] = []


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where an import resumes: records from ``until`` on are published.

    The next batch is ``next`` to ``until``, the latter excluded. Records below ``covered`` were
    read by earlier imports. ``top``: message ids of the first batch, the overlap of the next
    import. ``expired``: consecutive batches without a valid record. ``unmarked``: in the mode
    not_exported, ids of published messages that are not yet marked as exported at the API.
    """

    start: int = 0
    next: int = 0
    until: int = 0
    end: int = 0
    covered: int = 0
    total: int = 0
    size: int = 100
    first: bool = False
    expired: int = 0
    top: list[str] = []
    unmarked: list[str] = []


class Gap(msgspec.Struct, frozen=True):
    """Records ``from_`` to ``to`` (both included) were not read; ``why`` is a code."""

    from_: int = msgspec.field(name="from")
    to: int
    why: str


class HarvestCounts(msgspec.Struct, kw_only=True):
    """Records read and their outcomes; each record has one of the middle four."""

    batches: int = 0
    read: int = 0
    published: int = 0
    filtered: int = 0
    re_read: int = 0
    refused: int = 0
    bad_dates: int = 0

    def add(self, other: HarvestCounts) -> None:
        """Add the counts of ``other``."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def balanced(self) -> bool:
        """Whether every record has one outcome."""
        return self.read == self.published + self.filtered + self.re_read + self.refused


class HarvestPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Range of records to read. ``checkpoint`` None: nothing to read, ``why`` says the reason."""

    checkpoint: Checkpoint | None
    why: EndReason | None = None
    shrunk: bool = False


def plan(marker: Marker, total: int, size: int, *, reset_when_shrunk: bool) -> HarvestPlan:
    """Compute the offsets of a new import.

    A source with fewer records than before was cleared: its marker is void, since otherwise every
    further import would read nothing.
    """
    least = marker.start if marker.total is None else marker.total
    shrunk = least is not None and total < least
    if shrunk and not reset_when_shrunk:
        return HarvestPlan(checkpoint=None, why=EndReason.SHRUNK, shrunk=True)
    if total == 0:
        return HarvestPlan(checkpoint=None, why=EndReason.NOTHING, shrunk=shrunk)
    first = marker.start is None or shrunk
    end, covered = 0, 0
    if marker.start is not None and not first:
        end = marker.start
        # Progress imported from the seed has no total: by its rule it was one batch more.
        covered = marker.start + size if marker.total is None else marker.total
    start = max(total - size, end, 0)
    checkpoint = Checkpoint(
        start=start,
        next=start,
        until=total,
        end=end,
        covered=covered,
        total=total,
        size=size,
        first=first,
    )
    return HarvestPlan(checkpoint=checkpoint, shrunk=shrunk)


def windows(at: Checkpoint) -> Iterator[tuple[int, int]]:
    """Yield (offset, size) of each batch from the checkpoint on."""
    while at.next >= 0:
        if at.until > at.next:
            yield at.next, at.until - at.next
        at = advanced(at)


def measure(at: Checkpoint) -> tuple[int, int]:
    """Return (batches, records) of ``windows`` without iterating."""
    if at.next < 0:
        return 0, 0
    steps = max(0, at.next - at.end) // at.size
    lowest = at.next - steps * at.size
    batches = steps + (at.until > at.next)
    if lowest > max(at.end, at.covered):
        return batches + 1, at.until - at.end
    return batches, at.until - lowest


def advanced(at: Checkpoint) -> Checkpoint:
    """Return the checkpoint after the batch at ``at.next``; ``next`` is -1 after the last one.

    Batches go down from the newest offset to ``end``. Where a whole batch would begin below it,
    offsets above ``covered``, which no import has read, get one smaller batch that begins at
    ``end``; without such offsets the import is over.
    """
    offset = at.next
    below = offset - at.size
    if below < at.end:
        below = at.end if offset > max(at.end, at.covered) else -1
    return msgspec.structs.replace(at, next=below, until=offset)


def untouched_by_seed_rule(marker: int, size: int) -> list[Gap]:
    """Offsets that the seed's rule has never read: 0 to marker % size."""
    rest = marker % size
    return [Gap(0, rest - 1, "seed_rule")] if rest else []


def add_gap(gaps: list[dict[str, Any]], gap: Gap) -> list[dict[str, Any]]:
    """Add a gap, merged with an adjacent gap of the same kind; keep the newest ``MOST_GAPS``."""
    merged = list(gaps)
    for index, stored in enumerate(merged):
        if (
            stored["why"] == gap.why
            and stored["from"] <= gap.to + 1
            and gap.from_ <= stored["to"] + 1
        ):
            low, high = min(stored["from"], gap.from_), max(stored["to"], gap.to)
            merged[index] = {"from": low, "to": high, "why": gap.why}
            return merged
    merged.append({"from": gap.from_, "to": gap.to, "why": gap.why})
    return merged[-MOST_GAPS:]
