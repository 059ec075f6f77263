"""Fetchers keep pages; records are extracted from them again, also after SIGKILL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.agents.downloader.kept.warc import read_index
from tests.requeststore.daemon.fetcher_processes import Plant, urls
from tests.requeststore.daemon.pages_site import Site

pytestmark = [
    pytest.mark.slow("fetchers as processes"),
    pytest.mark.timeout(240),
    pytest.mark.covers("OB.7"),
]
PAGES = 30


def written(folder: Path) -> int:
    """Pages in files of fetchers that are not complete."""

    def of(path: Path) -> Iterator[int]:
        with path.open("rb") as file:
            yield from (row["record"] for row in read_index(file))

    return sum(len(list(of(path))) for path in folder.rglob("*.open"))


@pytest.mark.fault
def test_records_are_extracted_again_once_after_kills(plant: Plant, site: Site) -> None:
    plant.save(kept={"pages": {"keep": "all"}})
    plant.start()
    ids = plant.submit("kept", *urls(site.url, range(PAGES)))
    plant.until_flags("kept", {1: PAGES})
    plant.until(lambda: written(plant.folder) == PAGES, "all pages on the disk")
    plant.kill()
    # It takes over the files of the killed one.
    plant.start("f2")
    plant.until(lambda: _kept(plant), "an index")
    plant.stop("f2")
    hits = site.hits.total()
    assert plant.rows("kept", "request_id", "title") == [
        (int(number), f"Title {at}") for at, number in enumerate(ids)
    ]
    plant.save(kept={"pages": {"keep": "all"}, "rules": {"page": {"fields": {"name": "h1"}}}})
    plant.daemons.manage(
        *("requests", "extract", "kept", "--follow"),
        FAILPOINTS="requeststore.reextraction.stored=kill@1",
        status=-9,
    )
    done = plant.ask("go_on_extracting")
    assert done == {"state": "done", "done": PAGES, "failed": 0, "not_kept": 0, "records": PAGES}
    plant.daemons.manage("run_dataset_writer", "--once")
    found = plant.ask("items", number=plant.project, biz="kept")
    assert sorted(row["name"] for row in found if "name" in row) == sorted(
        f"Title {at}" for at in range(PAGES)
    )
    assert len(found) == 2 * PAGES
    assert site.hits.total() == hits


def _kept(plant: Plant) -> bool:
    plant.daemons.manage("run_dataset_writer", "--once")
    kept: int = plant.ask("pages_kept", number=plant.project, biz="kept")
    return kept == PAGES
