"""Preview and start a change of segments, time zone or keys."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.seeds.engine.errors import InvalidFrontierSetting
from apps.seeds.errors import BadGrouping, SeedsStillLeased
from apps.seeds.models import Frontier, Operation
from apps.seeds.models.frontier import validate_parameters, validate_time_zone
from apps.seeds.services.management import manage, show_segments
from apps.seeds.services.operations import start_operation
from apps.seeds.states import OperationKind
from apps.seeds.stores.base import Segment
from apps.seeds.stores.operations import Grouping, Regrouped, RegroupSlice, now_ms

# Limit of seeds that are all examined; of a larger frontier, a sample of each segment is.
EXACT_SEEDS: Final = 200_000
MAX_WAIT_SECONDS: Final = 24 * 3600
_SLICE: Final = 2000
# Fields of the frontier that a move changes.
GROUPING_FIELDS: Final = ("segments", "time_zone", "keys", "ignored_parameters")


@dataclass(frozen=True, slots=True)
class SegmentPreview:
    """Current segment. ``targets``: number of its seeds per new segment."""

    segment: int
    pending: int
    leased: int
    ended: int
    looked_at: int = 0
    targets: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MovePreview:
    """Preview of other rules."""

    grouping: Grouping
    changes: bool
    total: int
    leased: int
    looked_at: int
    exact: bool
    segments: list[SegmentPreview]
    meeting_at_least: int
    meeting_at_most: int
    new_again_at_least: int
    new_again_at_most: int
    kept_at_least: int
    kept_at_most: int


def grouping_with(
    frontier: Frontier,
    *,
    segments: str | None = None,
    time_zone: str | None = None,
    keys: str | None = None,
    ignored_parameters: list[str] | None = None,
) -> Grouping:
    """Return the frontier's rules with the given changes.

    None leaves a rule unchanged; ignored parameters are reset when only ``keys`` is given.

    Raises:
        BadGrouping: ``fields`` names the invalid rules.
    """
    if ignored_parameters is None and keys in (None, frontier.keys):
        ignored_parameters = frontier.ignored_parameters
    grouping = Grouping(
        segments=frontier.segments if segments is None else segments,
        time_zone=frontier.time_zone if time_zone is None else time_zone,
        keys=frontier.keys if keys is None else keys,
        ignored_parameters=ignored_parameters,
    )
    _check(grouping)
    return grouping


def _check(grouping: Grouping) -> None:
    from django.core.exceptions import ValidationError

    for name, validate in (
        ("time_zone", validate_time_zone),
        ("ignored_parameters", validate_parameters),
    ):
        try:
            validate(getattr(grouping, name))
        except ValidationError as error:
            raise BadGrouping(fields={name: error.messages}) from error
    too_long = _("At most 100 characters.")
    for name in ("segments", "keys"):
        if len(getattr(grouping, name)) > 100:
            raise BadGrouping(fields={name: [too_long]})
    try:
        msgspec.structs.replace(grouping, keys="whole", ignored_parameters=None).rules()
    except InvalidFrontierSetting as error:
        raise BadGrouping(fields={"segments": [str(error)]}) from error
    try:
        grouping.rules()
    except InvalidFrontierSetting as error:
        raise BadGrouping(fields={"keys": [str(error)]}) from error


def preview(
    frontier: Frontier,
    *,
    segments: str | None = None,
    time_zone: str | None = None,
    keys: str | None = None,
    ignored_parameters: list[str] | None = None,
    exact_seeds: int = EXACT_SEEDS,
) -> MovePreview:
    """Preview what ``change`` with the same arguments would do.

    Exact up to ``exact_seeds`` seeds; of a larger frontier, a sample of this size is examined.

    Raises:
        BadGrouping, SeedServiceAway, CallRefused
    """
    grouping = grouping_with(
        frontier,
        segments=segments,
        time_zone=time_zone,
        keys=keys,
        ignored_parameters=ignored_parameters,
    )
    segments_now = show_segments(frontier)
    sizes = {
        segment.segment: segment.books.added - segment.books.forgotten for segment in segments_now
    }
    total = sum(sizes.values())
    look = _PreviewCounts(frontier, grouping)
    share = 1.0 if total <= exact_seeds else exact_seeds / total
    previews = [look.at(segment, round(sizes[segment.segment] * share)) for segment in segments_now]
    exact = look.looked_at >= total
    rest = max(0, total - look.looked_at)
    keys_stay = (grouping.keys, grouping.ignored_parameters) == (
        frontier.keys,
        frontier.ignored_parameters,
    )
    # Seeds of one segment collide only if the new rules merge their keys.
    first = (max(sizes.values(), default=0) if keys_stay else 1) if total else 0
    met = look.met
    return MovePreview(
        grouping=grouping,
        changes=grouping_with(frontier) != grouping,
        total=total,
        leased=sum(segment.leased for segment in previews),
        looked_at=look.looked_at,
        exact=exact,
        segments=previews,
        meeting_at_least=met,
        meeting_at_most=met if exact else max(met, total - first),
        new_again_at_least=look.new_again() if exact else 0,
        new_again_at_most=look.new_again() if exact else look.displaced + rest,
        kept_at_least=look.kept,
        kept_at_most=look.kept + rest,
    )


class _PreviewCounts:
    """Accumulated counts of a preview."""

    def __init__(self, frontier: Frontier, grouping: Grouping) -> None:
        self._frontier = frontier
        self._grouping = grouping
        self._old: set[tuple[int, bytes]] = set()
        self._new: set[tuple[int, bytes]] = set()
        self.looked_at = self.kept = self.displaced = 0

    @property
    def met(self) -> int:
        """Return the number of seeds whose new place is taken by another seed."""
        return self.looked_at - len(self._new)

    def new_again(self) -> int:
        """Return the number of new places that no old seed occupies."""
        return len(self._new - self._old)

    def at(self, segment: Segment, most: int) -> SegmentPreview:
        """Examine up to ``most`` seeds of a segment."""
        targets: Counter[int] = Counter()
        looked_at = 0
        after: bytes | None = b""
        while after is not None and looked_at < most:
            limit = min(_SLICE, most - looked_at)
            slice_of: Regrouped = manage(
                self._frontier, RegroupSlice(segment.segment, self._grouping, after, limit)
            )
            for target, new_hash, old_hash in slice_of.places:
                old, new = (segment.segment, old_hash), (target, new_hash)
                self._old.add(old)
                self._new.add(new)
                self.displaced += old != new
                targets[target] += 1
            looked_at += len(slice_of.places)
            self.kept += slice_of.kept
            after = slice_of.after
        self.looked_at += looked_at
        counts = segment.books
        return SegmentPreview(
            segment=segment.segment,
            pending=counts.pending,
            leased=counts.leased,
            ended=counts.succeeded + counts.failed + counts.ignored,
            looked_at=looked_at,
            targets=dict(sorted(targets.items())),
        )


def change(
    frontier: Frontier,
    *,
    segments: str | None = None,
    time_zone: str | None = None,
    keys: str | None = None,
    ignored_parameters: list[str] | None = None,
    wait_seconds: float = 0.0,
    requested_by: str = "",
    actor: User | None = None,
) -> Operation:
    """Start a move of all seeds to their place by other rules, which take effect at its end.

    Meanwhile the frontier is frozen: nothing is added or leased, and callers wait. Leased seeds are
    waited for, up to ``wait_seconds``; then the move is abandoned without changes. Of seeds with
    the same new key, the one of the earlier segment is kept with its state.

    Raises:
        BadGrouping
        SeedsStillLeased: and ``wait_seconds`` is 0.
        OperationRunning: another operation works on the seeds.
        SeedServiceAway, CallRefused
    """
    grouping = grouping_with(
        frontier,
        segments=segments,
        time_zone=time_zone,
        keys=keys,
        ignored_parameters=ignored_parameters,
    )
    leased = sum(segment.books.leased for segment in show_segments(frontier))
    if leased and wait_seconds <= 0:
        text = _("%(count)d seeds are leased. Wait for their runs to end, or set a waiting time.")
        raise SeedsStillLeased(text % {"count": leased})
    arguments: dict[str, Any] = {
        "grouping": msgspec.structs.asdict(grouping),
        "wait_until": now_ms() + int(1000 * min(max(0.0, wait_seconds), MAX_WAIT_SECONDS)),
    }
    return start_operation(
        frontier, OperationKind.MOVE, arguments, requested_by=requested_by, actor=actor
    )
