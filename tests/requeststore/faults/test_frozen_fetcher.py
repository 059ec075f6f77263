"""A fetcher that stands still beyond the deadline of what it has in hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.plugins.measurements import Measured
from tests.requeststore.daemon.fetcher_processes import Plant
from tests.requeststore.daemon.pages_site import Site

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    """On embedded stores."""
    with closing(Plant(tmp_path)) as made:
        yield made


@pytest.mark.covers("S4.22")
def test_what_is_anothers_by_now_is_neither_recorded_nor_ended(
    plant: Plant, site: Site, measured: Measured
) -> None:
    plant.save(
        still={"take_seconds": 2, "fetch": {"timeout_seconds": 1}, "records": {"to": "json_lines"}}
    )
    plant.start("f1", FAILPOINTS="fetcher.downloaded=stop:8@1")
    (one,) = plant.submit("still", f"{site.url}/p/1")
    plant.until(lambda: site.hits["/p/1"], "the first one has the page")
    plant.start("f2")

    def ended_by_another() -> bool:
        plant.ask("sweep")
        return plant.flags("still") == {"1": 1}

    plant.until(ended_by_another, "another does it")
    late = f"p{plant.project}.still"
    plant.until(
        lambda: plant.detail("f1").get("bizzes", {}).get(late, {}).get("late"), "the first wakes"
    )

    found = plant.find("still", one)[0]
    assert (found["tries"], found["flag"]) == (2, 1)
    assert [kind for kind, _text in found["steps"]].count("overdue") == 1
    folder = plant.folder / "data" / "records" / f"p{plant.project}" / "still"
    lines = [line for path in folder.iterdir() for line in path.read_text().splitlines()]
    ids = [json.loads(line)["request_id"] for line in lines]
    measured(of=1, lost=len({one} - set(ids)), twice=len(ids) - len(set(ids)))
    assert ids == [one]
