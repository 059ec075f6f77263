"""Items over REST: pages, formats, statistics, comparison; nothing of other projects."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from typing import Any

import pyarrow.parquet
import pytest
from rest_framework.test import APIClient

from apps.access.states import Role
from apps.datasets.engine.filters import FilterOp, ItemFilter
from apps.datasets.engine.item_types import ItemQuery
from apps.datasets.models import Dataset
from apps.datasets.queries.items import open_reader
from apps.datasets.services.files import store_chunk
from tests.access.factories import enter, make_user
from tests.datasets.deliveries import make_delivery
from tests.datasets.factories import NOW, make_chunks, make_items, store
from tests.jobs.factories import make_job, make_run

pytestmark = pytest.mark.django_db(transaction=True)


def client_of(user: Any) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client


def member(project: Any, role: Role) -> Any:
    return make_user(roles={project: role})


def content(response: Any) -> bytes:
    assert response.status_code == 200, response.content

    async def read() -> bytes:
        return b"".join([piece async for piece in response.streaming_content])

    return asyncio.run(read())


@pytest.fixture
def run() -> Any:
    run = make_run()
    store(run, [*make_items(20), {"url": "=1+1", "title": '<script>"x', "price": -1, "stock": 1}])
    return run


@pytest.mark.covers("DS.6")
def test_pages_follow_each_other(run: Any) -> None:
    client = client_of(member(run.job.project, Role.VIEWER))
    found, cursor = [], ""
    while True:
        query = {"limit": 8, "cursor": cursor} if cursor else {"limit": 8}
        page = client.get(f"/api/v1/runs/{run.pk}/items", query).json()
        found += page["results"]
        cursor = page["next"]
        if cursor is None:
            break
    assert [row["item"] for row in found][:20] == make_items(20)
    assert len({row["id"] for row in found}) == 21
    some = client.get(
        f"/api/v1/runs/{run.pk}/items",
        {"filter": ["stock:equals:3", "price:at_least:10"], "fields": "title", "sort": "-price"},
    ).json()
    assert [row["item"] for row in some["results"]] == [
        {"title": "Product 17"},
        {"title": "Product 10"},
    ]


@pytest.mark.covers("DS.6")
def test_every_format_has_every_item(run: Any) -> None:
    client = client_of(member(run.job.project, Role.VIEWER))
    path = f"/api/v1/runs/{run.pk}/items"
    lines = content(client.get(path, {"format": "jsonl"})).splitlines()
    assert [json.loads(line) for line in lines][:20] == make_items(20)
    array = json.loads(content(client.get(path, {"format": "json", "download": "1"})))
    assert len(array) == 21
    csv = content(client.get(path, {"format": "csv", "fields": "url,price,stock"})).decode()
    assert csv.splitlines()[0] == '"url","price","stock"'
    assert csv.splitlines()[1] == '"https://shop.example/p/1",1.5,1'
    assert csv.splitlines()[-1].startswith('"\'=1+1",')
    table = pyarrow.parquet.read_table(io.BytesIO(content(client.get(path, {"format": "parquet"}))))
    assert (table.num_rows, table.column_names[0]) == (21, "url")
    book = content(client.get(path, {"format": "xlsx"}))
    assert book[:2] == b"PK"


@pytest.mark.covers("DS.6")
@pytest.mark.parametrize(
    "query",
    [
        {"filter": "price"},
        {"filter": "price:about:3"},
        {"filter": "nosuch:equals:3"},
        {"sort": "nosuch"},
        {"cursor": "zz"},
        {"limit": "0"},
        {"limit": "x"},
        {"fields": "nosuch", "format": "csv"},
        # Before the answer begins, also where a file begins with a head.
        {"filter": "nosuch:equals:3", "format": "csv"},
        {"cursor": "zz", "format": "csv"},
        {"filter": "nosuch:equals:3", "format": "json", "download": "1"},
        {"sort": "nosuch", "format": "xlsx"},
        {"cursor": "zz", "format": "parquet"},
        {"latest": "true", "format": "csv"},
    ],
)
def test_bad_queries_say_what_is_wrong(run: Any, query: dict[str, str]) -> None:
    client = client_of(member(run.job.project, Role.VIEWER))
    answer = client.get(f"/api/v1/runs/{run.pk}/items", query)
    assert answer.status_code == 400, answer.content
    assert json.loads(answer.content)["detail"]


@pytest.mark.covers("DS.2")
def test_the_accounting_and_the_fields(run: Any) -> None:
    client = client_of(member(run.job.project, Role.VIEWER))
    accounting = client.get(f"/api/v1/runs/{run.pk}/items/accounting").json()
    assert accounting["yielded"] == accounting["stored"] == 21
    assert accounting["in_flight"] == accounting["rejected"] == accounting["dropped"] == 0
    fields = {row["field"]: row for row in client.get(f"/api/v1/runs/{run.pk}/items/fields").json()}
    assert (fields["tags"]["count"], fields["tags"]["types"]) == (20, ["json"])
    assert fields["price"]["low"] == "-1"
    values = client.get(f"/api/v1/runs/{run.pk}/items/values", {"field": "stock"}).json()
    assert values["count"] == 21
    assert sum(number for _low, _high, number in values["bins"]) == 21


@pytest.mark.covers("DS.7", "DS.8")
def test_two_runs_are_compared(run: Any) -> None:
    editor = client_of(member(run.job.project, Role.EDITOR))
    later = make_run(job=run.job)
    store(later, make_items(19, start=2))
    dataset = Dataset.objects.get()
    refused = editor.get(f"/api/v1/runs/{later.pk}/compare")
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_item_query")
    changed = editor.patch(f"/api/v1/datasets/{dataset.pk}", {"key_fields": ["url"]}, format="json")
    assert changed.status_code == 200, changed.content
    found = editor.get(f"/api/v1/runs/{later.pk}/compare", {"kind": "removed"}).json()
    assert (found["old"], found["added"], found["removed"], found["equal"]) == (run.pk, 0, 2, 19)
    assert sorted(row["key"] for row in found["results"]) == [
        ["=1+1"],
        ["https://shop.example/p/1"],
    ]
    history = editor.get(
        f"/api/v1/datasets/{dataset.pk}/history", {"key": "https://shop.example/p/5"}
    ).json()
    assert [row["run"] for row in history["results"]] == [later.pk, run.pk]


@pytest.mark.covers("DS.9")
def test_settings_that_cannot_work_are_refused(run: Any) -> None:
    editor = client_of(member(run.job.project, Role.EDITOR))
    path = f"/api/v1/datasets/{Dataset.objects.get().pk}"
    for values, field in (
        ({"item_schema": {"type": "nope"}}, "item_schema"),
        ({"checks": [{"check": "fill_rate", "field": "price", "value": 3}]}, "checks"),
        ({"key_fields": ["a", "a"]}, "key_fields"),
    ):
        answer = editor.patch(path, values, format="json")
        assert answer.status_code == 422, answer.content
        assert field in answer.json()["fields"]


def test_nothing_of_other_projects(run: Any) -> None:
    stranger = client_of(member(make_job().project, Role.ADMIN))
    dataset = Dataset.objects.get()
    for path in (
        f"runs/{run.pk}/items",
        f"runs/{run.pk}/items/accounting",
        f"runs/{run.pk}/items/fields",
        f"runs/{run.pk}/compare",
        f"datasets/{dataset.pk}",
        f"datasets/{dataset.pk}/items",
        f"datasets/{dataset.pk}/history",
    ):
        assert stranger.get(f"/api/v1/{path}").status_code == 404, path
    assert stranger.get("/api/v1/datasets").json()["results"] == []


@pytest.mark.covers("DS.6")
def test_a_run_without_items_has_empty_files() -> None:
    run = make_run()
    client = client_of(member(run.job.project, Role.VIEWER))
    path = f"/api/v1/runs/{run.pk}/items"
    assert client.get(path).json() == {"results": [], "next": None, "last": None}
    assert json.loads(content(client.get(path, {"format": "json", "download": "1"}))) == []
    table = pyarrow.parquet.read_table(io.BytesIO(content(client.get(path, {"format": "parquet"}))))
    assert table.num_rows == 0
    assert content(client.get(path, {"format": "xlsx"}))[:2] == b"PK"


@pytest.mark.covers("DS.11")
def test_operators_pin_the_data_of_a_run(run: Any) -> None:
    path = f"/api/v1/datasets/{Dataset.objects.get().pk}/runs/{run.pk}"
    viewer = client_of(member(run.job.project, Role.VIEWER))
    assert viewer.patch(path, {"pinned": True}, format="json").status_code == 403
    operator = client_of(member(run.job.project, Role.OPERATOR))
    assert operator.patch(path, {"pinned": True}, format="json").json()["pinned"] is True
    assert operator.patch(path, {"pinned": False}, format="json").json()["pinned"] is False
    assert operator.patch(path, {}, format="json").status_code == 400


@pytest.mark.covers("DS.6")
@pytest.mark.parametrize("export", ["jsonl", "csv", "json", "parquet"])
def test_texts_are_compressed_for_clients_that_accept_it(run: Any, export: str) -> None:
    client = client_of(member(run.job.project, Role.VIEWER))
    path = f"/api/v1/runs/{run.pk}/items"
    query = {"format": export, "download": "1"}
    plain = client.get(path, query)
    packed = client.get(path, query, headers={"Accept-Encoding": "br, gzip"})
    assert "Content-Encoding" not in plain
    found, known = content(packed), content(plain)
    if export == "parquet":
        assert "Content-Encoding" not in packed
        assert found[:4] == known[:4] == b"PAR1"
        return
    assert (packed["Content-Encoding"], packed["Vary"]) == ("gzip", plain["Vary"])
    assert "Accept-Encoding" in packed["Vary"]
    assert gzip.decompress(found) == known


@pytest.mark.covers("DS.6")
def test_a_count_begins_at_the_cursor(run: Any) -> None:
    with open_reader(Dataset.objects.get()) as reader:
        for sort in ("", "-price"):
            cursor = reader.page(ItemQuery(limit=8, sort=sort)).next
            assert reader.count(ItemQuery(sort=sort, after=cursor)) == 13
            some = (ItemFilter("price", FilterOp.AT_LEAST, 10),)
            assert reader.count(ItemQuery(sort=sort, filters=some)) == 11


@pytest.mark.slow("4 s")
@pytest.mark.covers("DS.5")
def test_lists_cost_the_same_however_long(
    run: Any, django_assert_max_num_queries: Any, settings: Any, tmp_path: Any
) -> None:
    settings.RECORDS_URL = f"sqlite:///{tmp_path}/records.sqlite3"
    dataset = Dataset.objects.get()
    make_delivery(dataset)
    for chunk in make_chunks(run, "first.png", b"x"):
        assert store_chunk(chunk=chunk, now=NOW) == ""
    user = make_user(roles={run.job.project: Role.EDITOR}, is_staff=True)
    rest, pages = client_of(user), enter(user)

    def costs() -> dict[str, int]:
        found = {}
        for client, address in (
            (rest, "/api/v1/datasets"),
            (rest, f"/api/v1/datasets/{dataset.pk}/runs"),
            (rest, f"/api/v1/datasets/{dataset.pk}/deliveries"),
            (rest, f"/api/v1/runs/{run.pk}/items"),
            (rest, f"/api/v1/runs/{run.pk}/files"),
            (rest, f"/api/v1/runs/{run.pk}/items/accounting"),
            (pages, "/data"),
            (pages, f"/data/{dataset.pk}"),
            (pages, f"/data/{dataset.pk}/deliveries"),
            (pages, f"/runs/{run.pk}/data"),
            (pages, f"/runs/{run.pk}/files"),
        ):
            # The first one fills caches.
            client.get(address)
            with django_assert_max_num_queries(20) as asked:
                assert client.get(address).status_code == 200
            found[address] = len(asked)
        return found

    few = costs()
    for number in range(5):
        store(make_run(job=run.job), make_items(3))
        store(make_run(job=make_job(project=run.job.project)), make_items(3))
        make_delivery(dataset, name=f"copy {number}", options={"table": f"t{number}"})
        for chunk in make_chunks(run, f"{number}.png", b"x"):
            assert store_chunk(chunk=chunk, now=NOW) == ""
    store(run, make_items(60, 100), first=100)
    assert costs() == few
