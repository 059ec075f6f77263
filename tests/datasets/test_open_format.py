"""Datasets are read by other programs, as docs/data.md says, with nothing of the product."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from apps.datasets.models import DataFile, Dataset
from apps.datasets.services import compaction
from apps.datasets.states import Level
from apps.jobs.models import Run
from apps.jobs.states import RunState
from tests.datasets.factories import NOW, store
from tests.jobs.factories import make_job, make_run
from tools.requirement_marks import ROOT

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.covers("DS.4")]

LATER: Final = NOW + timedelta(minutes=20)
_EXAMPLE: Final = re.compile(r"\*\*(\w+)\*\*[^\n]*\n\n```python\n(.*?)```", re.DOTALL)
# Modules that a program has which reads a dataset by this one alone.
ALONE: Final = {
    "pyiceberg": {"pyarrow", "pandas"},
    "DuckDB": {"duckdb"},
    "pandas": {"pandas", "pyarrow"},
}
_READERS: Final = {"pyarrow", "pyiceberg", "duckdb", "pandas"}
_GUARD: Final = """
import sys

class Guard:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in refused:
            raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, Guard())
"""
_END: Final = """
import json
if hasattr(items, "to_pylist"):
    rows = items.to_pylist()
elif hasattr(items, "fetchall"):
    rows = [dict(zip(items.columns, row)) for row in items.fetchall()]
else:
    rows = items.astype(object).where(items.notna(), None).to_dict("records")
print(json.dumps(rows, default=str))
"""
# Fields that are missing, change their type, are nested, and are named like a system column.
FIRST: Final[list[dict[str, Any]]] = [
    {"url": f"https://shop.example/{n}", "price": n, "tags": ["a", n], "_run": "mine"}
    for n in range(1, 21)
]
SECOND: Final[list[dict[str, Any]]] = [
    {"url": f"https://shop.example/{n}", "price": "on request" if n % 2 else n, "new": {"a": None}}
    for n in range(1, 11)
]


def examples() -> list[tuple[str, str]]:
    """Return the examples of the page, each by the program that it is for."""
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    section = page.partition("## Read without the platform\n")[2].partition("\n## ")[0]
    return [(program, code) for program, code in _EXAMPLE.findall(section)]


EXAMPLES: Final = examples()


@pytest.fixture
def run() -> Run:
    """A run with items in the table, beside those of another run, all merged once."""
    job = make_job()
    run, other = make_run(job=job), make_run(job=job)
    for begin in range(0, 20, 5):
        store(run, FIRST[begin : begin + 5], first=begin + 1)
        compact(LATER)
    store(run, SECOND, first=21)
    store(other, FIRST)
    Run.objects.update(state=RunState.EXITED, ended_at=NOW)
    compact(LATER)
    assert not DataFile.objects.filter(level=Level.SEGMENT).exists()
    return run


def compact(now: Any) -> None:
    for _ in range(30):
        if not compaction.step(now=now):
            return


def read(program: str, code: str, run: Run, folder: Path, url: str) -> list[dict[str, Any]]:
    """Return the items that an example of docs/data.md reads in a process of its own."""
    dataset = Dataset.objects.get()
    code = code.replace("p1.d3", f"p{dataset.project_id}.d{dataset.pk}")
    code = re.sub(r"\b(_run = |run-)7\b", rf"\g<1>{run.pk}", code)
    ours = {"apps", "crawlyard", "yardcli", "yardkit", "yardspider", "django"}
    refused = ours | (_READERS - ALONE[program] - {program.lower()})
    place = folder / "datasets" / f"p{dataset.project_id}" / f"d{dataset.pk}"
    given = f"refused = {refused!r}\nurl = {url!r}\nfolder = {str(place)!r}\n"
    done = subprocess.run(
        [sys.executable, "-I", "-c", given + _GUARD + code + _END],
        cwd="/",
        env={"HOME": str(folder), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return sorted(rows, key=lambda row: row["_seq"])


def check(rows: list[dict[str, Any]], run: Run, items: list[dict[str, Any]]) -> None:
    """Each item is there once, as it came and in the columns of its fields."""
    assert [row["_seq"] for row in rows] == list(range(1, len(items) + 1))
    assert {(row["_run"], row["_incarnation"], row["_url"]) for row in rows} == {
        (run.pk, "b1", "https://shop.example/list")
    }
    assert [json.loads(row["_item"]) for row in rows] == items
    assert [row["url"] for row in rows] == [item["url"] for item in items]
    for row, item in zip(rows, items, strict=True):
        is_number = isinstance(item["price"], int)
        assert row["price"] == (item["price"] if is_number else None)
        assert row["price__string"] == (None if is_number else item["price"])
        tags, new = row["tags"], row["new"]
        assert (tags and json.loads(tags)) == item.get("tags")
        assert (new and json.loads(new)) == item.get("new")


def test_every_program_that_the_page_names_has_an_example() -> None:
    named = [program for program, _code in EXAMPLES]
    assert named == ["pyiceberg", "pyiceberg", "DuckDB", "pandas"]


@pytest.mark.slow("a process that imports pyiceberg, DuckDB or pandas: 3 s")
@pytest.mark.parametrize(
    ("program", "code"),
    EXAMPLES,
    ids=["pyiceberg-catalog", "pyiceberg-metadata", "duckdb", "pandas"],
)
def test_a_program_reads_a_run_without_the_product(
    program: str, code: str, run: Run, objects: Path, tmp_path: Path
) -> None:
    """Replaced files stay for a while: by its files alone an item is there several times."""
    written = list(objects.glob(f"**/run-{run.pk}/*.parquet"))
    assert len(written) > 2 * DataFile.objects.filter(run_number=run.pk).count()
    fresh = SECOND[:3]
    store(run, fresh, first=31)
    rows = read(program, code, run, objects, f"sqlite:///{tmp_path}/catalog.sqlite3")
    check(rows, run, [*FIRST, *SECOND, *([] if program == "pyiceberg" else fresh)])
