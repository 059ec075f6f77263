"""Records extracted again from kept pages: exactly once, and without a connection."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.datasets.models import DatasetRun
from apps.datasets.queries.kept_pages import biz_page_accounting, biz_pages
from apps.datasets.services.kept_pages import sweep_pages
from apps.datasets.services.retention import expired_days, expired_runs
from apps.datasets.states import Kind
from apps.requeststore.daemon.work import DownloadedPage
from apps.requeststore.errors import (
    NoDestination,
    NothingKept,
    ReextractionEnded,
    ReextractionRunning,
)
from apps.requeststore.models import Reextraction
from apps.requeststore.services import reextractions
from apps.requeststore.services.reextractions import (
    cancel_reextraction,
    start_reextraction,
    sweep_reextractions,
    work_on_reextraction,
)
from apps.runtime.services.objects import shared_objects
from tests.requeststore.factories import save_bizzes
from tests.requeststore.kept_shop import NEW, OLD, Shop
from yardkit import failpoints

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("request_nodes"),
    pytest.mark.covers("OB.7"),
    pytest.mark.slow("children that read pages"),
]


@pytest.fixture(autouse=True)
def stores(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.OBJECTS_URL = f"file://{tmp_path}/objects"
    settings.DATA_DIR = tmp_path
    monkeypatch.setattr(reextractions, "BATCH", 2)


@pytest.fixture
def shop(stores: None, request_nodes: dict[str, str]) -> Shop:
    return Shop()


def work(row: Reextraction) -> Reextraction:
    """To its end, as workers do."""
    for _ in range(20):
        work_on_reextraction(row.pk, seconds=0)
        row.refresh_from_db()
        if row.state != "running":
            return row
    raise AssertionError(row.place)


def counts(row: Reextraction) -> tuple[int, int, int, int]:
    return row.done, row.failed, row.not_kept, row.records


def test_all_pages_are_read_again_with_the_new_rules_and_no_connection(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.change(rules=NEW)
    connections: list[Any] = []
    connect = socket.socket.connect

    def refused(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX:
            connections.append(address)
            raise AssertionError(f"a connection to {address}")
        connect(self, address)

    with monkeypatch.context() as blocked:
        blocked.setattr(socket.socket, "connect", refused)
        row = work(shop.start())
    assert (row.state, counts(row), row.reasons) == ("done", (5, 0, 0, 10), {})
    assert connections == []
    shop.write()
    items = shop.items()
    again = [item for item in items if "." in item.incarnation]
    assert len(items) == 5 + 10
    assert len({item.id for item in items}) == len(items)
    assert [item.data for item in again if item.incarnation == f"r{shop.ids[3]}.{row.pk}"] == [
        {"name": "A3", "price": 1, "_rule": "page", "_meta": {"shop": 7}},
        {"name": "B3", "price": 2, "_rule": "page", "_meta": {"shop": 7}},
    ]
    (note,) = AuditRecord.objects.filter(action="requeststore.extract_again")
    assert (note.actor_label, note.after["biz"]) == ("test", "news")


def test_a_batch_that_is_repeated_stores_nothing_twice(shop: Shop) -> None:
    point = "requeststore.reextraction.stored"
    shop.change(rules=NEW)
    row = shop.start()
    work_on_reextraction(row.pk, seconds=0)
    failpoints.configure({"FAILPOINTS": f"{point}=raise@1"})
    with pytest.raises(failpoints.FailpointError):
        work_on_reextraction(row.pk, seconds=0)
    failpoints.configure({})
    # The lease of the one that died.
    assert work_on_reextraction(row.pk, seconds=0) is None
    Reextraction.objects.update(owner="another-host 1")
    assert sweep_reextractions(now=timezone.now()) == 0
    Reextraction.objects.update(owner=f"{socket.gethostname()} {os.getpid()}")
    assert sweep_reextractions(now=timezone.now()) == 1
    row = work(row)
    shop.write()
    assert (row.state, counts(row)) == ("done", (5, 0, 0, 10))
    assert len(shop.items()) == 5 + 10
    of_biz = DatasetRun.objects.get(dataset__kind=Kind.ITEMS)
    assert (of_biz.stored, of_biz.duplicates) == (15, 4)


def test_selected_and_filtered_requests(shop: Shop) -> None:
    shop.change(rules=NEW)
    row = work(shop.start(ids=[*shop.ids[1:4], 12345]))
    assert (row.total, counts(row)) == (4, (3, 0, 1, 6))
    assert row.reasons == {"no such ended request": 1}
    assert counts(work(shop.start(flag=2))) == (0, 0, 0, 0)
    assert counts(work(shop.start(flag=1, until=shop.store.now() - 3_600_000))) == (0, 0, 0, 0)
    shop.write()
    assert len(shop.items()) == 5 + 6


def test_what_fails_and_what_is_not_kept_is_counted_with_its_reason(stores: None) -> None:
    lost = DownloadedPage("https://example.com/0", 404, [], b"<h1>gone</h1>")
    strict = {"page": {"fields": {"price": {"css": ".price", "required": True}}}}
    shop = Shop(3, {0: lost})
    assert biz_page_accounting(shop.project.pk, "news").as_dict() == {
        **{"chosen": 3, "kept": 3, "not_kept": 0, "waiting": 0, "deleted": 0, "reasons": {}}
    }
    shop.change(rules=strict, pages={"keep": "none"}, max_tries=1)
    shop.process(1)
    row = work(shop.start())
    assert counts(row) == (0, 3, 1, 0)
    assert row.reasons.pop("no kept page") == 1
    assert sum(row.reasons.values()) == 3
    for info in shared_objects().list("pages/"):
        shared_objects().delete([info.key])
    row = work(shop.start())
    assert counts(row) == (0, 0, 4, 0)
    (reason,) = (text for text in row.reasons if "its file is deleted" in text)
    assert row.reasons[reason] == 3


def test_pages_of_failed_extractions_are_kept_by_default_of_failed(stores: None) -> None:
    shop = Shop(0)
    strict = {"page": {"fields": {"title": {"css": ".none", "required": True}}}}
    shop.change(pages={"keep": "failed"})
    shop.process(2)
    assert biz_page_accounting(shop.project.pk, "news").kept == 0
    shop.change(rules=strict, max_tries=1)
    ids = shop.process(2)
    assert biz_page_accounting(shop.project.pk, "news").kept == 2
    shop.change(rules=NEW)
    row = work(shop.start(flag=2))
    assert counts(row) == (2, 0, 0, 4)
    # What the fetcher has done with them stays in their history.
    assert {found.request.flag for found in shop.store.find_many(shop.bound, ids).values()} == {2}


def test_one_at_a_time_can_be_cancelled_and_needs_pages(shop: Shop) -> None:
    row = shop.start()
    with pytest.raises(ReextractionRunning):
        shop.start()
    cancel_reextraction(row, actor_label="test")
    assert work_on_reextraction(row.pk) is None
    with pytest.raises(ReextractionEnded):
        cancel_reextraction(row)
    shop.change(records={"to": "nowhere"})
    with pytest.raises(NoDestination):
        shop.start()
    save_bizzes(shop.project, news=shop.settings | {"records": {}}, other={"rules": OLD})
    shop.store.wake()
    shop.store.poll()
    with pytest.raises(NothingKept):
        start_reextraction(project_id=shop.project.pk, biz="other")
    running = shop.start()
    save_bizzes(shop.project, other={"rules": OLD})
    shop.store.wake()
    running = work(running)
    assert (running.state, bool(running.problem)) == ("failed", True)


def test_pages_are_deleted_after_their_days(shop: Shop) -> None:
    dataset = biz_pages(shop.project.pk, "news")
    assert dataset is not None
    assert dataset.keep_days == 30
    assert [info.key.rpartition("/")[0] for info in shared_objects().list("pages/")] == [
        f"pages/p{shop.project.pk}/biz-{dataset.pk}"
    ]
    now = timezone.now()
    later = now + timedelta(days=30.5)
    assert list(expired_runs(dataset, later)) == []
    assert expired_days(dataset, now) == []
    assert sweep_pages(now=later) == 0
    assert sweep_pages(now=now + timedelta(days=31.1)) == 1
    assert list(shared_objects().list("pages/")) == []
    shop.process(1)
    dataset.delete()
    assert sweep_pages(now=now + timedelta(days=1.1)) == 1
