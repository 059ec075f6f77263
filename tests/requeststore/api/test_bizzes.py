"""Bizzes over REST: what they are, how they stand, re-balancing, and trying again."""

from __future__ import annotations

import pytest
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.projects.models import Project
from apps.requeststore.models import ClosedSlice, ShardReport
from apps.requeststore.services.rebalances import work_on_rebalance
from apps.requeststore.services.store import RequestStore
from tests.access.factories import make_project
from tests.requeststore.api.conftest import Caller
from tests.requeststore.api.test_requests import URL, process
from tests.requeststore.factories import save_bizzes

pytestmark = pytest.mark.django_db


def test_a_biz_tells_its_physical_names_and_its_books(caller: Caller, project: Project) -> None:
    caller.submit(*(f"{URL}{number}" for number in range(40)))
    ShardReport.objects.filter(project=project).update(by_flag={"0": 2, "-1": 1, "7": 3})
    shards = ShardReport.objects.filter(project=project).count()
    ClosedSlice.objects.create(
        project=project,
        biz="news",
        node="default",
        database="d",
        collection="c",
        start_at=timezone.now(),
        seconds=600,
        by_flag={"1": 100, "-2": 5},
    )
    (row,) = caller.show("bizzes")["results"]
    assert row["id"] == f"{project.pk}.news"
    assert row == caller.show(f"bizzes/{row['id']}")
    assert row["queue"] == f"p{project.pk}.news"
    assert len(row["places"]) == 4
    assert row["places"][1] == {
        "node": "second",
        "database": f"crawlyard_p{project.pk}_news",
        "collection": "requests_001",
    }
    books = row["books"]
    assert books["stored"] == 6 * shards + 105
    assert (books["new"], books["taken"], books["expired"]) == (2 * shards, shards, 5)
    assert books["by_flag"] == {"1": 100, "7": 3 * shards}
    assert books["balanced"] is True
    for wrong in ("news", f"{project.pk}.shop", f"{project.pk}.News", "9" * 18 + ".news"):
        assert caller.get(f"bizzes/{wrong}").status_code == 404


@pytest.mark.slow("2 s")
@pytest.mark.covers("S4.14")
def test_a_rebalance_is_previewed_begun_watched_and_ended(
    caller: Caller, project: Project, yard: RequestStore
) -> None:
    editor = Caller(project, Role.EDITOR)
    answer = caller.submit(*(f"{URL}{number}" for number in range(60)))
    address = f"bizzes/{project.pk}.news/rebalance"
    assert editor.post(address).json()["code"] == "nothing_to_rebalance"
    four = {"splits": 4, "nodes": ["default", "second"]}
    save_bizzes(project, news={"epochs": [four, {"since": answer["ts"] + 1, "splits": 9}]})
    yard.wake()
    found = caller.show(address)
    assert (found["requests"], found["is_exact"], found["seconds"]) == (60, True, None)
    assert (found["before"]["splits"], found["epoch"]["splits"]) == (4, 9)
    assert sum(line["would_move"] for line in found["lines"]) == found["would_move"] > 20
    refused = caller.post(address)
    assert (refused.status_code, refused.json()["code"]) == (403, "role_required")
    begun = editor.post(address, Idempotency_Key="k1")
    assert begun.status_code == 202
    row = begun.json()
    assert editor.post(address, Idempotency_Key="k1").json() == row
    assert (row["state"], row["total"], row["project"]) == ("running", None, project.pk)
    assert editor.post(address).json()["code"] == "rebalance_running"
    work_on_rebalance(row["id"])
    ended = caller.show(f"rebalances/{row['id']}")
    assert (ended["state"], ended["moved"]) == ("done", found["would_move"])
    assert ended["seen"] == ended["total"] >= 60
    assert editor.post(f"rebalances/{row['id']}/cancel").json()["code"] == "rebalance_ended"
    assert len(caller.show("rebalances?biz=news&state=done")["results"]) == 1
    assert [caller.show(f"requests/{each}")["id"] for each in answer["ids"]] == answer["ids"]
    assert AuditRecord.objects.filter(action="requeststore.rebalance").count() == 1


def test_failed_requests_of_a_night_are_tried_again(
    caller: Caller, project: Project, yard: RequestStore
) -> None:
    answer = caller.submit(*(f"{URL}{number}" for number in range(6)))
    ids = list(map(int, answer["ids"]))
    for number, flag in zip(ids[:5], (2, 2, 2, 1, 7), strict=True):
        process(yard, project, number, answer["ts"], flag)
    address = f"bizzes/{project.pk}.news/reopen"
    viewer = Caller(project, Role.VIEWER).post(address)
    assert viewer.status_code == 403
    assert caller.post(address, {"until": answer["stored_at"]}).json()["reopened"] == 0
    found = caller.post(address, {"since": answer["stored_at"], "limit": 2}).json()
    assert found == {"reopened": 2, "more": True}
    assert caller.post(address).json() == {"reopened": 1, "more": False}
    assert caller.post(address).json() == {"reopened": 0, "more": False}
    named = caller.post(address, {"ids": [str(ids[3]), str(ids[5]), "1"]}).json()
    assert named == {"reopened": 1, "more": False}
    assert caller.post(address, {"flag": 7}).json()["reopened"] == 1
    story = caller.show(f"requests/{ids[0]}")
    kinds = [step["kind"] for step in story["steps"]]
    assert kinds[-2:] == ["reopened", "queued"]
    assert (story["state"], story["tries"], story["result"]) == ("new", 0, None)
    assert story["queued_at"] is not None
    process(yard, project, ids[0], answer["ts"])
    records = AuditRecord.objects.filter(action="requeststore.reopen", project=project)
    assert records.count() == 6
    for bad in ({"ids": ["x"]}, {"flag": 0}, {"limit": 0}, {"since": "x"}):
        assert caller.post(address, bad).status_code == 400, bad
    other = make_project()
    assert Caller(other, Role.ADMIN).post(address).status_code == 404
