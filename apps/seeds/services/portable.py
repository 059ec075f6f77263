"""Export and import of seeds as JSON lines, including their states."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.seeds.engine.seeds import LAST_TIME, MAX_RETRY_LIMIT, TIMELESS_DUE, URGENT_DUE, State
from apps.seeds.models import Frontier, Operation
from apps.seeds.services.management import manage, show_segments
from apps.seeds.services.operations import beat_operation, begin_import, end_operation
from apps.seeds.states import OperationState
from apps.seeds.stores.base import Known, SeedPage
from apps.seeds.stores.operations import ReadSegment, Restore, now_ms
from yardkit.nesting import check_json
from yardkit.protocol import SeedAnswer
from yardkit.protocol.seeds import GRAB

# Limits of one call: seeds, and bytes of their lines.
BATCH: Final = 2048
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
# Longest possible line: data, key and ext at their limits, with every character escaped.
MAX_LINE_BYTES: Final = 1024 * 1024
# Rejected lines reported one by one.
MOST_TOLD: Final = 1000
_STATES: Final = {state.name.lower(): state for state in State}


Moment = int | str


class ExportLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Seed as a JSON line, here and over REST; only ``data`` is required.

    Times are ISO 8601 or ms since 1970. ``segment`` and ``key`` are informative: an import computes
    them by its own rules, with ``due_at`` (or ``active_at``) as the time of the seed.
    """

    data: str
    state: str | None = None
    segment: Moment | None = None
    key: str | None = None
    retry: int = 0
    max_retry: int | None = None
    added_at: Moment | None = None
    changed_at: Moment | None = None
    due_at: Moment | None = None
    active_at: Moment | None = None
    urgent: bool = False
    ext: dict[str, Any] | None = None
    # Written by exports over REST, ignored by imports.
    begins_at: Moment | None = None
    generation: int = 0
    owner: str | None = None
    deadline: Moment | None = None


class BadLine(ValueError):
    """The line is not a valid seed; the text says where and why."""


@dataclass(slots=True)
class SeedImport:
    """Result of an import. ``refused``: number, code and text of the first ``MOST_TOLD``."""

    lines: int = 0
    new: int = 0
    duplicates: int = 0
    refused_count: int = 0
    refused: list[tuple[int, str, str]] = field(default_factory=list)
    cancelled: bool = False

    def refuse(self, number: int, code: str, text: str) -> None:
        """Count a rejected line and keep its reason."""
        self.refused_count += 1
        if len(self.refused) < MOST_TOLD:
            self.refused.append((number, code, text))


# Called after each batch.
OnProgress = Callable[[SeedImport], None]
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(ExportLine)


def export_seeds(frontier: Frontier, segments: Sequence[int] | None = None) -> Iterator[Known]:
    """Yield all seeds, or those of some segments, ordered by segment and hash.

    Pages are read one by one, so changes during the export may or may not be included. Raises
    ``SeedServiceAway`` or ``CallRefused``.
    """
    existing = [segment_info.segment for segment_info in show_segments(frontier)]
    for segment in existing if segments is None else segments:
        after: bytes | None = b""
        while after is not None:
            page: SeedPage = manage(frontier, ReadSegment(segment, after, BATCH))
            yield from page.seeds
            after = page.after


def write_line(seed: Known) -> bytes:
    """Return the line without a line break. A leased seed is exported as pending."""
    state = seed.state
    if state == State.RUNNING:
        state = State.RETRY if seed.retry else State.INIT
    ext = {name: value for name, value in (seed.ext or {}).items() if name != GRAB}
    line = ExportLine(
        data=seed.data,
        state=state.name.lower(),
        segment=seed.segment,
        key=None if seed.key == seed.data else seed.key,
        retry=seed.retry,
        max_retry=seed.max_retry,
        added_at=_iso(seed.added_at),
        changed_at=_iso(seed.changed_at),
        due_at=_iso(seed.due) if seed.due > TIMELESS_DUE else None,
        urgent=seed.due == URGENT_DUE,
        ext=ext or None,
    )
    return _encoder.encode(line)


