"""Single seeds and many of them managed over REST, and operations followed."""

from __future__ import annotations

from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.seeds.models import Frontier, Operation
from apps.seeds.services import work_on_operation
from apps.seeds.states import OperationState
from tests.seeds.api.conftest import Caller, Service
from tests.seeds.factories import make_operation

pytestmark = pytest.mark.django_db

DAY = 1772323200000
NEXT_DAY = DAY + 24 * 3600 * 1000


def end(caller: Caller, outcome: str = "success", limit: int = 100) -> None:
    """Crawl what is due."""
    lease = caller.ask("lease", {"limit": limit})
    finishes = [
        {"segment": one["segment"], "key": one["key"], "outcome": outcome} for one in lease["seeds"]
    ]
    caller.ask("finish", {"generation": lease["generation"], "finishes": finishes})


def work(begun: dict[str, Any]) -> dict[str, Any]:
    """Do what a worker would; the operation as it is then."""
    for _ in range(20):
        if work_on_operation(begun["id"]) in (None, *OperationState.values[2:]):
            break
    return begun


def known(caller: Caller, key: str, segment: Any = 0) -> Any:
    return caller.ask("look-up", {"segment": segment, "key": key})["results"][0]["known"]


def test_a_seed_is_opened_again_and_forgotten(service: Service, caller: Caller) -> None:
    caller.ask("add", "x")
    assert caller.ask("reopen", {"key": "x"}, 409)["code"] == "seed_not_final"
    end(caller)
    assert caller.ask("reopen", {"key": "x"}) == {"segment": 0, "key": "x", "state": "init"}
    caller.ask("lease", {})
    assert caller.ask("forget", {"key": "x"}, 409)["code"] == "seed_in_use"
    assert caller.ask("reopen", {"key": "nothing"}, 404)["code"] == "unknown_key"
    caller.ask("add", "y")
    assert caller.ask("forget", {"key": "y"})["state"] is None
    assert known(caller, "y") is None
    actions = AuditRecord.objects.filter(action__startswith="seeds.").values_list("action")
    assert sorted(actions) == [("seeds.forget",), ("seeds.reopen",)]


def test_failed_seeds_are_crawled_again(service: Service, caller: Caller) -> None:
    caller.ask("add", [{"data": one, "active_at": DAY, "max_retry": 1} for one in "ab"])
    end(caller, "failure", 1)
    end(caller)

    body = {"segment": DAY, "target": "2026-03-02"}
    begun = caller.ask("reopen-failed", body, 202, Idempotency_Key="once")
    assert caller.ask("reopen-failed", body, 202, Idempotency_Key="once") == begun
    assert (begun["kind"], begun["state"], begun["project"]) == (
        "reopen_failed",
        "waiting",
        Frontier.objects.get().project_id,
    )
    work(begun)
    done = caller.get(f"seed-operations/{begun['id']}").json()
    assert (done["state"], done["result"]["reopened"]) == ("done", 1)
    assert known(caller, "a", NEXT_DAY)["state"] == "init"
    listed = caller.show("operations")["results"]
    assert [each["id"] for each in listed] == [begun["id"]]
    assert caller.get("seed-operations?state=done").json()["results"] == listed
    assert caller.get("seed-operations?state=running").json()["results"] == []


def test_a_segment_is_dropped_and_all_of_them(
    service: Service, caller: Caller, frontier: Frontier
) -> None:
    caller.ask("add", ["x", {"data": "x", "active_at": DAY}, {"data": "y", "active_at": DAY}])
    work(caller.ask("drop-segment", {"segment": "2026-03-01T00:00:00Z"}, 202))
    assert [each["segment"] for each in caller.show("stats?live=1")["results"]] == [0]
    assert caller.ask("wipe", {}, 400)["fields"].keys() == {"confirm"}
    assert caller.ask("wipe", {"confirm": "News"}, 400)["fields"].keys() == {"confirm"}
    work(caller.ask("wipe", {"confirm": frontier.name}, 202))
    assert caller.show("stats?live=1")["results"] == []
    assert caller.ask("add", "x")["new"] == 1


