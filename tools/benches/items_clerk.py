"""The bench's view of a dataset, in a process with the settings of the installation it measures.

``python -m tools.benches.items_clerk`` creates tables and a run, and prints their ids. For each
further line of its input it prints another answer: "look" the progress of the writer, "query" the
times of pages and exports, "end" ends the run. It exits at the end of its input.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import django

from tools.benches.items_goods import FREQUENT, RARE

if TYPE_CHECKING:
    from apps.datasets.engine.item_types import ItemQuery
    from apps.datasets.engine.reader import ItemReader
    from apps.datasets.models import Dataset

_TIMES: Final = 3
_EXPORTS: Final = {"jsonl": "FORMAT json", "parquet": "FORMAT parquet, COMPRESSION zstd"}


def main() -> None:
    """Do what the lines of the input say."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "crawlyard.settings.base")
    django.setup()
    run = _prepare()
    work: dict[str, Callable[[], dict[str, Any]]] = {
        "look": lambda: look(run["run"]),
        "end": lambda: _end(run["run"]),
        "query": query,
        "export": export,
    }
    _answer(run)
    for line in sys.stdin:
        _answer(work[line.strip()]())


def _answer(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def _prepare() -> dict[str, Any]:
    from django.conf import settings
    from django.core.management import call_command

    from apps.jobs.models import Job, Run
    from apps.jobs.states import RunState
    from apps.projects.models import Project
    from yardkit.tokens import sign_run_token

    call_command("migrate", verbosity=0)
    project = Project.objects.create(name="bench", slug="bench")
    job = Job.objects.create(project=project, name="shop")
    run = Run.objects.create(
        job=job,
        state=RunState.RUNNING,
        created_at=datetime.now(UTC),
        started_at=datetime.now(UTC),
        host="bench",
        watched_at=datetime.now(UTC),
        boot="bench",
    )
    token = sign_run_token(settings.SECRET_KEY, run.pk)
    return {"run": run.pk, "token": token, "broker": settings.BROKER_URL}


def look(run: int) -> dict[str, Any]:
    """Return what is stored, and whether all of the ended run is in the table."""
    from apps.datasets.models import DatasetRun
    from apps.runtime.models import Daemon

    row = DatasetRun.objects.of_items().filter(run_number=run).first()
    return {
        "ready": Daemon.objects.filter(kind="dataset_writer").exists(),
        "stored": row.stored if row else 0,
        "settled": bool(row and row.settled_at),
    }


def _end(run: int) -> dict[str, Any]:
    from apps.jobs.models import Run
    from apps.jobs.states import RunState

    now = datetime.now(UTC)
    Run.objects.filter(pk=run).update(state=RunState.EXITED, ended_at=now)
    return {}


def _dataset() -> Dataset:
    from apps.datasets.models import Dataset

    return Dataset.objects.of_items().get()


# --- queries --------------------------------------------------------------------------------------


def query() -> dict[str, Any]:
    """Return sizes of the dataset, and milliseconds of each question, at the median of some."""
    from django.db.models import Count, Sum

    from apps.datasets.engine.item_types import ItemQuery
    from apps.datasets.models import DataFile, DatasetRun
    from apps.datasets.queries.items import open_reader, summaries

    with open_reader(_dataset()) as reader:
        found = reader.page(ItemQuery(limit=1000)).items
        sample = found[len(found) // 2].data
    pages = _pages(sample)
    questions: dict[str, Callable[[ItemReader], object]] = {
        name: partial(_page, query) for name, query in pages.items()
    }
    questions["count"] = lambda reader: reader.count(pages["equality_filter"])
    questions["field_statistics"] = lambda reader: reader.values("price", ItemQuery())
    took = {"statistics_of_the_manifest": _ms(lambda: summaries(list(DatasetRun.objects.all())))}
    for name, ask in questions.items():

        def asked(ask: Callable[[ItemReader], object] = ask) -> None:
            with open_reader(_dataset()) as reader:
                ask(reader)

        took[name] = _ms(asked)
    sizes = DataFile.objects.aggregate(
        files=Count("id"), items=Sum("items"), bytes=Sum("bytes"), json_bytes=Sum("raw_bytes")
    )
    return {**sizes, "query_ms": took}


def _page(query: ItemQuery, reader: ItemReader) -> object:
    return reader.page(query)


def _pages(sample: dict[str, Any]) -> dict[str, Any]:
    from apps.datasets.engine.filters import FilterOp, ItemFilter
    from apps.datasets.engine.item_types import ItemQuery

    def filtered(field: str, op: FilterOp, value: Any) -> ItemQuery:
        return ItemQuery(filters=(ItemFilter(field, op, value),))

    return {
        "first_page": ItemQuery(),
        "newest_page": ItemQuery(newest=True),
        "equality_filter": filtered("sku", FilterOp.EQUALS, sample["sku"]),
        "equality_of_many": filtered("brand", FilterOp.EQUALS, sample["brand"]),
        "range": filtered("price", FilterOp.AT_LEAST, 499.9),
        "contains_rare": filtered("description", FilterOp.CONTAINS, RARE),
        "contains_frequent": filtered("description", FilterOp.CONTAINS, FREQUENT),
        "contains_nowhere": filtered("description", FilterOp.CONTAINS, "no such words"),
        "text_in_any_field": ItemQuery(text=f"{RARE} nowhere"),
        "sort": ItemQuery(sort="-price"),
    }


def _ms(ask: Callable[[], object]) -> float:
    took = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        ask()
        took.append(1000 * (time.perf_counter() - began))
    return round(sorted(took)[len(took) // 2], 1)


# --- exports --------------------------------------------------------------------------------------


def export() -> dict[str, Any]:
    """Return the seconds and bytes of our exports and of DuckDB's COPY of the same files."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="crawlyard-bench-") as folder:
        files = list(_local_files(Path(folder)))
        for kind, options in _EXPORTS.items():
            ours = _exported(Path(folder, f"ours.{kind}"), kind)
            theirs = _copied(Path(folder, f"theirs.{kind}"), files, options)
            # In turns; each side's better one.
            ours = min(ours, _exported(Path(folder, f"ours.{kind}"), kind))
            theirs = min(theirs, _copied(Path(folder, f"theirs.{kind}"), files, options))
            found[kind] = {
                "ratio": round(theirs[0] / ours[0], 2),
                "seconds": round(ours[0], 2),
                "duckdb_seconds": round(theirs[0], 2),
                "mb": round(ours[1] / 1e6, 1),
                "duckdb_mb": round(theirs[1] / 1e6, 1),
            }
    return found


def _local_files(folder: Path) -> Iterator[Path]:
    """Yield the files of the manifest; those of a bucket are fetched, in nobody's time."""
    from apps.datasets.models import DataFile
    from apps.runtime.services.objects import shared_objects

    keys = DataFile.objects.order_by("run_number", "first_batch").values_list("path", flat=True)
    for number, key in enumerate(keys):
        path = shared_objects().local_path(key)
        if path is None:
            path = folder / f"input-{number}.parquet"
            path.write_bytes(shared_objects().get(key))
        yield path


def _exported(path: Path, kind: str) -> tuple[float, int]:
    from apps.datasets.engine.exports import FORMATS
    from apps.datasets.engine.item_types import ItemQuery
    from apps.datasets.queries.items import open_reader

    began = time.perf_counter()
    with open_reader(_dataset()) as reader, path.open("wb") as file:
        for chunk in FORMATS[kind](reader, ItemQuery(), []):
            file.write(chunk)
    return _result(path, began)


def _copied(path: Path, files: list[Path], options: str) -> tuple[float, int]:
    import duckdb

    from apps.datasets.engine.filters import quoted
    from apps.datasets.engine.sources import MEMORY_LIMIT
    from yardkit.items.columns import Columns

    fields = ", ".join(quoted(column.column) for column in Columns(_dataset().columns))
    listed = ", ".join(f"'{file}'" for file in files)
    began = time.perf_counter()
    with duckdb.connect(":memory:", config={"memory_limit": MEMORY_LIMIT}) as connection:
        connection.execute(
            f"COPY (SELECT {fields} FROM read_parquet([{listed}], union_by_name = true))"  # noqa: S608 - our own names
            f" TO '{path}' ({options})"
        )
    return _result(path, began)


def _result(path: Path, began: float) -> tuple[float, int]:
    seconds, size = time.perf_counter() - began, path.stat().st_size
    with suppress(FileNotFoundError):
        path.unlink()
    return seconds, size


if __name__ == "__main__":
    main()
