"""manage.py seeds: manage frontiers and their seeds from a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Count, Q, Sum

from apps.access.errors import DomainError
from apps.projects.management.arguments import project_named
from apps.runtime.errors import DATABASE_ERRORS
from apps.seeds import services
from apps.seeds.engine.errors import InvalidFrontierSetting, SeedError, UnknownSegment
from apps.seeds.management import verbs_many
from apps.seeds.management.arguments import (
    BAD_INPUT,
    add_verbs,
    frontier_named,
    full_name,
    segment_named,
    shown_segment,
    shown_time,
    time_named,
    who,
)
from apps.seeds.management.files import FAILED, read_lines
from apps.seeds.management.output import ProgressLine, size, table
from apps.seeds.models import Frontier, Operation
from apps.seeds.services.portable import MAX_LINE_BYTES
from apps.seeds.states import ACTIVE_OPERATIONS
from yardkit.broker import BrokerUnavailable
from yardkit.errors import first_line
from yardkit.protocol import Seed, SeedAnswer
from yardkit.seeds import CallRefused, SeedServiceAway

# Lines of a file per call to the service (seed S3.19).
BATCH: Final = 2048
# Long, so that loading a file survives a restart of the seed service.
PATIENCE_SECONDS: Final = 60.0
_UNPROCESSABLE: Final = 422
_WRONG: Final = frozenset({"bad_call", UnknownSegment.code, "unknown_key", "bad_setting"})


class Command(verbs_many.ManyVerbs, BaseCommand):
    """Manage frontiers and seeds. Results go to stdout, progress and errors to stderr."""

    help = "Show and change frontiers and their seeds."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the verbs and their arguments."""
        add_verbs(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Execute a verb. Exit status: 0 success, 1 error or service unavailable, 2 invalid
        argument.
        """
        verb: Callable[[dict[str, Any]], None] = getattr(
            self, f"_{options['verb'].replace('-', '_')}"
        )
        try:
            verb(options)
        except DomainError as error:
            lines = [str(text_line) for texts in error.fields.values() for text_line in texts]
            wrong = error.status == _UNPROCESSABLE
            raise CommandError(
                "\n".join(lines if wrong and lines else [str(error)]),
                returncode=BAD_INPUT if wrong else FAILED,
            ) from error
        except (SeedServiceAway, BrokerUnavailable) as error:
            line = f"{error}\nIs run_seeds alive? manage.py run_seeds --status"
            raise CommandError(line, returncode=FAILED) from error
        except CallRefused as error:
            status = BAD_INPUT if error.code in _WRONG else FAILED
            raise CommandError(f"{error} ({error.code})", returncode=status) from error
        except (InvalidFrontierSetting, SeedError) as error:
            raise CommandError(str(error), returncode=BAD_INPUT) from error
        except DATABASE_ERRORS as error:
            line = first_line(error)
            raise CommandError(f"DATABASE_URL: {line}", returncode=FAILED) from error

    # --- show -----------------------------------------------------------------------------------

    def _list(self, options: dict[str, Any]) -> None:
        rows = Frontier.objects.select_related("project").order_by("project__slug", "name")
        if options["project"]:
            rows = rows.filter(project=project_named(options["project"]))
        sums = {
            name: Sum(f"reports__{name}", default=0)
            for name in ("pending", "leased", "succeeded", "failed", "size_bytes")
        }
        rows = rows.annotate(parts=Count("reports"), **{f"n_{k}": v for k, v in sums.items()})
        frontiers: list[Any] = list(rows)
        moving = set(
            Operation.objects.filter(
                Q(state__in=ACTIVE_OPERATIONS), frontier__in=frontiers
            ).values_list("frontier_id", flat=True)
        )
        if options["json"]:
            self._json([_listed(frontier, frontier.pk in moving) for frontier in frontiers])
            return
        head = ("FRONTIER", "NUMBER", "SEGMENTS", "ZONE", "KEYS", "STATE", "PENDING", "LEASED")
        lines = [
            (
                full_name(frontier),
                str(frontier.pk),
                frontier.segments,
                frontier.time_zone,
                frontier.keys,
                _state(frontier, frontier.pk in moving),
                frontier.n_pending,
                frontier.n_leased,
                frontier.n_succeeded,
                frontier.n_failed,
                size(frontier.n_size_bytes),
            )
            for frontier in frontiers
        ]
        self._lines(table((*head, "SUCCEEDED", "FAILED", "SIZE"), lines))
        if not frontiers:
            self.stderr.write("There is no frontier; make one: manage.py seeds create NAME")

    def _segments(self, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        segments = services.show_segments(frontier)
        if options["json"]:
            self._json([_segment_json(frontier, segment) for segment in segments])
            return
        rows = [
            (
                shown_segment(frontier, segment.segment),
                str(segment.segment),
                segment.books.added,
                segment.books.duplicates,
                segment.books.pending,
                segment.books.leased,
                segment.books.succeeded,
                segment.books.failed,
                segment.books.ignored,
                segment.books.forgotten,
                size(segment.size_bytes),
            )
            for segment in segments
        ]
        head = "SEGMENT START-MS ADDED DUPLICATES PENDING LEASED SUCCEEDED FAILED IGNORED FORGOTTEN"
        self._lines(table((*head.split(), "SIZE"), rows))
        wrong = [segment for segment in segments if not segment.books.balance()]
        if wrong:
            names = ", ".join(shown_segment(frontier, segment.segment) for segment in wrong)
            raise CommandError(f"seeds unaccounted for in: {names}", returncode=FAILED)
        zone = f"; times of {frontier.time_zone}" if segments else ""
        self.stderr.write(
            f"{full_name(frontier)}: {len(segments)} segments, all seeds accounted for{zone}"
        )

    def _look_up(self, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        at = time_named(frontier, options["at"]) if options["at"] else None
        answer = services.look_up(frontier, Seed(options["seed"], active_at=at))
        known = answer.known
        where = shown_segment(frontier, answer.segment)
        if options["json"]:
            self._json(
                {
                    "new": known is None,
                    "segment": answer.segment,
                    "key": answer.key,
                    "due": answer.due,
                    "state": known.state.name.lower() if known else None,
                    "since": known.added_at if known else None,
                    "changed_at": known.changed_at if known else None,
                    "retry": known.retry if known else None,
                    "max_retry": known.max_retry if known else None,
                    "owner": known.owner if known else None,
                }
            )
            return
        if known is None:
            self.stdout.write("new")
        else:
            self.stdout.write(
                f"known since {shown_time(frontier, known.added_at)}, "
                f"{known.state.name.lower()} since {shown_time(frontier, known.changed_at)}"
            )
        self.stdout.write(f"segment  {where} ({answer.segment})")
        self.stdout.write(f"key      {answer.key}")
        if known is not None:
            self.stdout.write(f"failures {known.retry} of {known.max_retry}")
            if known.owner and known.deadline:
                self.stdout.write(
                    f"leased   by {known.owner} until {shown_time(frontier, known.deadline)}"
                )
        elif answer.due > 1:
            self.stdout.write(f"due      {shown_time(frontier, answer.due)}")

    # --- add ------------------------------------------------------------------------------------

    def _create(self, options: dict[str, Any]) -> None:
        names = (
            "segments",
            "time_zone",
            "keys",
            "ignored_parameters",
            "max_retry",
            "lease_seconds",
            "expected_seeds",
        )
        values = {name: options[name] for name in names if options[name] is not None}
        values |= {"name": options["name"], "description": options["description"]}
        values["project"] = project_named(options["project"])
        try:
            Frontier(**values).full_clean()
        except ValidationError as error:
            lines = [
                f"{name}: {text}" if name != "__all__" else text
                for name, texts in error.message_dict.items()
                for text in texts
            ]
            raise CommandError("\n".join(lines), returncode=BAD_INPUT) from error
        frontier = services.create_frontier(actor=None, values=values, actor_label=who())
        self.stdout.write(f"{full_name(frontier)} is number {frontier.pk}")

    def _add(self, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        at = time_named(frontier, options["at"]) if options["at"] else None
        seeds = [
            Seed(text, at, options["max_retry"], urgent=options["urgent"])
            for text in options["seeds"]
        ]
        answers = services.client_of(frontier).add(seeds)
        if options["json"]:
            self._json(
                [
                    {"seed": seed.data, "code": answer.code, "since": answer.since or None}
                    | ({"text": answer.text} if answer.text else {})
                    for seed, answer in zip(seeds, answers, strict=True)
                ]
            )
        else:
            for seed, answer in zip(seeds, answers, strict=True):
                self.stdout.write(f"{_answer_text(frontier, answer)}\t{seed.data}")
        refused = sum(not _taken(answer) for answer in answers)
        if refused:
            raise CommandError(f"{refused} of {len(answers)} were refused", returncode=FAILED)

    def _load(self, options: dict[str, Any]) -> None:
        """Add one seed per line, in batches; empty lines are skipped."""
        frontier = frontier_named(options["frontier"])
        at = time_named(frontier, options["at"]) if options["at"] else None
        client = services.client_of(frontier, patience=PATIENCE_SECONDS)
        progress = ProgressLine(self.stderr)
        tally = {"new": 0, "duplicate": 0, "refused": 0}
        batch: list[tuple[int, Seed]] = []

        def send() -> None:
            answers = client.add(seed for _number, seed in batch)
            for (number, _seed), pair in zip(batch, answers, strict=True):
                if _taken(pair):
                    tally[pair.code] += 1
                else:
                    refuse(number, f"{pair.text} ({pair.code})")
            batch.clear()
            progress.tell(_tallied(tally))

        def refuse(number: int, text: str) -> None:
            tally["refused"] += 1
            progress.end()
            self.stderr.write(f"line {number}: {text}")

        try:
            for number, line in enumerate(read_lines(options["file"], MAX_LINE_BYTES), 1):
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                except UnicodeDecodeError as error:
                    refuse(number, f"no UTF-8 at byte {error.start + 1}")
                    continue
                if text:
                    batch.append((number, Seed(text, at, options["max_retry"])))
                if len(batch) == BATCH:
                    send()
            if batch:
                send()
        except (SeedServiceAway, CallRefused, CommandError, KeyboardInterrupt):
            progress.end()
            self.stderr.write(f"so far: {_tallied(tally)}; loading it again adds only the rest")
            raise
        progress.end()
        self.stdout.write(f"{full_name(frontier)}: {_tallied(tally)}")
        if tally["refused"]:
            raise CommandError(f"{tally['refused']:,} lines were refused", returncode=FAILED)

    # --- single seeds ---------------------------------------------------------------------------

    def _reopen(self, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        segment = segment_named(frontier, options["segment"])
        services.reopen(frontier, segment, options["key"])
        self.stdout.write(f"pending again in {shown_segment(frontier, segment)}: {options['key']}")

    def _forget(self, options: dict[str, Any]) -> None:
        frontier = frontier_named(options["frontier"])
        segment = segment_named(frontier, options["segment"])
        services.forget(frontier, segment, options["key"])
        self.stdout.write(f"forgotten in {shown_segment(frontier, segment)}: {options['key']}")

    # --- helpers --------------------------------------------------------------------------------

    def _json(self, value: object) -> None:
        self.stdout.write(json.dumps(value, ensure_ascii=False))

    def _lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.stdout.write(line)

    def _confirm(self, question: str, word: str, options: dict[str, Any]) -> None:
        """Require ``word`` to be typed, unless ``--yes`` is given. Raises ``CommandError``."""
        if options["yes"]:
            return
        if not sys.stdin.isatty():
            raise CommandError(f"{question}\nNothing was done: say --yes", returncode=BAD_INPUT)
        self.stderr.write(question)
        self.stderr.write(f"Type {word} to go on: ", ending="")
        self.stderr.flush()
        if sys.stdin.readline().strip() != word:
            raise CommandError("nothing was done", returncode=FAILED)


def _taken(answer: SeedAnswer) -> bool:
    return answer.code in ("new", "duplicate")


def _answer_text(frontier: Frontier, answer: SeedAnswer) -> str:
    if answer.code == "new":
        return "new"
    if answer.code == "duplicate":
        since = shown_time(frontier, answer.since)
        return f"known since {since}, {answer.state.name.lower()}"
    return f"refused, {answer.text} ({answer.code})"


def _tallied(tally: dict[str, int]) -> str:
    return (
        f"{tally['new']:,} new, {tally['duplicate']:,} known already, {tally['refused']:,} refused"
    )


def _state(frontier: Frontier, busy: bool) -> str:
    words = [
        word
        for word, is_so in (
            ("frozen", frontier.is_frozen),
            ("paused", frontier.is_paused),
            ("busy", busy),
        )
        if is_so
    ]
    return ",".join(words) or "open"


def _listed(frontier: Any, busy: bool) -> dict[str, Any]:
    return {
        "number": frontier.pk,
        "project": frontier.project.slug,
        "name": frontier.name,
        "segments": frontier.segments,
        "time_zone": frontier.time_zone,
        "keys": frontier.keys,
        "ignored_parameters": frontier.ignored_parameters,
        "is_paused": frontier.is_paused,
        "is_frozen": frontier.is_frozen,
        "is_busy": busy,
        "segment_count": frontier.parts,
        "pending": frontier.n_pending,
        "leased": frontier.n_leased,
        "succeeded": frontier.n_succeeded,
        "failed": frontier.n_failed,
        "size_bytes": frontier.n_size_bytes,
    }


def _segment_json(frontier: Frontier, segment: Any) -> dict[str, Any]:
    counts = {name: getattr(segment.books, name) for name in segment.books.__struct_fields__}
    begins = shown_segment(frontier, segment.segment)
    return {
        "segment": segment.segment,
        "begins": begins,
        **counts,
        "balances": segment.books.balance(),
        "size_bytes": segment.size_bytes,
    }
