"""manage.py requests: accounting, submission, look-up, reopening, re-extraction, re-balance."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from apps.access.errors import DomainError
from apps.projects.management.arguments import project_named
from apps.projects.models import Project
from apps.requeststore.engine.entity import Entity
from apps.requeststore.engine.errors import RequestStoreError, RequestStoreUnavailable
from apps.requeststore.engine.limits import MAX_DATA_BYTES, MAX_TS
from apps.requeststore.engine.request_parser import read_request
from apps.requeststore.errors import BizFull
from apps.requeststore.management.arguments import (
    BAD_INPUT,
    add_verbs,
    biz_named,
    id_named,
    limit_named,
    time_named,
    who,
)
from apps.requeststore.models import Rebalance, Reextraction
from apps.requeststore.queries.accounting import BizAccounting, standings
from apps.requeststore.queries.stories import LABELS, STEPS, row_of, story_of
from apps.requeststore.services.intake import submit
from apps.requeststore.services.rebalance_plan import cursor_of
from apps.requeststore.services.rebalance_preview import RebalancePreview, preview
from apps.requeststore.services.rebalances import (
    cancel_rebalance,
    follow_rebalance,
    start_rebalance,
)
from apps.requeststore.services.reextractions import (
    cancel_reextraction,
    follow_reextraction,
    start_reextraction,
)
from apps.requeststore.services.reopen import reopen_requests
from apps.requeststore.services.store import (
    BoundBiz,
    close_shared_request_store,
    shared_request_store,
)
from apps.requeststore.states import RebalanceState, ReextractionState
from apps.requeststore.texts import told
from apps.runtime.errors import DATABASE_ERRORS
from yardkit.errors import first_line

FAILED: Final = 1
_UNPROCESSABLE: Final = 422
# Lines of one batch.
_BATCH: Final = 1000
_MOST_TOLD: Final = 20
_following: Final = logging.getLogger("apps.configcenter.services.watcher")


class Command(BaseCommand):
    """Subcommands. Results go to stdout, progress and errors to stderr."""

    help = "Show, submit, reopen and re-balance stored requests; extract records again."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the subcommands."""
        add_verbs(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Exit status: 0 done, 1 refused or unreachable, 2 invalid argument."""
        verb: Callable[[dict[str, Any]], None] = getattr(self, f"_{options['verb']}")
        level = _following.level
        # Suppress the log lines about configuration versions, which belong to daemons.
        _following.setLevel(logging.WARNING)
        try:
            verb(options)
            # Flushed here: at exit an error of a closed pipe could not be handled.
            self.stdout.flush()
        except BrokenPipeError:
            # The reader, such as "| head", has gone: the interpreter must not flush at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except DomainError as error:
            lines = [f"{name}: {text}" for name, texts in error.fields.items() for text in texts]
            wrong = error.status == _UNPROCESSABLE
            raise CommandError(
                "\n".join(lines if wrong and lines else [str(error)]),
                returncode=BAD_INPUT if wrong else FAILED,
            ) from error
        except RequestStoreUnavailable as error:
            raise CommandError(f"the request store is away: {error}", returncode=FAILED) from error
        except RequestStoreError as error:
            raise CommandError(str(error), returncode=BAD_INPUT) from error
        except DATABASE_ERRORS as error:
            line = first_line(error)
            raise CommandError(f"DATABASE_URL: {line}", returncode=FAILED) from error
        finally:
            close_shared_request_store()
            _following.setLevel(level)

    # --- queries --------------------------------------------------------------------------------

    def _books(self, options: dict[str, Any]) -> None:
        request_store = shared_request_store()
        wanted = project_named(options["project"]).pk if options["project"] else None
        bizzes = [biz for biz in request_store.bizzes() if wanted in (None, biz.project_id)]
        slugs = dict(Project.objects.values_list("pk", "slug"))
        accounting = standings({biz.project_id for biz in bizzes}, by_flag=True)
        rows = [
            (f"{slugs[biz.project_id]}/{biz.name}", accounting.get((biz.project_id, biz.name)))
            for biz in sorted(bizzes, key=lambda one: (one.project_id, one.name))
        ]
        lines = [_books_of(name, row or BizAccounting()) for name, row in rows]
        if options["json"]:
            self._json(lines)
        else:
            self._table(("biz", "stored", "new", "taken", "processed", "expired"), lines)
        for project, problem in request_store.problems.items():
            self.stderr.write(f"{slugs.get(project, project)}: {problem}")
        wrong = [line["biz"] for line in lines if not line["balanced"]]
        if wrong:
            raise CommandError(f"unaccounted requests: {', '.join(wrong)}", returncode=FAILED)

    def _show(self, options: dict[str, Any]) -> None:
        request_store = shared_request_store()
        request_found = request_store.find(id_named(options["id"]))
        if request_found is None:
            raise CommandError(f"there is no request {options['id']}", returncode=FAILED)
        story = story_of(
            request_found.request,
            request_found.bound.settings,
            project_id=request_found.bound.project_id,
            version=request_found.bound.version,
            place=request_found.place,
            whole=True,
            now=request_store.now(),
        )
        if options["json"]:
            self._json(story)
            return
        shard = request_found.place
        self.stdout.write(f"{story['id']}  {LABELS[story['state']]} (flag {story['flag']})")
        self.stdout.write(f"biz     {story['biz']} of project {story['project']}")
        at = f"{shard.node}: {shard.shard.database}.{shard.shard.collection}"
        self.stdout.write(f"shard   {at}, by version {story['settings_version']}")
        self.stdout.write(f"data    {json.dumps(story['data'], ensure_ascii=False)}")
        if story["result"] is not None:
            self.stdout.write(f"result  {json.dumps(story['result'], ensure_ascii=False)}")
        for step in story["steps"]:
            words = f"{step['at']:%Y-%m-%d %H:%M:%S}  {STEPS.get(step['kind'], step['kind'])}"
            self.stdout.write("  ".join(filter(None, (words, step["by"], step["text"]))))

    def _list(self, options: dict[str, Any]) -> None:
        request_store = shared_request_store()
        bound = biz_named(request_store, options["biz"])
        now = request_store.now()
        page = request_store.page(
            bound,
            flag=options["flag"],
            since=time_named(options["since"], 0, now),
            until=time_named(options["until"], MAX_TS, now),
            limit=limit_named(options["limit"]),
        )
        rows = [
            row_of(request_found.request, bound.settings, project_id=bound.project_id, now=now)
            for request_found in page
        ]
        if options["json"]:
            self._json(rows)
        else:
            self._table(("id", "state", "flag", "tries", "stored_at", "owner"), rows)

    # --- changes --------------------------------------------------------------------------------

    def _submit(self, options: dict[str, Any]) -> None:
        request_store = shared_request_store()
        bound = biz_named(request_store, options["biz"])
        # All or nothing: every line is validated before the first is stored.
        entities = _entities(bound, options["file"])
        ids: list[int] = []
        try:
            for start in range(0, len(entities), _BATCH):
                ids += submit(bound, entities[start : start + _BATCH], by=who()).ids
        except (BizFull, RequestStoreUnavailable, KeyboardInterrupt):
            self.stderr.write(f"so far {len(ids)} of {len(entities)} are stored")
            raise
        else:
            self.stderr.write(f"{len(ids)} are stored")
        finally:
            if options["json"]:
                self._json([str(number) for number in ids])
            else:
                self._lines(str(number) for number in ids)

    def _reopen(self, options: dict[str, Any]) -> None:
        request_store = shared_request_store()
        bound = biz_named(request_store, options["biz"])
        now = request_store.now()
        ids = [id_named(option) for option in options["ids"]] or None
        done = reopen_requests(
            bound,
            actor=None,
            actor_label=who(),
            ids=ids,
            flag=options["flag"],
            since=time_named(options["since"], 0, now),
            until=time_named(options["until"], MAX_TS, now),
        )
        if options["json"]:
            self._json({"reopened": done.reopened, "more": done.more})
            return
        more = "; there are more, do it again" if done.more else ""
        self.stdout.write(f"{done.reopened} are new again{more}")

    def _extract(self, options: dict[str, Any]) -> None:
        request_store = shared_request_store()
        bound = biz_named(request_store, options["biz"])
        if options["cancel"]:
            rows = Reextraction.objects.filter(project_id=bound.project_id, biz=bound.name)
            running = rows.filter(state=ReextractionState.RUNNING).first()
            if running is None:
                raise CommandError("no re-extraction of it is running", returncode=FAILED)
            cancel_reextraction(running, actor_label=who())
            self.stdout.write("cancelled: records that are stored stay")
            return
        now = request_store.now()
        row = start_reextraction(
            project_id=bound.project_id,
            biz=bound.name,
            ids=[id_named(option) for option in options["ids"]] or None,
            flag=options["flag"],
            since=time_named(options["since"], 0, now),
            until=time_named(options["until"], MAX_TS, now),
            actor_label=who(),
            request_store=request_store,
        )
        if options["follow"]:
            row = follow_reextraction(row, self._print_extracted)
        names = ("id", "state", "done", "failed", "not_kept", "records", "reasons", "problem")
        if options["json"]:
            self._json({name: getattr(row, name) for name in names})
        else:
            self._print_extracted(row)
            self.stdout.write(f"re-extraction {row.pk}: {row.state}, {row.records:,} records")
        if row.state == ReextractionState.FAILED:
            raise CommandError(row.problem, returncode=FAILED)

    def _print_extracted(self, row: Reextraction) -> None:
        counts = f"{row.done:,} done, {row.failed:,} failed, {row.not_kept:,} not kept"
        self.stderr.write(f"{row.seen:,} requests: {counts}")

    def _rebalance(self, options: dict[str, Any]) -> None:
        request_store = shared_request_store()
        bound = biz_named(request_store, options["biz"])
        if options["cancel"]:
            rows = Rebalance.objects.filter(project_id=bound.project_id, biz=bound.name)
            going = rows.filter(state=RebalanceState.RUNNING).first()
            if going is None:
                raise CommandError("no re-balance of it goes", returncode=FAILED)
            cancel_rebalance(going, actor_label=who())
            self.stdout.write("cancelled: what is moved stays moved")
            return
        would = preview(bound, request_store)
        if options["dry_run"]:
            self._print_preview(would, options)
            return
        self._confirm(bound, would, options)
        row = start_rebalance(project_id=bound.project_id, biz=bound.name, actor_label=who())
        if options["follow"]:
            row = follow_rebalance(row, self._print_progress)
        names = ("id", "state", "moved", "problem")
        if options["json"]:
            self._json({name: getattr(row, name) for name in names})
        else:
            self.stdout.write(f"re-balance {row.pk}: {row.state}, {row.moved:,} moved")
        if row.state == RebalanceState.FAILED:
            raise CommandError(row.problem, returncode=FAILED)

    def _print_preview(self, would: RebalancePreview, options: dict[str, Any]) -> None:
        if options["json"]:
            names = ("requests", "would_move", "is_exact", "seconds", "begins_later")
            self._json({name: getattr(would, name) for name in names})
            return
        about = "" if would.is_exact else "about "
        before = f"from {would.before.splits} " if would.before else ""
        text = f"would move {about}{would.would_move:,} of {would.requests:,} requests"
        self.stdout.write(f"{text} {before}to {would.epoch.splits} splits")
        if would.seconds is not None:
            self.stdout.write(f"at the pace of the last one: about {would.seconds:,.0f} s")
        if would.begins_later:
            self.stderr.write("the newest epoch has not begun yet")

    def _confirm(self, bound: BoundBiz, would: RebalancePreview, options: dict[str, Any]) -> None:
        if options["yes"]:
            return
        question = f"{would.would_move:,} of {would.requests:,} requests would be moved"
        if not sys.stdin.isatty():
            raise CommandError(f"{question}; say --yes", returncode=BAD_INPUT)
        self.stderr.write(question)
        self.stderr.write(f"Type {bound.name} to go on: ", ending="")
        self.stderr.flush()
        if sys.stdin.readline().strip() != bound.name:
            raise CommandError("nothing was done", returncode=FAILED)

    def _print_progress(self, row: Rebalance) -> None:
        cursor = cursor_of(row)
        self.stderr.write(f"{cursor.seen:,} of {max(cursor.total, 0):,}, {row.moved:,} moved")

    # --- helpers --------------------------------------------------------------------------------

    def _json(self, value: object) -> None:
        self.stdout.write(json.dumps(value, ensure_ascii=False, cls=DjangoJSONEncoder))

    def _lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.stdout.write(line)

    def _table(self, names: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
        texts = [[_cell(row[name]) for name in names] for row in rows]
        heads = [name.upper().replace("_AT", "") for name in names]
        widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
        for line in [heads, *texts]:
            shown = [text.ljust(width) for text, width in zip(line, widths, strict=True)]
            self.stdout.write("  ".join(shown).rstrip())


def _books_of(name: str, one: BizAccounting) -> dict[str, Any]:
    return {
        "biz": name,
        "stored": one.stored,
        "new": one.new,
        "taken": one.taken,
        "moving": one.moving,
        "processed": one.processed,
        "expired": one.expired,
        "by_flag": one.ended,
        "balanced": one.balanced,
    }


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:%Y-%m-%d %H:%M:%S}" if hasattr(value, "strftime") else str(value)


def _entities(bound: BoundBiz, name: str) -> list[Entity]:
    """Read the requests of a file. Raises ``CommandError`` with the first problems and their
    lines.
    """
    entities, wrong = [], []
    with _opened(name) as file:
        for number, value in _values(file):
            entity, flaws = read_request(value, bound.settings)
            entities.append(entity)
            wrong += [f"line {number}: {told(flaw)}" for flaw in flaws]
            if len(wrong) >= _MOST_TOLD:
                break
    if wrong:
        raise CommandError("\n".join([*wrong, "nothing was stored"]), returncode=BAD_INPUT)
    return entities


def _opened(name: str) -> AbstractContextManager[IO[bytes]]:
    if name == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}", returncode=BAD_INPUT) from error


def _values(file: IO[bytes]) -> Iterator[tuple[int, object]]:
    """Yield the non-empty lines with their numbers."""
    number = 0
    while line := file.readline(2 * MAX_DATA_BYTES):
        number += 1
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            if text:
                yield number, json.loads(text) if text.startswith("{") else text
        except json.JSONDecodeError as error:
            # The error text has its own line number, always 1.
            flaw = f"line {number}: no JSON: {error.msg} (column {error.colno})"
            raise CommandError(flaw, returncode=BAD_INPUT) from None
        except (ValueError, RecursionError) as error:
            raise CommandError(f"line {number}: {error}", returncode=BAD_INPUT) from None