def test_a_segment_is_named_by_any_time_in_it_and_must_be_there(
    service: Service, caller: Caller
) -> None:
    caller.ask("add", [{"data": "x", "active_at": DAY}, {"data": "y", "active_at": NEXT_DAY}])
    for action in ("drop-segment", "reopen-failed"):
        missing = caller.ask(action, {"segment": "2026-02-27T12:00:00Z"}, 404)
        assert missing["code"] == "unknown_segment"
        assert missing["detail"] == "there is no segment 2026-02-27T00:00:00Z"
    assert not Operation.objects.exists()
    noon = {"segment": "2026-03-01T13:37:00Z"}
    begun = caller.ask("drop-segment", noon, 202, Idempotency_Key="once")
    assert begun["arguments"]["segment"] == DAY
    work(begun)
    assert caller.ask("drop-segment", noon, 202, Idempotency_Key="once") == begun
    assert [each["segment"] for each in caller.show("stats?live=1")["results"]] == [NEXT_DAY]


@pytest.mark.slow("3 s")
@pytest.mark.covers("S3.3")
def test_granularity_is_tried_and_changed(
    service: Service, caller: Caller, frontier: Frontier
) -> None:
    seeds = [{"data": f"https://a/{n}#x", "active_at": DAY} for n in range(3)]
    caller.ask("add", [*seeds, {"data": "https://a/0#y", "active_at": NEXT_DAY}])
    now = caller.show("granularity")
    assert now == {
        "rules": {
            "segments": "day",
            "time_zone": "UTC",
            "keys": "whole",
            "ignored_parameters": None,
        },
        "preview": None,
    }
    shown = caller.show("granularity?segments=month&keys=page")["preview"]
    assert (shown["changes"], shown["total"], shown["exact"]) == (True, 4, True)
    assert shown["meeting"] == {"at_least": 1, "at_most": 1}
    (target,) = shown["segments"][0]["targets"]
    assert (target["begins_at"], target["seeds"]) == ("2026-03-01T00:00:00.000Z", 3)
    bad = caller.show("granularity?segments=fortnight", 422)
    assert (bad["code"], [*bad["fields"]]) == ("bad_grouping", ["segments"])

    begun = caller.ask("granularity", {"segments": "month", "keys": "page"}, 202)
    Frontier.objects.filter(pk=frontier.pk).update(is_frozen=True)
    service.look()
    frozen = caller.post(f"{caller.base}/add", ["https://a/9"])
    assert (frozen.status_code, frozen.json()["code"]) == (409, "frozen")
    assert int(frozen["Retry-After"]) >= 1
    for _ in range(40):
        if work_on_operation(begun["id"], seconds=0.1) == OperationState.DONE:
            break
        service.look()
    service.look()
    moved = caller.show("stats?live=1")
    assert [each["begins_at"] for each in moved["results"]] == ["2026-03-01T00:00:00.000Z"]
    assert moved["balances"] is True
    assert caller.show("granularity")["rules"]["keys"] == "page"
    assert known(caller, "https://a/0", DAY)["state"] == "init"


def test_what_is_leased_is_not_moved(service: Service, caller: Caller) -> None:
    caller.ask("add", "x")
    caller.ask("lease", {})
    assert caller.ask("granularity", {"keys": "page"}, 409)["code"] == "seeds_leased"
    assert not Operation.objects.exists()


def test_an_operation_is_cancelled_once(caller: Caller, frontier: Frontier) -> None:
    operation = make_operation(frontier)
    path = f"seed-operations/{operation.pk}/cancel"
    assert Caller(frontier, Role.VIEWER).post(path).status_code == 403
    assert caller.post(path).json()["state"] == "cancelled"
    assert caller.post(path).json()["code"] == "operation_ended"


def test_the_same_key_begins_one_operation(caller: Caller, frontier: Frontier) -> None:
    body = {"confirm": frontier.name}
    first = caller.ask("wipe", body, 202, Idempotency_Key="once")
    assert caller.ask("wipe", body, 202, Idempotency_Key="once") == first
    assert Operation.objects.count() == 1


def test_a_move_lets_nothing_else_begin(caller: Caller, frontier: Frontier) -> None:
    make_operation(frontier, kind="move")
    refused = caller.ask("wipe", {"confirm": frontier.name}, 409)
    assert refused["code"] == "operation_running"
