"""Programs of others that consume over REST, on embedded nodes and an embedded queue."""

from __future__ import annotations

import base64
from collections import Counter
from typing import Any

import pytest

from apps.access.states import Role
from apps.projects.models import Project
from apps.requeststore.engine.flags import EXPIRED, FAILED, NEW, PROCESSED, TAKEN
from apps.requeststore.services import leases
from apps.requeststore.services.store import RequestStore
from apps.requeststore.services.upkeep import Upkeep
from apps.requeststore.stores.base import NewRequest, QueueEntry
from tests.requeststore.api.conftest import Caller
from tests.requeststore.factories import save_bizzes

pytestmark = [pytest.mark.django_db, pytest.mark.covers("S4.20", "S4.22")]
URL = "https://example.com/"


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What was added to the rates."""
    total: Counter[str] = Counter()

    def count(series: str, *, project: int, label: str, amount: float = 1) -> None:
        total[series] += int(amount)

    monkeypatch.setattr(leases, "count", count)
    return total


def call(caller: Caller, what: str, status: int = 200, **body: Any) -> Any:
    given = {"project": caller.project.pk, "biz": "news", **body}
    answer = caller.post(f"requests/{what}", given)
    assert answer.status_code == status, answer.content
    return answer.json()


def lease_of(one: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {name: one[name] for name in ("id", "ts", "tries")} | more


def codes(answer: Any) -> list[str]:
    return [each["code"] for each in answer["results"]]


def flags(yard: RequestStore, project: Project) -> Counter[int]:
    found = yard.page(yard.biz(project.pk, "news"), limit=1000)
    return Counter(one.request.flag for one in found)


def upkeep(yard: RequestStore, later_ms: int = 0) -> None:
    Upkeep(yard).round(yard.now() + later_ms)


@pytest.mark.slow("1 s")
def test_requests_are_taken_finished_and_counted_once(
    caller: Caller, project: Project, yard: RequestStore, counted: Counter[str]
) -> None:
    body = base64.b64encode(b"\xff\x00").decode()
    caller.submit(
        {"url": f"{URL}a", "rule": "", "headers": {"Cookie": "s=1"}, "meta": {"shop": 7}},
        {"url": f"{URL}b", "method": "POST", "body_base64": body},
        *[f"{URL}{number}" for number in range(28)],
    )
    taken = call(caller, "take", limit=25)
    assert taken["max_tries"] == 3
    requests = taken["requests"]
    assert len(requests) == 25
    first, second = requests[:2]
    assert (first["url"], first["headers"], first["meta"]) == (
        f"{URL}a",
        {"Cookie": "s=1"},
        {"shop": 7},
    )
    assert (second["method"], second["body_base64"]) == ("POST", body)
    assert first["tries"] == 1
    assert first["deadline_at"] > "2026"
    assert flags(yard, project) == {TAKEN: 25, NEW: 5}

    ends = [lease_of(one, result={"status": 200}) for one in requests[:20]]
    ends += [lease_of(requests[20], flag=FAILED, text="no title"), lease_of(requests[21], flag=7)]
    assert codes(call(caller, "finish", requests=ends)) == ["done"] * 22
    assert codes(call(caller, "finish", requests=ends)) == ["repeated"] * 22
    assert counted == {"requests.processed": 22, "requests.failed": 1}
    assert flags(yard, project) == {PROCESSED: 20, FAILED: 1, 7: 1, TAKEN: 3, NEW: 5}

    back = [lease_of(one, text="maintenance") for one in requests[22:24]]
    assert codes(call(caller, "return", requests=back)) == ["done"] * 2
    assert flags(yard, project) == {PROCESSED: 20, FAILED: 1, 7: 1, TAKEN: 1, NEW: 7}
    again = call(caller, "take")["requests"]
    assert len(again) == 7
    assert sorted(one["tries"] for one in again) == [1] * 5 + [2] * 2
    assert call(caller, "take")["requests"] == []
    story = caller.show(f"requests/{requests[20]['id']}")
    assert story["state"] == "failed"
    assert story["steps"][-1]["text"] == "no title"
    assert story["owner"].startswith("rest:user")


def test_a_lease_that_ends_brings_the_request_back(
    caller: Caller, project: Project, yard: RequestStore
) -> None:
    caller.submit(URL, f"{URL}2")
    requests = call(caller, "take")["requests"]
    assert len(requests) == 2
    later = yard.biz(project.pk, "news").settings.take_seconds * 1000 + 1
    upkeep(yard, later)
    assert flags(yard, project) == {NEW: 2}
    assert codes(call(caller, "finish", requests=[lease_of(one) for one in requests])) == [
        "late",
        "late",
    ]
    again = call(caller, "take")["requests"]
    assert [one["tries"] for one in again] == [2, 2]
    assert codes(call(caller, "finish", requests=[lease_of(one) for one in again])) == [
        "done",
        "done",
    ]
    assert flags(yard, project) == {PROCESSED: 2}
    assert caller.show(f"bizzes/{project.pk}.news")["books"]["balanced"]


def test_only_the_one_that_has_the_lease_ends_a_request(caller: Caller, project: Project) -> None:
    caller.submit(URL)
    (one,) = call(caller, "take")["requests"]
    other = Caller(project)
    assert codes(call(other, "finish", requests=[lease_of(one)])) == ["late"]
    assert codes(call(other, "return", requests=[lease_of(one)])) == ["late"]
    unknown = lease_of(one) | {"id": "12345"}
    assert codes(call(caller, "finish", requests=[unknown, lease_of(one)])) == ["unknown", "done"]


def test_json_that_another_program_has_stored_is_taken(
    caller: Caller, project: Project, yard: RequestStore
) -> None:
    bound = yard.biz(project.pk, "news")
    now = yard.now()
    data = b' {"url": "https://example.com/j", "body": "/wA=", "meta": {"a": [1]}}'
    for number, bytes_ in ((4, data), (8, b'{"address": 1}')):
        place = bound.candidates(number, now)[0]
        yard.ensure(bound, place)
        yard.node(place.node).insert(
            place.shard, [NewRequest(number, "news", now, bytes_)], by="theirs", now=now
        )
    yard.queue(bound).push([QueueEntry(4, "news", now), QueueEntry(8, "news", now)])
    (one,) = call(caller, "take")["requests"]
    assert (one["id"], one["url"], one["meta"]) == ("4", "https://example.com/j", {"a": [1]})
    assert base64.b64decode(one["body_base64"]) == b"\xff\x00"
    assert caller.show("requests/8")["state"] == "failed"
    assert "url" in caller.show("requests/8")["steps"][-1]["text"]


def test_what_is_wrong_is_refused(caller: Caller, project: Project, yard: RequestStore) -> None:
    viewer = Caller(project, Role.VIEWER)
    for what in ("take", "finish", "return"):
        assert call(viewer, what, status=403, requests=[])["code"] == "role_required"
        assert call(caller, what, status=404 if what == "take" else 400, biz="no")["code"]
    lease = {"id": "1", "ts": 1, "tries": 1}
    assert call(caller, "finish", status=404, biz="no", requests=[lease])["code"] == "unknown_biz"
    for bad in ({"flag": 0}, {"flag": -2}, {"flag": 1000}, {"id": "x"}, {"id": "0"}, {"tries": 0}):
        call(caller, "finish", status=400, requests=[lease | bad])
    large = {"result": {"a": "x" * 70_000}}
    call(caller, "finish", status=400, requests=[lease | large])
    call(caller, "take", status=400, limit=1001)
    save_bizzes(project, news={"enabled": False})
    yard.wake()
    assert call(caller, "take", status=409)["code"] == "biz_disabled"


def test_what_has_expired_is_not_handed_out(
    caller: Caller, project: Project, yard: RequestStore
) -> None:
    caller.submit(URL)
    (one,) = call(caller, "take")["requests"]
    bound = yard.biz(project.pk, "news")
    upkeep(yard, bound.settings.ttl_seconds * 1000 + 1000)
    assert flags(yard, project) == {EXPIRED: 1}
    assert codes(call(caller, "finish", requests=[lease_of(one)])) == ["late"]
