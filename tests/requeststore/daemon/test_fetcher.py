"""A fetcher as a process: what is stored becomes records (seed S4.20, S4.21)."""

from __future__ import annotations

import pytest

from tests.requeststore.daemon.pages_site import Site
from tests.requeststore.daemon.plant import Plant, urls

pytestmark = pytest.mark.timeout(240)
QUICK = {"retry_seconds": 1, "max_tries": 2}


@pytest.mark.covers("S4.20", "S4.21", "S4.13", "S4.10")
def test_requests_become_records_and_are_marked(plant: Plant, site: Site) -> None:
    plant.start()
    plant.save(first={})
    ids = plant.submit("first", *urls(site.url, range(20)), meta={"shop": 1})
    plant.until_flags("first", {1: 20})

    rows = plant.rows("first", "request_id, position, title, price, rule, url, meta")
    assert rows == [
        (int(one), 0, f"Title {n}", n, "page", f"{site.url}/p/{n}", '{"shop":1}')
        for n, one in enumerate(ids)
    ]
    found = plant.find("first", ids[0])[0]
    result = found["result"]
    assert (result["status"], result["records"]) == (200, 1)
    assert result["bytes"] > 100
    assert result["ms"] >= 0
    assert [kind for kind, _text in found["steps"]] == ["stored", "queued", "taken", "finished"]
    plant.until(lambda: plant.waiting("first")[0] == 0, "an empty queue")
