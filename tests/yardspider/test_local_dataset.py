"""``--local --dataset FOLDER``: the platform's files on the machine of a spider's author."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from tests.yardspider.commands import Done, run
from tests.yardspider.sites import HTML, serve
from yardkit.items.columns import SYSTEM
from yardkit.items.segments import system_type
from yardspider import local_dataset
from yardspider.errors import BadInput, RunFailed
from yardspider.files import RunFile
from yardspider.local_dataset import LocalDataset

SPIDER = """
from yardspider import Spider

class Shop(Spider):
    def start(self):
        yield {"n": 0, "from": "start"}
        for number in range(1, 4):
            yield {"n": number, "price": self.arguments["price"], "tags": ["a", number]}
        yield {"cover": self.files.put("covers/1.jpg", b"jpeg")}
"""


def rows(folder: Path, columns: str = "*", where: str = "true") -> list[Any]:
    # The documented line.
    query = f"SELECT {columns} FROM read_parquet('{folder}/segments/*/*.parquet', union_by_name = true) WHERE {where} ORDER BY _run, _seq"  # noqa: E501, S608 - as a reader types it
    return duckdb.sql(query).fetchall()


def shop(folder: Path, *options: str) -> Done:
    (folder / "shop.py").write_text(SPIDER)
    return run(folder, "run", "shop:Shop", "--local", "--argument", "price=5", *options)


@pytest.mark.slow("4 s")
@pytest.mark.covers("DS.4", "DS.12")
def test_a_local_run_writes_what_the_platform_writes(tmp_path: Path) -> None:
    for _ in range(2):
        done = shop(tmp_path, "--dataset", "shop")
        assert done.status == 0, done.errors
    folder = tmp_path / "shop"
    assert rows(folder, '_run, _incarnation, _seq, n, "from", price, tags, _url') == [
        *[
            (run, "local", seq, n, begin, price, tags, "")
            for run in (1, 2)
            for seq, (n, begin, price, tags) in enumerate(
                [
                    (0, "start", None, None),
                    (1, None, "5", '["a",1]'),
                    (2, None, "5", '["a",2]'),
                    (3, None, "5", '["a",3]'),
                    (None, None, None, None),
                ],
                1,
            )
        ]
    ]
    assert rows(folder, "_item, cover", "cover IS NOT NULL AND _run = 1") == [
        ('{"cover":"crawlyard-file:covers/1.jpg"}', "crawlyard-file:covers/1.jpg")
    ]
    for number in (1, 2):
        assert (folder / f"files/run-{number}/covers/1.jpg").read_bytes() == b"jpeg"
    (segment,) = (folder / "segments/run-1").iterdir()
    schema = pq.read_schema(segment)
    # As in a segment of the platform: all but the number of the batch.
    assert schema.names[: len(SYSTEM) - 1] == [name for name in SYSTEM if name != "_batch"]
    for name in schema.names[: len(SYSTEM) - 1]:
        assert schema.field(name).type == system_type(name)


@pytest.mark.slow("2 s")
@pytest.mark.covers("DS.4")
def test_a_page_of_an_item_is_its_url(tmp_path: Path) -> None:
    with serve({"/": (200, HTML, b"x")}) as site:
        (tmp_path / "one.py").write_text(
            "from yardspider import Spider\n"
            "class One(Spider):\n"
            f"    start_urls = ['{site.url}/']\n"
            "    def parse(self, response):\n"
            "        yield {'status': response.status}\n"
        )
        done = run(tmp_path, "run", "one:One", "--local", "--dataset", "one")
        assert done.status == 0, done.errors
        assert rows(tmp_path / "one", "_url, status") == [(f"{site.url}/", 200)]


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_dataset, "SEGMENT_ITEMS", 10)


def fill(dataset: LocalDataset, items: Iterator[dict[str, Any]]) -> None:
    for item in items:
        dataset.add(item, "http://h/")
    asyncio.run(dataset.finish(1.0))


@pytest.mark.covers("DS.4")
@pytest.mark.usefixtures("small_segments")
def test_columns_stay_the_same_over_segments_and_runs(tmp_path: Path) -> None:
    fill(LocalDataset(tmp_path, {}), ({"n": number} for number in range(25)))
    fill(LocalDataset(tmp_path, {}), ({"n": f"{number}", "m": 1.5} for number in range(5)))
    assert len(list((tmp_path / "segments/run-1").iterdir())) == 3
    found = duckdb.sql(
        f"SELECT _run, count(*), sum(n), count(n__string), sum(m) FROM "  # noqa: S608
        f"read_parquet('{tmp_path}/segments/*/*.parquet', union_by_name = true) "
        "GROUP BY _run ORDER BY _run"
    ).fetchall()
    assert found == [(1, 25, sum(range(25)), 0, None), (2, 5, None, 5, 7.5)]


def test_items_that_cannot_be_stored_are_dropped(tmp_path: Path) -> None:
    dropped: dict[str, int] = {}
    item: dict[str, Any] = {}
    item["itself"] = item
    fill(LocalDataset(tmp_path, dropped), iter([item, {"n": 1}]))
    assert sum(dropped.values()) == 1
    assert rows(tmp_path, "n") == [(1,)]


@pytest.mark.fault
@pytest.mark.usefixtures("small_segments")
def test_a_folder_that_goes_away_fails_the_run(tmp_path: Path) -> None:
    dataset = LocalDataset(tmp_path / "shop", {})
    (tmp_path / "shop").rename(tmp_path / "moved")
    with pytest.raises(RunFailed, match=r"cannot write .*00001\.parquet: No such file"):
        fill(dataset, ({"n": number} for number in range(25)))


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="cannot use the dataset"):
        LocalDataset(tmp_path / "file", {})
    (tmp_path / "columns.json").write_text("{")
    with pytest.raises(BadInput, match="cannot use the dataset"):
        LocalDataset(tmp_path, {})


@pytest.mark.covers("DS.12")
def test_a_file_of_the_same_name_replaces_the_first(tmp_path: Path) -> None:
    dataset = LocalDataset(tmp_path, {})
    for content in (b"one", b"two"):
        dataset.put_file(RunFile("a/b.txt", content, None))
    assert (tmp_path / "files/run-1/a/b.txt").read_bytes() == b"two"
    assert [path.name for path in (tmp_path / "files/run-1/a").iterdir()] == ["b.txt"]


def test_output_and_dataset_exclude_each_other(tmp_path: Path) -> None:
    done = shop(tmp_path, "--dataset", "shop", "--output", "shop.jsonl")
    assert done.status == 2
    assert "not allowed with argument" in done.errors


@pytest.mark.covers("DS.12")
def test_without_a_dataset_files_are_not_kept_and_the_log_says_so(tmp_path: Path) -> None:
    done = shop(tmp_path, "--output", "shop.jsonl")
    assert done.status == 0, done.errors
    assert done.errors.count("files are not kept") == 1
    assert len((tmp_path / "shop.jsonl").read_text().splitlines()) == 5
