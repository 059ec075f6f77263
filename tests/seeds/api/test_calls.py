"""Seeds added, leased and finished over REST, by a service with a real store."""

from __future__ import annotations

from typing import Any

import pytest

from apps.access.states import Role
from apps.seeds.models import Frontier
from apps.seeds.stores.base import MAX_OWNER
from tests.access.factories import Api, make_user
from tests.seeds.api.conftest import Caller, Service

pytestmark = pytest.mark.django_db

DAY_MS = 24 * 3600 * 1000


def codes(answer: Any, name: str = "answers") -> list[str]:
    return [each["code"] for each in answer[name]]


def finishes(lease: Any, outcome: str = "success") -> list[dict[str, Any]]:
    return [
        {"segment": each["segment"], "key": each["key"], "outcome": outcome}
        for each in lease["seeds"]
    ]


@pytest.mark.covers("S3.5", "S3.15")
def test_seeds_are_added_leased_and_finished(either_service: Service, caller: Caller) -> None:
    added = caller.ask("add", ["https://a/", {"data": "https://b/", "ext": {"depth": 1}}])
    assert (added["new"], codes(added)) == (2, ["new", "new"])

    lease = caller.ask("lease", {"owner": "m1", "limit": 10, "seconds": 60})
    assert lease["owner"].endswith(":m1")
    assert [(each["key"], each["ext"], each["retry"]) for each in lease["seeds"]] == [
        ("https://a/", None, 0),
        ("https://b/", {"depth": 1}, 0),
    ]
    assert caller.ask("lease", {"owner": "m1"})["seeds"] == []

    generation = lease["generation"]
    told = {"owner": "m1", "generation": generation, "finishes": finishes(lease)}
    done = caller.ask("finish", {**told, "found": ["https://c/", {"data": "https://a/"}]})
    assert [each["state"] for each in done["answers"]] == ["succeeded"] * 2
    assert codes(done, "added") == ["new", "duplicate"]
    assert done["added"][1]["state"] == "succeeded"
    assert codes(caller.ask("finish", told)) == ["repeated", "repeated"]


@pytest.mark.slow("3 s")
@pytest.mark.parametrize(
    "body",
    ["x", {"data": "x"}, ["x"], [{"data": "x"}], {"seeds": ["x"]}, {"seeds": [{"data": "x"}]}],
    ids=["text", "object", "texts", "objects", "named texts", "named objects"],
)
def test_a_seed_may_be_written_in_many_ways(service: Service, caller: Caller, body: Any) -> None:
    assert codes(caller.ask("add", body)) == ["new"]
    assert caller.show("look-up?data=x")["results"][0]["known"]["state"] == "init"


@pytest.mark.slow("2 s")
def test_no_seeds_are_no_seeds(service: Service, caller: Caller) -> None:
    assert caller.ask("add", []) == {"new": 0, "duplicates": 0, "refused": 0, "answers": []}


@pytest.mark.slow("4 s")
@pytest.mark.covers("S3.2", "S3.4")
def test_times_are_taken_as_text_and_as_numbers(service: Service, caller: Caller) -> None:
    added = caller.ask(
        "add",
        [
            {"data": "x", "active_at": "2026-03-01T08:00:00+08:00"},
            {"data": "x", "active_at": 1772323200000},
            {"data": "x", "active_at": "2026-03-02"},
            {"data": "x"},
        ],
    )
    assert codes(added) == ["new", "duplicate", "new", "new"]
    looked = caller.show("look-up?data=x&active_at=2026-03-01T10:00:00Z")["results"][0]
    assert (looked["new"], looked["segment"]) == (False, 1772323200000)
    assert looked["begins_at"] == "2026-03-01T00:00:00.000Z"
    assert looked["known"]["due_at"] == "2026-03-01T00:00:00.000Z"
    timeless = caller.show("look-up?data=x")["results"][0]
    assert (timeless["segment"], timeless["begins_at"], timeless["due_at"]) == (0, None, None)


@pytest.mark.slow("2 s")
def test_each_seed_is_answered_by_itself(service: Service, caller: Caller) -> None:
    late = {"data": "x", "active_at": 5}
    answer = caller.ask(
        "add", ["ok", "", "a\x00b", "y" * 70_000, late, {"data": "z", "max_retry": -1}]
    )
    assert codes(answer) == [
        "new",
        "empty_data",
        "binary_data",
        "data_too_large",
        "bad_time",
        "bad_retry",
    ]
    assert (answer["new"], answer["duplicates"], answer["refused"]) == (1, 0, 5)
    assert "U+0000 at position 2" in answer["answers"][2]["text"]


@pytest.mark.slow("5 s")
def test_ten_thousand_at_once_and_no_more(service: Service, caller: Caller) -> None:
    many = [f"https://example.com/{number}" for number in range(10_000)]
    assert caller.ask("add", many)["new"] == 10_000
    refused = caller.ask("add", [*many, "one more"], 400)
    assert (refused["code"], [*refused["fields"]]) == ("invalid", ["seeds"])
    assert len(caller.ask("lease", {"limit": 10_000})["seeds"]) == 10_000


