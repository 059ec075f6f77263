"""People of one project meet nothing of another one, whatever address of datasets they try."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from django.urls import URLPattern

from apps.access.states import Role
from apps.datasets import urls as pages
from apps.datasets.api import urls as rest
from apps.datasets.models import Dataset, DatasetRun, Delivery, DeliveryFailure, StoredFile
from apps.datasets.services.files import store_chunk
from tests.access.factories import Api, enter, make_user
from tests.datasets.deliveries import make_delivery
from tests.datasets.factories import NOW, make_chunks, make_items, store
from tests.jobs.factories import make_run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.covers("DS.5", "DS.6", "DS.10")]

SECRET: Final = "zqsecret"


class TwoProjects:
    """The IDs of what each of two projects has, and an administrator of the first one."""

    def __init__(self) -> None:
        self.own, self.other = self._made("own"), self._made(SECRET)
        self.run = DatasetRun.objects.get(dataset=self.own["dataset"]).run_number
        project = Dataset.objects.get(pk=self.own["dataset"]).project
        self.user = make_user(roles={project: Role.ADMIN}, is_staff=True)

    def _made(self, text: str) -> dict[str, int]:
        run = make_run(state="exited")
        store(run, make_items(3, title=text))
        for chunk in make_chunks(run, f"{text}.png", text.encode()):
            assert store_chunk(chunk=chunk, now=NOW) == ""
        dataset = Dataset.objects.get(origin_id=run.job_id)
        Dataset.objects.filter(pk=dataset.pk).update(name=f"data-{text}", key_fields=["url"])
        delivery = make_delivery(dataset, name=f"copy-{text}")
        DeliveryFailure.objects.create(
            delivery=delivery, run_number=run.pk, boot="b1", seq=1, item=text, reason=text
        )
        return {
            "dataset": dataset.pk,
            "run": run.pk,
            "job": run.job_id,
            "project": dataset.project_id,
            "delivery": delivery.pk,
            "file": StoredFile.objects.get(run_number=run.pk).pk,
        }


@pytest.fixture
def both(settings: Any, tmp_path: Any) -> TwoProjects:
    settings.RECORDS_URL = f"sqlite:///{tmp_path}/records.sqlite3"
    return TwoProjects()


def kind_of(pattern: str, name: str) -> str:
    """What a parameter of an address names."""
    if name != "pk":
        return name
    first = pattern.partition("/")[0]
    if "/deliveries/<int:pk>" in pattern:
        return "delivery"
    return {"runs": "run", "jobs": "job", "projects": "project"}.get(first, "dataset")


def addresses(patterns: list[Any], ids: list[dict[str, int]]) -> Iterator[str]:
    """Every address with IDs of the other project: all of them, or one of several."""
    for pattern in patterns:
        route = str(pattern.pattern) if isinstance(pattern, URLPattern) else ""
        names = list(pattern.pattern.converters)
        plain = [name for name in names if name not in ("what", "warc", "record")]
        for strange in range(1, 2 ** len(plain)):
            address = route
            for place, name in enumerate(plain):
                chosen = ids[(strange >> place) & 1]
                value = str(chosen[kind_of(route, name)])
                address = address.replace(f"<int:{name}>", value)
            address = address.replace("<slug:warc>", "w").replace("<int:record>", "0")
            yield address.replace("<slug:what>", "delete")


def routes_of_sets() -> list[str]:
    """Addresses of view sets, whose IDs are regular expressions."""
    return ["datasets/{dataset}", "datasets/{dataset}/runs", "datasets/{dataset}/history?key=x"]


def test_no_page_shows_or_changes_what_is_another_project_s(both: TwoProjects) -> None:
    client = enter(both.user)
    tried = list(addresses(pages.urlpatterns, [both.own, both.other]))
    assert len(tried) > 12
    for address in tried:
        for send in (client.get, client.post):
            answer = send(f"/{address}")
            assert answer.status_code in (403, 404, 405), address
            assert SECRET.encode() not in answer.content, address
    listed = client.get("/data").content
    assert b"data-own" in listed
    assert SECRET.encode() not in listed
    unchanged(both)


@pytest.mark.slow("3 s")
def test_no_call_of_rest_reads_or_changes_what_is_another_project_s(both: TwoProjects) -> None:
    api = Api(both.user)
    other = both.other
    plain = [pattern for pattern in rest.urlpatterns if "<int:" in str(pattern.pattern)]
    tried = list(addresses(plain, [both.own, other]))
    tried += [route.format(**other) for route in routes_of_sets()]
    tried += [
        f"datasets/{other['dataset']}/runs/{other['run']}",
        f"datasets/{both.own['dataset']}/runs/{other['run']}",
    ]
    assert len(tried) > 25
    for address in tried:
        for method in ("get", "post", "put", "patch", "delete"):
            body = None if method in ("get", "delete") else {"pinned": True, "name": "x"}
            answer = api.call(method, address.rstrip("/"), body)
            assert answer.status_code in (403, 404, 405), (method, address)
            assert SECRET.encode() not in answer.content, address
    for export in ("jsonl", "csv", "xlsx", "parquet", "json&download=1"):
        answer = api.get(f"runs/{other['run']}/items?format={export}")
        assert answer.status_code == 404, export
        assert SECRET.encode() not in answer.content
    for address in (f"runs/{both.run}/compare?with={other['run']}", "datasets"):
        assert SECRET.encode() not in api.get(address).content
    own = api.get(f"datasets/{both.own['dataset']}/items?filter=_run:equals:{other['run']}")
    assert own.json()["results"] == []
    unchanged(both)


def unchanged(both: TwoProjects) -> None:
    """Nothing of the other project was pinned, deleted, moved or paused."""
    row = DatasetRun.objects.get(run_number=both.other["run"])
    assert (row.pinned, row.deleted_at) == (False, None)
    delivery = Delivery.objects.get(pk=both.other["delivery"])
    assert (delivery.state, delivery.retry_to, delivery.position) == ("active", 0, 0)
    assert Dataset.objects.get(pk=both.other["dataset"]).key_fields == ["url"]
    # Those of the own project are untouched, since no address had only its IDs.
    assert Delivery.objects.count() == 2
