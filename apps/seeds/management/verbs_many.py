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


class _Talks(Protocol):
    stdout: Any
    stderr: Any

    def _json(self, value: object) -> None: ...
    def _lines(self, lines: Any) -> None: ...
    def _confirm(self, question: str, word: str, options: dict[str, Any]) -> None: ...


class ManyVerbs:
    """Mixin with the verbs that start operations."""

    def _reopen_failed(self: _Talks, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        arguments: dict[str, Any] = {"source": segment_named(frontier, options["segment"])}
        if options["into"]:
            arguments["target"] = segment_named(frontier, options["into"])
        # Fail early if the service is unavailable or the segment unknown.
        _books_of(frontier, arguments["source"])
        done = _run(self, frontier, OperationKind.REOPEN_FAILED, arguments)
        into = shown_segment(frontier, done.arguments["target"])
        self.stdout.write(
            f"{done.result.get('reopened', 0):,} failed seeds are pending in {into}, "
            f"{done.result.get('duplicates', 0):,} were known there"
        )

    def _drop(self: _Talks, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        segment = segment_named(frontier, options["segment"])
        books = _books_of(frontier, segment)
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

    def _wipe(self: _Talks, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        found = services.show_segments(frontier)
        count = sum(one.books.added - one.books.forgotten for one in found)
        leased = sum(one.books.leased for one in found)
        self._confirm(
            f"All {count:,} seeds in {len(found)} segments of {full_name(frontier)} go, "
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

    def _export(self: _Talks, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        segments = None
        if options["segment"]:
            segments = [segment_named(frontier, options["segment"])]
            _books_of(frontier, segments[0])
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

    def _import(self: _Talks, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        progress = ProgressLine(self.stderr)
        told = 0

        def tell(done: SeedImport) -> None:
            nonlocal told
            for number, code, text in done.refused[told:]:
                progress.end()
                self.stderr.write(f"line {number}: {text} ({code})")
            told = len(done.refused)
            progress.tell(_imported(done))

        done = import_seeds(
            frontier,
            read_lines(options["file"], MAX_LINE_BYTES),
            told=tell,
            source=options["file"],
            requested_by=who(),
        )
        tell(done)
        progress.end()
        self.stdout.write(f"{full_name(frontier)}: {_imported(done)}")
        if done.cancelled:
            raise CommandError("somebody has cancelled the import", returncode=FAILED)
        if done.refused_count > len(done.refused):
            more = done.refused_count - len(done.refused)
            self.stderr.write(f"{more:,} more lines were refused")
        if done.refused_count:
            raise CommandError(f"{done.refused_count:,} lines were refused", returncode=FAILED)

    def _granularity(self: _Talks, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        names = ("segments", "time_zone", "keys", "ignored_parameters")
        rules = {name: options[name] for name in names}
        found = services.preview_granularity(frontier, **rules)
        if options["preview"] and options["json"]:
            self._json(_preview_json(found))
            return
        if not (options["json"] and options["yes"]):
            self._lines(_preview(frontier, found))
        if options["preview"]:
            return
        if not found.changes:
            raise CommandError("these are the rules already", returncode=BAD_INPUT)
        self._confirm(
            f"{full_name(frontier)} is frozen until {found.total:,} seeds are in their new places.",
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

    def _operations(self: _Talks, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        found = list(frontier.operations.order_by("-pk")[:MOST_LISTED])
        if options["json"]:
            self._json([_operation_json(one) for one in found])
            return
        rows = [
            (
                str(one.pk),
                one.kind,
                one.state,
                one.done,
                one.total,
                one.created_at.strftime("%Y-%m-%d %H:%M:%S"),
                one.requested_by,
                one.error,
            )
            for one in found
        ]
        head = ("NUMBER", "WHAT", "STATE", "DONE", "OF", "ASKED-AT", "BY", "ERROR")
        self._lines(table(head, rows))

    def _cancel(self: _Talks, options: dict[str, Any]) -> None:
        number = options["operation"]
        operation = Operation.objects.filter(pk=number).first()
        if operation is None:
            raise CommandError(f"there is no operation {number}", returncode=BAD_INPUT)
        services.cancel_operation(operation)
        self.stdout.write(f"operation {number} is cancelled; what is done stays done")


def _run(
    talks: _Talks, frontier: Frontier, kind: OperationKind, arguments: dict[str, Any]
) -> Operation:
    return _follow(talks, services.start_operation(frontier, kind, arguments, who()))


def _follow(talks: _Talks, operation: Operation) -> Operation:
    """Execute the operation in this process; after Ctrl-C a worker continues it. Raises
    ``CommandError``.
    """
    progress = ProgressLine(talks.stderr)

    def tell(now: Operation) -> None:
        of = f" of {now.total:,}" if now.total is not None else ""
        waits = f"; waits: {now.error}" if now.error and now.state == "waiting" else ""
        phase = f" ({now.arguments['phase']})" if now.arguments.get("phase") else ""
        progress.tell(f"{now.done:,}{of} seeds{phase}{waits}")

    try:
        done = follow_operation(operation, tell)
    except KeyboardInterrupt:
        progress.end()
        talks.stderr.write(
            f"operation {operation.pk} goes on in a worker; to end it: "
            f"manage.py seeds cancel {operation.pk}"
        )
        raise
    progress.end()
    if done.state != OperationState.DONE:
        text = done.error or "somebody has cancelled it"
        raise CommandError(f"operation {done.pk} {done.state}: {text}", returncode=FAILED)
    return done


def _books_of(frontier: Frontier, segment: int) -> Any:
    """Return the counts of a segment. Raises ``CommandError`` if it does not exist."""
    found = {one.segment: one.books for one in services.show_segments(frontier)}
    if segment not in found:
        there = ", ".join(shown_segment(frontier, one) for one in list(found)[-5:]) or "none"
        name = shown_segment(frontier, segment)
        raise CommandError(
            f"there is no segment {name} ({segment}); there are: {there}", returncode=BAD_INPUT
        )
    return found[segment]


def _imported(done: SeedImport) -> str:
    return f"{done.new:,} new, {done.duplicates:,} known already, {done.refused_count:,} refused"


def _preview(frontier: Frontier, found: MovePreview) -> Iterator[str]:
    old, new = frontier, found.grouping
    for name in ("segments", "time_zone", "keys", "ignored_parameters"):
        if getattr(old, name) != getattr(new, name):
            yield f"{name}: {getattr(old, name)} -> {getattr(new, name)}"
    shown = msgspec.structs.asdict(new)
    after = Frontier(time_zone=shown["time_zone"])
    rows = []
    for one in found.segments:
        targets = [
            f"{shown_segment(after, target)}: {count:,}" for target, count in one.targets.items()
        ]
        more = f", and {len(targets) - _TARGETS} more" if len(targets) > _TARGETS else ""
        rows.append(
            (
                shown_segment(frontier, one.segment),
                one.pending,
                one.leased,
                one.ended,
                ", ".join(targets[:_TARGETS]) + more,
            )
        )
    yield from table(("SEGMENT", "PENDING", "LEASED", "ENDED", "GOES TO"), rows)
    looked = "" if found.exact else f" ({found.looked_at:,} of them were looked at)"
    yield f"{found.total:,} seeds{looked}"
    meeting = _between(found.meeting_at_least, found.meeting_at_most)
    yield f"{meeting} would meet another one with their key, and count as duplicates"
    again = _between(found.new_again_at_least, found.new_again_at_most)
    yield f"{again} would be new again if only the rules were changed"
    if found.kept_at_most:
        kept = _between(found.kept_at_least, found.kept_at_most)
        yield f"{kept} would keep an old key, because the new rules refuse them"
    if found.leased:
        yield f"{found.leased:,} are leased: let their runs end first, or say --wait SECONDS"


def _between(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _preview_json(found: MovePreview) -> dict[str, Any]:
    value = asdict(found)
    value["grouping"] = msgspec.structs.asdict(found.grouping)
    for one in value["segments"]:
        one["targets"] = [
            {"segment": target, "seeds": count} for target, count in one["targets"].items()
        ]
    return value


def _operation_json(one: Operation) -> dict[str, Any]:
    return {
        "number": one.pk,
        "kind": one.kind,
        "state": one.state,
        "done": one.done,
        "total": one.total,
        "result": one.result,
        "error": one.error,
        "requested_by": one.requested_by,
        "created_at": one.created_at.isoformat(),
        "started_at": one.started_at.isoformat() if one.started_at else None,
        "ended_at": one.ended_at.isoformat() if one.ended_at else None,
    }