def read_line(line: bytes, *, max_retry: int, now: int) -> Known:
    """Parse a line. ``max_retry``, ``now``: defaults for missing fields. Raises ``BadLine``."""
    if len(line) > MAX_LINE_BYTES:
        raise BadLine(_("the line has more than %(most)d bytes") % {"most": MAX_LINE_BYTES})
    try:
        check_json(line)
        parsed = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadLine(str(error)) from None
    named = parsed.state or "init"
    state = _STATES.get(named)
    if state is None:
        text = _("unknown state %(state)r; expected one of: %(names)s")
        raise BadLine(text % {"state": named[:50], "names": ", ".join(_STATES)})
    for name, value in (("retry", parsed.retry), ("max_retry", parsed.max_retry)):
        if value is not None and not 0 <= value <= MAX_RETRY_LIMIT:
            text = _("%(name)s %(value)d is outside 0 to %(most)d")
            raise BadLine(text % {"name": name, "value": value, "most": MAX_RETRY_LIMIT})
    due = _ms("due_at", parsed.active_at if parsed.due_at is None else parsed.due_at)
    if due is None:
        due = URGENT_DUE if parsed.urgent else TIMELESS_DUE
    added_at = _ms("added_at", parsed.added_at)
    changed_at = _ms("changed_at", parsed.changed_at)
    added_at = now if added_at is None else added_at
    return Known(
        segment=0,
        key="",
        data=parsed.data,
        state=state,
        retry=parsed.retry,
        max_retry=max_retry if parsed.max_retry is None else parsed.max_retry,
        added_at=added_at,
        changed_at=added_at if changed_at is None else changed_at,
        due=due,
        generation=0,
        ext=parsed.ext,
    )


def _iso(ms: int) -> str:
    moment = datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ms(name: str, value: Moment | None) -> int | None:
    """Return a time in ms. Raises ``BadLine``."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise BadLine(
                _("%(name)s is not a time: %(value)s") % {"name": name, "value": value[:50]}
            ) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        value = math.floor(moment.timestamp() * 1000)
    if value is not None and not 0 <= value < LAST_TIME:
        raise BadLine(_("%(name)s is not between 1970 and 2100") % {"name": name})
    return value


def import_seeds(
    frontier: Frontier,
    lines: Iterable[bytes],
    *,
    on_progress: OnProgress | None = None,
    source: str = "",
    requested_by: str = "",
    actor: User | None = None,
) -> SeedImport:
    """Import lines written by ``write_line``; key and segment are computed by this frontier's
    rules.

    Known seeds count as duplicates and stay unchanged, so an import can be repeated. A rejected
    line does not affect the others. Empty lines are skipped. ``source``: for the audit trail.

    Raises:
        OperationRunning: the frontier is being moved.
        SeedServiceAway, CallRefused: earlier lines may have been imported.
    """
    operation = begin_import(frontier, {"source": source}, requested_by, actor)
    done = SeedImport()
    try:
        for batch in _batches(lines, frontier.max_retry, done):
            _restore(frontier, batch, done)
            if not _save_progress(operation, done, on_progress):
                done.cancelled = True
                return done
    except BaseException as error:
        # Catch everything: the row must not stay in state running.
        text = str(error) or type(error).__name__
        end_operation(operation, OperationState.FAILED, text)
        raise
    _save_progress(operation, done, on_progress)
    end_operation(operation, OperationState.DONE)
    return done


def _batches(
    lines: Iterable[bytes], max_retry: int, done: SeedImport
) -> Iterator[list[tuple[int, Known]]]:
    batch: list[tuple[int, Known]] = []
    size = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        done.lines += 1
        try:
            seed = read_line(line, max_retry=max_retry, now=now_ms())
        except BadLine as error:
            done.refuse(number, "bad_line", str(error))
            continue
        batch.append((number, seed))
        size += len(line)
        if len(batch) == BATCH or size > MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _restore(frontier: Frontier, batch: Sequence[tuple[int, Known]], done: SeedImport) -> None:
    answers: list[SeedAnswer] = manage(frontier, Restore([seed for _number, seed in batch]))
    for (number, _seed), answer in zip(batch, answers, strict=True):
        if answer.code == "new":
            done.new += 1
        elif answer.code == "duplicate":
            done.duplicates += 1
        else:
            done.refuse(number, answer.code, answer.text)


def _save_progress(operation: Operation, done: SeedImport, on_progress: OnProgress | None) -> bool:
    """Record the progress; False if the operation was cancelled."""
    operation.done = done.lines
    operation.result = {
        "new": done.new,
        "duplicates": done.duplicates,
        "refused": done.refused_count,
    }
    if not beat_operation(operation):
        return False
    if on_progress is not None:
        on_progress(done)
    return True
