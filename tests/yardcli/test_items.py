"""Items and datasets: downloads that can be resumed, tails, statistics, comparisons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apps.datasets.models import Dataset, DatasetRun
from apps.jobs.models import Run
from apps.projects.models import Project
from tests.datasets.conftest import catalog as catalog
from tests.datasets.conftest import objects as objects
from tests.datasets.factories import make_items, store
from tests.jobs.factories import make_job, make_run
from tests.yardcli.conftest import Crawlyard
from yardcli import downloads

# As an ASGI server reads them; the web process of these tests is none.
pytestmark = pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
HOSTILE = {"url": "https://shop.example/p/0", "title": "\x1b[2J\x9b31m\u202eevil"}


@pytest.fixture
def run(project: Project) -> Run:
    run = make_run(job=make_job(project=project, name="prices"), state="exited")
    store(run, make_items(25))
    return run


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow("2 s")
@pytest.mark.covers("DS.6")
def test_items_are_downloaded_in_every_format(entered: Crawlyard, run: Run, tmp_path: Path) -> None:
    assert lines(entered("items", "get", run.pk).out) == make_items(25)
    assert lines(entered("items", "get", "news/prices").out) == make_items(25)
    some = entered(
        "items", "get", run.pk, "--filter", "price:at_least:20", "--fields", "stock,title"
    )
    assert lines(some.out)[0] == {"stock": 6, "title": "Product 20"}
    csv = entered("items", "get", run.pk, "-f", "csv", "--fields", "title").out
    assert csv.splitlines()[:2] == ['"title"', '"Product 1"']
    for form, begin in (("parquet", b"PAR1"), ("xlsx", b"PK"), ("json", b"[\n")):
        to = tmp_path / f"items.{form}"
        assert entered("items", "get", run.pk, "-f", form, "--to", to).code == 0
        assert to.read_bytes().startswith(begin)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.slow("2 s")
@pytest.mark.covers("DS.6")
def test_a_download_goes_on_where_it_broke_off(
    entered: Crawlyard, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "_PAGE", 10)
    to = tmp_path / "items.jsonl"
    get = ("items", "get", run.pk, "--to", to, "--resume")
    assert entered(*get, "--limit", 10).code == 0
    # Half a line that a crash has left behind the last page.
    with to.open("ab") as file:
        file.write(b'{"url": "https')
    assert entered(*get).code == 0
    assert lines(to.read_text()) == make_items(25)
    store(run, make_items(3, start=26), first=26)
    assert entered(*get).err.endswith("3 items\n")
    assert lines(to.read_text()) == make_items(28)
    other = entered(*get, "--filter", "price:at_least:20")
    assert (other.code, "other items" in other.err) == (2, True)


@pytest.mark.slow("2 s")
@pytest.mark.covers("DS.6")
@pytest.mark.parametrize(
    "words",
    [
        ("--resume",),
        ("--limit", 3, "-f", "csv"),
        ("--filter", "price"),
        ("--filter", "nosuch:equals:1"),
        ("--sort", "nosuch"),
    ],
)
def test_what_cannot_work_is_said(entered: Crawlyard, run: Run, words: tuple[Any, ...]) -> None:
    said = entered("items", "get", run.pk, *words)
    assert said.code == 2
    assert said.err.startswith("error: ")
    assert not said.out


@pytest.mark.slow("2 s")
@pytest.mark.covers("DS.6")
def test_the_tail_follows_until_the_run_has_ended(entered: Crawlyard, run: Run) -> None:
    store(run, [HOSTILE], first=26)
    said = entered("items", "tail", run.pk, "-n", 3, "-f")
    assert [item["url"][-4:] for item in lines(said.out)] == ["p/24", "p/25", "/p/0"]
    assert not {"\x1b", "\x9b", "\u202e"} & set(said.out)


@pytest.mark.slow("2 s")
@pytest.mark.covers("DS.5", "DS.7", "DS.9")
def test_statistics_and_comparisons(entered: Crawlyard, run: Run) -> None:
    found = json.loads(entered("items", "stats", run.pk, "-o", "json").out)
    assert found["accounting"]["stored"] == 25
    assert "price" in entered("items", "stats", run.pk).out
    assert "Product 1" in entered("items", "stats", run.pk, "--field", "title").out
    later = make_run(job=run.job, state="exited")
    store(later, make_items(24, start=2, stock=1))
    assert entered("items", "compare", later.pk).code == 2
    Dataset.objects.update(key_fields=["url"])
    text = entered("items", "compare", later.pk).out
    assert '{"stock": 2}' in text
    removed = json.loads(
        entered("items", "compare", later.pk, "--kind", "removed", "-o", "json").out
    )
    assert (removed["old"], removed["removed"]) == (run.pk, 1)


@pytest.mark.slow("2 s")
def test_datasets(entered: Crawlyard, run: Run) -> None:
    assert "prices" in entered("datasets", "list", "-p", "news").out
    found = json.loads(entered("datasets", "show", "news/prices", "-o", "json").out)
    assert found["items"] == 25
    assert str(run.pk) in entered("datasets", "runs", "prices").out
    assert entered("datasets", "show", "nosuch").code == 4
    changed = entered("datasets", "retention", "prices", "--days", 30, "--bytes", 1, "-o", "json")
    assert json.loads(changed.out) == {"keep_days": 30, "keep_runs": None, "keep_bytes": 1}
    shown = entered("datasets", "retention", "prices", "--bytes", 0, "-o", "json")
    assert json.loads(shown.out) == {"keep_days": 30, "keep_runs": None, "keep_bytes": None}
    assert entered("datasets", "delete-run", "prices", run.pk).code == 0
    assert DatasetRun.objects.get().deleted_at is not None
    assert entered("datasets", "delete-run", "prices", run.pk + 1).code == 4