@pytest.mark.covers("S3.15")
def test_who_has_no_lease_finishes_nothing(
    service: Service, caller: Caller, frontier: Frontier
) -> None:
    caller.ask("add", "x")
    other = Caller(frontier, Role.OPERATOR)
    lease = caller.ask("lease", {"owner": "m1"})
    told = {"generation": lease["generation"], "finishes": finishes(lease)}

    assert codes(other.ask("finish", {"owner": "m1", **told})) == ["wrong_lease"]
    assert codes(caller.ask("finish", {"owner": "m2", **told})) == ["wrong_lease"]
    unknown = [{"segment": 0, "key": "nothing", "outcome": "success"}]
    answer = caller.ask("finish", {"owner": "m1", "generation": 1, "finishes": unknown})
    assert answer["answers"] == [{"code": "unknown_key", "state": None}]
    held = {"owner": "m1", "generation": lease["generation"]}
    for path in ("extend", "give-back"):
        refused = other.ask(path, held, 409)
        assert refused["code"] == "wrong_lease"
        assert caller.ask(path, {**held, "generation": 10**6}, 409)["code"] == "wrong_lease"
    assert codes(caller.ask("finish", {"owner": "m1", **told})) == ["finished"]


def test_a_lease_is_prolonged_and_given_back(service: Service, caller: Caller) -> None:
    caller.ask("add", ["a", "b"])
    lease = caller.ask("lease", {"seconds": 10})
    held = {"generation": lease["generation"]}

    assert caller.ask("extend", {**held, "seconds": 100})["deadline"] > lease["deadline"]
    assert caller.ask("give-back", held) == {"count": 2}
    again = caller.ask("lease", {})
    assert [each["retry"] for each in again["seeds"]] == [0, 0]


def test_a_failed_seed_is_tried_again(service: Service, caller: Caller) -> None:
    caller.ask("add", {"data": "x", "max_retry": 2})
    for code, state in (("retried", "retry"), ("finished", "failed")):
        lease = caller.ask("lease", {})
        told = {"generation": lease["generation"], "finishes": finishes(lease, "failure")}
        assert caller.ask("finish", told)["answers"] == [{"code": code, "state": state}]


@pytest.mark.slow("1 s")
def test_a_lease_waits_for_what_comes(service: Service, caller: Caller) -> None:
    caller.ask("add", {"data": "tomorrow", "active_at": service.now() + DAY_MS})
    nothing = caller.ask("lease", {"wait_seconds": 0.1})
    assert (nothing["seeds"], nothing["deadline"], nothing["pending"]) == ([], None, 1)
    assert nothing["next_due"] is not None
    caller.ask("add", {"data": "soon", "active_at": service.now() + 500})
    lease = caller.ask("lease", {"wait_seconds": 20})
    assert [each["key"] for each in lease["seeds"]] == ["soon"]


def test_the_same_key_leases_once(service: Service, caller: Caller) -> None:
    caller.ask("add", ["a", "b"])
    first = caller.ask("lease", {"limit": 1}, Idempotency_Key="k1")
    again = caller.ask("lease", {"limit": 1}, Idempotency_Key="k1")
    assert first == again
    assert caller.ask("add", "c", Idempotency_Key="k2")["new"] == 1
    assert caller.ask("add", "c", Idempotency_Key="k2")["new"] == 1
    assert caller.ask("add", "d", 422, Idempotency_Key="k2")["code"] == "idempotency_key_reused"


def test_a_paused_frontier_takes_seeds_and_hands_out_none(
    service: Service, caller: Caller, frontier: Frontier
) -> None:
    Frontier.objects.filter(pk=frontier.pk).update(is_paused=True)
    service.look()
    assert caller.ask("add", "x")["new"] == 1
    assert caller.ask("lease", {})["seeds"] == []


def test_the_longest_owner_fits(service: Service, caller: Caller, frontier: Frontier) -> None:
    user = make_user(username="u" * 150, roles={frontier.project: Role.OPERATOR})
    answer = Api(user).post(f"{caller.base}/lease", {"owner": "n" * 40})
    assert answer.status_code == 200, answer.content
    assert len(answer.json()["owner"]) <= MAX_OWNER
    assert caller.ask("lease", {"owner": "n" * 41}, 400)["fields"].keys() == {"owner"}
    assert caller.ask("lease", {"owner": "a\x07b"}, 400)["fields"].keys() == {"owner"}


@pytest.mark.covers("S3.6")
def test_seeds_are_looked_up(service: Service, caller: Caller) -> None:
    caller.ask("add", "x")
    assert caller.ask("look-up") == {"results": []}
    assert caller.show("look-up") == {"results": []}
    (known,) = caller.ask("look-up", {"segment": 0, "key": "x"})["results"]
    assert (known["new"], known["known"]["state"]) == (False, "init")
    assert known["known"]["added_at"].startswith("20")
    both = caller.ask("look-up", ["x", {"data": "y"}, {"key": "z", "segment": "2026-03-01"}])
    assert [each["new"] for each in both["results"]] == [False, True, True]
    assert caller.ask("look-up", ["x"] * 101, 400)["code"] == "invalid"
    assert caller.ask("look-up", {"data": "x", "key": "x"}, 400)["fields"].keys() == {"data"}
    assert caller.ask("look-up", [{"data": 7}, "x"], 400)["fields"].keys() == {"0.data"}
    assert caller.ask("look-up", {"data": ""}, 400)["code"] == "empty_data"
    assert caller.ask("look-up", {"key": "k" * 2**20}, 400)["code"] == "key_too_large"
    assert caller.ask("look-up", {"key": "\x00"}, 400)["code"] == "binary_key"
