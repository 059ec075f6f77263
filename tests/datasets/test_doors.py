"""Values of items are data at every door: pages and REST, whatever is asked."""

from __future__ import annotations

import asyncio
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rest_framework.test import APIClient

from apps.access.states import Role
from apps.datasets.engine.filters import FilterOp
from apps.datasets.models import Dataset
from tests.access.factories import make_user
from tests.datasets.factories import make_items, store
from tests.jobs.factories import make_run
from tests.plugins.long_tests import examples

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.covers("DS.5", "DS.6")]

MARK = "zq9evil"
SCRIPT = f'"><script>{MARK}()</script><img src=x onerror={MARK}()>'
HOSTILE = {
    "url": f"javascript:{MARK}()",
    "title": SCRIPT,
    "price": "=cmd|' /C calc'!A0",
    "image": f"data:text/html,<script>{MARK}()</script>",
    f"f{SCRIPT}": "x\x1b[2J\u202e",
    "a' OR 1=1 --": 'x"; DROP TABLE items; --',
    "link": f'https://shop.example/"onmouseover="{MARK}()',
}


class Dangers(HTMLParser):
    """Collects what a browser would run, or open by a click, of the mark."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            address = re.sub(r"[\s\x00-\x1f]", "", (value or "").lower())
            if name.startswith("on") or (
                name in ("href", "src", "action", "formaction")
                and address.startswith(("javascript:", "data:", "vbscript:"))
            ):
                self.found.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script" and MARK in data:
            self.found.append(data)


@pytest.fixture
def runs() -> list[Any]:
    """Two runs of a dataset with a key, whose items differ."""
    first = make_run()
    second = make_run(job=first.job)
    store(first, [*make_items(20), HOSTILE])
    store(second, [*make_items(19), {**HOSTILE, "price": 7}])
    Dataset.objects.update(key_fields=["title"], name=f"data {SCRIPT}"[:60])
    return [first, second]


@pytest.mark.slow("3 s")
def test_no_page_runs_what_an_item_says(runs: list[Any]) -> None:
    run = runs[1]
    user = make_user(roles={run.job.project: Role.ADMIN}, is_staff=True)
    client = Client()
    client.force_login(user)
    dataset = Dataset.objects.get()
    field = f"f{SCRIPT}"
    addresses = [
        f"/runs/{run.pk}/data",
        f"/runs/{run.pk}/data?{urlencode({'values': field})}",
        f"/runs/{run.pk}/data?{urlencode({'field': field, 'op': 'contains', 'value': SCRIPT})}",
        f"/runs/{run.pk}/data/live",
        f"/runs/{run.pk}/compare?kind=changed",
        f"/runs/{run.pk}/files?{urlencode({'name': SCRIPT})}",
        f"/data/{dataset.pk}",
        f"/data/{dataset.pk}/settings",
        f"/data/{dataset.pk}/deliveries",
        "/data",
    ]
    shown = 0
    for address in addresses:
        response = client.get(address, follow=True)
        assert response.status_code == 200, address
        text = response.content.decode()
        shown += MARK in text
        dangers = Dangers()
        dangers.feed(text)
        assert not [each for each in dangers.found if MARK in each], address
        assert f"<script>{MARK}" not in text
    assert shown >= 5


FIELDS = st.sampled_from(["url", "title", "price", "stock", "tags", *HOSTILE, "", "_run", "none"])
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from([*map(str, HOSTILE.values()), "%", "_", "'", '"', "\\", "1e400", "nan", "-1"]),
)
FILTERS = st.tuples(FIELDS, st.sampled_from([*FilterOp.__members__.values(), "like"]), TEXTS).map(
    lambda parts: ":".join(map(str, parts))
)
QUERIES = st.fixed_dictionaries(
    {},
    optional={
        "format": st.sampled_from(["json", "jsonl", "csv", "xlsx", "parquet", "exe"]),
        "fields": st.lists(FIELDS, max_size=3).map(",".join),
        "filter": st.lists(FILTERS | TEXTS, max_size=3),
        "text": TEXTS,
        "sort": st.tuples(st.sampled_from(["", "-"]), FIELDS).map("".join) | TEXTS,
        "latest": st.sampled_from(["true", "1", "maybe"]),
        "limit": st.sampled_from(["1", "5", "1000", "0", "-1", "x", "99999999999999999999"]),
        "newest": st.sampled_from(["true", "no"]),
        "cursor": TEXTS | st.integers(-1, 10**20).map(str),
        "download": st.just("1"),
    },
)


@pytest.mark.fuzz
def test_no_query_of_items_fails(runs: list[Any]) -> None:
    client = APIClient()
    client.force_authenticate(make_user(roles={runs[0].job.project: Role.VIEWER}))
    dataset = Dataset.objects.get()
    addresses = [
        f"/api/v1/runs/{runs[0].pk}/items",
        f"/api/v1/datasets/{dataset.pk}/items",
        f"/api/v1/runs/{runs[0].pk}/items/values",
        f"/api/v1/runs/{runs[1].pk}/compare",
        f"/api/v1/datasets/{dataset.pk}/history",
    ]
    statuses: set[int] = set()

    async def read(response: Any) -> bytes:
        return b"".join([piece async for piece in response.streaming_content])

    @settings(max_examples=examples(1000), deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.sampled_from(addresses),
        QUERIES,
        st.fixed_dictionaries(
            {},
            optional={"field": FIELDS, "kind": TEXTS, "with": TEXTS, "after": TEXTS, "key": TEXTS},
        ),
    )
    def ask(address: str, query: dict[str, Any], more: dict[str, Any]) -> None:
        response = client.get(f"{address}?{urlencode(query | more, doseq=True)}")
        assert response.status_code in (200, 400, 404, 409, 422), (query, more, response.content)
        statuses.add(response.status_code)
        if response.streaming:
            assert asyncio.run(read(response)) is not None
        elif response.status_code >= 400:
            assert "Traceback" not in response.content.decode()

    ask()
    assert {200, 400} <= statuses
