"""Verbs of ``manage.py seeds`` that work on many seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final, Protocol

import msgspec
from django.core.management.base import CommandError

from apps.seeds import services
from apps.seeds.management.arguments import (
    BAD_INPUT,
    frontier_named,
    full_name,
    segment_named,
    shown_segment,
    who,
)
from apps.seeds.management.files import FAILED, read_lines, write_lines
from apps.seeds.management.output import ProgressLine, table
from apps.seeds.models import Frontier, Operation
from apps.seeds.services.granularity import MovePreview
from apps.seeds.services.operations import follow_operation
from apps.seeds.services.portable import (
    MAX_LINE_BYTES,
    SeedImport,
    export_seeds,
    import_seeds,
    write_line,
)
from apps.seeds.states import OperationKind, OperationState

MOST_LISTED: Final = 50
# Number of target segments shown for a segment in a preview.
_TARGETS: Final = 3


class _Terminal(Protocol):
    stdout: Any
    stderr: Any

    def _json(self, value: object) -> None: ...
    def _lines(self, lines: Any) -> None: ...
    def _confirm(self, question: str, word: str, options: dict[str, Any]) -> None: ...


class ManyVerbs:
    """Mixin with the verbs that start operations."""

    def _reopen_failed(self: _Terminal, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        arguments: dict[str, Any] = {"source": segment_named(frontier, options["segment"])}
        if options["into"]:
            arguments["target"] = segment_named(frontier, options["into"])
        # Fail early if the service is unavailable or the segment unknown.
        _counts_of(frontier, arguments["source"])
        done = _run(self, frontier, OperationKind.REOPEN_FAILED, arguments)
        into = shown_segment(frontier, done.arguments["target"])
        self.stdout.write(
            f"{done.result.get('reopened', 0):,} failed seeds are pending in {into}, "
            f"{done.result.get('duplicates', 0):,} were known there"
        )

    def _drop(self: _Terminal, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        segment = segment_named(frontier, options["segment"])
        books = _counts_of(frontier, segment)
        name = shown_segment(frontier, segment)
        self._confirm(
            f"Segment {name} of {full_name(frontier)} goes with {books.added - books.forgotten:,} "
            f"seeds, of which {books.pending:,} are pending and {books.leased:,} leased. "
            "Their keys are new again.",
            frontier.name,
            options,
        )
        arguments = {"segment": segment, "leased_too": options["leased_too"]}
        done = _run(self, frontier, OperationKind.DROP, arguments)
        self.stdout.write(f"{name} is gone, with {done.done:,} seeds")

    def _wipe(self: _Terminal, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        segments = services.show_segments(frontier)
        count = sum(segment.books.added - segment.books.forgotten for segment in segments)
        leased = sum(segment.books.leased for segment in segments)
        self._confirm(
            f"All {count:,} seeds in {len(segments)} segments of {full_name(frontier)} go, "
            f"{leased:,} of them leased. Every key is new again.",
            frontier.name,
            options,
        )
        arguments = {"leased_too": options["leased_too"]}
        done = _run(self, frontier, OperationKind.WIPE, arguments)
        self.stdout.write(
            f"{full_name(frontier)} is empty: {done.result.get('segments', 0)} segments and "
            f"{done.done:,} seeds are gone"
        )

    def _export(self: _Terminal, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        segments = None
        if options["segment"]:
            segments = [segment_named(frontier, options["segment"])]
            _counts_of(frontier, segments[0])
        progress = ProgressLine(self.stderr)

        def lines() -> Iterator[bytes]:
            for count, seed in enumerate(export_seeds(frontier, segments), 1):
                yield write_line(seed)
                if not count % 1000:
                    progress.tell(f"{count:,} seeds")

        count = write_lines(options["file"], lines())
        progress.end()
        where = "" if options["file"] == "-" else f" in {options['file']}"
        self.stderr.write(f"{full_name(frontier)}: {count:,} seeds{where}")

    def _import(self: _Terminal, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        progress = ProgressLine(self.stderr)
        reported = 0

        def report_progress(done: SeedImport) -> None:
            nonlocal reported
            for number, code, text in done.refused[reported:]:
                progress.end()
                self.stderr.write(f"line {number}: {text} ({code})")
            reported = len(done.refused)
            progress.tell(_imported(done))

        done = import_seeds(
            frontier,
            read_lines(options["file"], MAX_LINE_BYTES),
            on_progress=report_progress,
            source=options["file"],
            requested_by=who(),
        )
        report_progress(done)
        progress.end()
        self.stdout.write(f"{full_name(frontier)}: {_imported(done)}")
        if done.cancelled:
            raise CommandError("somebody has cancelled the import", returncode=FAILED)
        if done.refused_count > len(done.refused):
            more = done.refused_count - len(done.refused)
            self.stderr.write(f"{more:,} more lines were refused")
        if done.refused_count:
            raise CommandError(f"{done.refused_count:,} lines were refused", returncode=FAILED)

    def _granularity(self: _Terminal, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        names = ("segments", "time_zone", "keys", "ignored_parameters")
        rules = {name: options[name] for name in names}
        preview = services.preview_granularity(frontier, **rules)
        if options["preview"] and options["json"]:
            self._json(_preview_json(preview))
            return
        if not (options["json"] and options["yes"]):
            self._lines(_preview(frontier, preview))
        if options["preview"]:
            return
        if not preview.changes:
            raise CommandError("these are the rules already", returncode=BAD_INPUT)
        self._confirm(
            f"{full_name(frontier)} is frozen until {preview.total:,} seeds are moved.",
            frontier.name,
            options,
        )
        operation = services.change_granularity(
            frontier, **rules, wait_seconds=options["wait"], requested_by=who()
        )
        done = _follow(self, operation)
        result = {name: done.result.get(name, 0) for name in ("moved", "met", "kept")}
        if options["json"]:
            self._json({"operation": done.pk, "state": done.state, **result})
            return
        self.stdout.write(
            f"{full_name(frontier)} has the new rules: {result['moved']:,} seeds are in place, "
            f"{result['met']:,} met another one and count as duplicates, "
            f"{result['kept']:,} keep an old key"
        )

    def _operations(self: _Terminal, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        operations = list(frontier.operations.order_by("-pk")[:MOST_LISTED])
        if options["json"]:
            self._json([_operation_json(operation) for operation in operations])
            return
        rows = [
            (
                str(operation.pk),
                operation.kind,
                operation.state,
                operation.done,
                operation.total,
                operation.created_at.strftime("%Y-%m-%d %H:%M:%S"),
                operation.requested_by,
                operation.error,
            )
            for operation in operations
        ]
        head = ("NUMBER", "WHAT", "STATE", "DONE", "OF", "ASKED-AT", "BY", "ERROR")
        self._lines(table(head, rows))

    def _cancel(self: _Terminal, options: dict[str, Any]) -> None:
        number = options["operation"]
        operation = Operation.objects.filter(pk=number).first()
        if operation is None:
            raise CommandError(f"there is no operation {number}", returncode=BAD_INPUT)
        services.cancel_operation(operation)
        self.stdout.write(f"operation {number} is cancelled; what is done stays done")


def _run(
    terminal: _Terminal, frontier: Frontier, kind: OperationKind, arguments: dict[str, Any]
) -> Operation:
    return _follow(terminal, services.start_operation(frontier, kind, arguments, who()))


def _follow(terminal: _Terminal, operation: Operation) -> Operation:
    """Execute the operation in this process; after Ctrl-C a worker continues it. Raises
    ``CommandError``.
    """
    progress = ProgressLine(terminal.stderr)

    def tell(now: Operation) -> None:
        of = f" of {now.total:,}" if now.total is not None else ""
        waits = f"; waits: {now.error}" if now.error and now.state == "waiting" else ""
        phase = f" ({now.arguments['phase']})" if now.arguments.get("phase") else ""
        progress.tell(f"{now.done:,}{of} seeds{phase}{waits}")

    try:
        done = follow_operation(operation, tell)
    except KeyboardInterrupt:
        progress.end()
        terminal.stderr.write(
            f"operation {operation.pk} goes on in a worker; to end it: "
            f"manage.py seeds cancel {operation.pk}"
        )
        raise
    progress.end()
    if done.state != OperationState.DONE:
        text = done.error or "somebody has cancelled it"
        raise CommandError(f"operation {done.pk} {done.state}: {text}", returncode=FAILED)
    return done


def _counts_of(frontier: Frontier, segment: int) -> Any:
    """Return the counts of a segment. Raises ``CommandError`` if it does not exist."""
    counts = {
        segment_info.segment: segment_info.books
        for segment_info in services.show_segments(frontier)
    }
    if segment not in counts:
        there = (
            ", ".join(shown_segment(frontier, segment_info) for segment_info in list(counts)[-5:])
            or "none"
        )
        name = shown_segment(frontier, segment)
        raise CommandError(
            f"there is no segment {name} ({segment}); there are: {there}", returncode=BAD_INPUT
        )
    return counts[segment]


def _imported(done: SeedImport) -> str:
    return f"{done.new:,} new, {done.duplicates:,} known already, {done.refused_count:,} refused"


def _preview(frontier: Frontier, preview: MovePreview) -> Iterator[str]:
    old, new = frontier, preview.grouping
    for name in ("segments", "time_zone", "keys", "ignored_parameters"):
        if getattr(old, name) != getattr(new, name):
            yield f"{name}: {getattr(old, name)} -> {getattr(new, name)}"
    shown = msgspec.structs.asdict(new)
    after = Frontier(time_zone=shown["time_zone"])
    rows = []
    for segment in preview.segments:
        targets = [
            f"{shown_segment(after, target)}: {count:,}"
            for target, count in segment.targets.items()
        ]
        more = f", and {len(targets) - _TARGETS} more" if len(targets) > _TARGETS else ""
        rows.append(
            (
                shown_segment(frontier, segment.segment),
                segment.pending,
                segment.leased,
                segment.ended,
                ", ".join(targets[:_TARGETS]) + more,
            )
        )
    yield from table(("SEGMENT", "PENDING", "LEASED", "ENDED", "GOES TO"), rows)
    looked = "" if preview.exact else f" ({preview.looked_at:,} of them were looked at)"
    yield f"{preview.total:,} seeds{looked}"
    meeting = _between(preview.meeting_at_least, preview.meeting_at_most)
    yield f"{meeting} would meet another one with their key, and count as duplicates"
    again = _between(preview.new_again_at_least, preview.new_again_at_most)
    yield f"{again} would be new again if only the rules were changed"
    if preview.kept_at_most:
        kept = _between(preview.kept_at_least, preview.kept_at_most)
        yield f"{kept} would keep an old key, because the new rules refuse them"
    if preview.leased:
        yield f"{preview.leased:,} are leased: let their runs end first, or say --wait SECONDS"


def _between(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _preview_json(preview: MovePreview) -> dict[str, Any]:
    value = asdict(preview)
    value["grouping"] = msgspec.structs.asdict(preview.grouping)
    for segment in value["segments"]:
        segment["targets"] = [
            {"segment": target, "seeds": count} for target, count in segment["targets"].items()
        ]
    return value


def _operation_json(operation: Operation) -> dict[str, Any]:
    return {
        "number": operation.pk,
        "kind": operation.kind,
        "state": operation.state,
        "done": operation.done,
        "total": operation.total,
        "result": operation.result,
        "error": operation.error,
        "requested_by": operation.requested_by,
        "created_at": operation.created_at.isoformat(),
        "started_at": operation.started_at.isoformat() if operation.started_at else None,
        "ended_at": operation.ended_at.isoformat() if operation.ended_at else None,
    }
