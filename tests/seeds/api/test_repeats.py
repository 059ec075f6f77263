"""Calls to the seed service that come twice with the same Idempotency-Key."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.seeds.api.conftest import Caller, Service

pytestmark = pytest.mark.django_db

LINES = b'"a"\n"b"\n'
NDJSON = "application/x-ndjson"


def twice(caller: Caller, path: str, body: Any, status: int = 200) -> Any:
    """What both answer."""
    first = caller.ask(path, body, status, Idempotency_Key=path)
    again = caller.post(f"{caller.base}/{path}", body, Idempotency_Key=path)
    assert (again.status_code, again.json()) == (status, first)
    assert again["Idempotent-Replayed"] == "true"
    return first


def test_a_lease_is_worked_on(service: Service, caller: Caller) -> None:
    caller.ask("add", ["a", "b"])
    lease = twice(caller, "lease", {"seconds": 10})
    held = {"generation": lease["generation"]}
    assert twice(caller, "extend", {**held, "seconds": 100})["deadline"] > lease["deadline"]
    one = lease["seeds"][0]
    ended = {"segment": one["segment"], "key": one["key"], "outcome": "success"}
    told = twice(caller, "finish", {**held, "finishes": [ended]})
    assert [each["code"] for each in told["answers"]] == ["finished"]
    # What is left of it is given back once, not a second time from whoever has it by now.
    assert twice(caller, "give-back", held) == {"count": 1}
    seed = {"segment": one["segment"], "key": one["key"]}
    twice(caller, "reopen", seed)
    twice(caller, "forget", seed)


def test_a_seed_is_grabbed_once(service: Service, caller: Caller) -> None:
    body = {"data": "https://a/", "timeout_seconds": 0.3}
    first = caller.ask("grab", body, 202, Idempotency_Key="k1")
    assert caller.ask("grab", body, 202, Idempotency_Key="k1") == first
    assert caller.ask("grab", body, 409)["code"] == "seed_in_use"


def test_granularity_is_changed_once(service: Service, caller: Caller) -> None:
    caller.ask("add", ["https://a/0#x"])
    twice(caller, "granularity", {"segments": "month", "keys": "page"}, 202)


def bring(caller: Caller, body: bytes, kind: str = NDJSON, **headers: str) -> Any:
    return caller.raw("import", body, kind, Idempotency_Key="k1", **headers)


def test_a_file_is_taken_in_once(service: Service, caller: Caller) -> None:
    first = bring(caller, LINES)
    assert first.status_code == 200, first.content
    assert (first.json()["new"], first.json()["duplicates"]) == (2, 0)
    again = bring(caller, LINES)
    assert again.json() == first.json()
    assert again["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize(
    ("body", "kind", "headers"),
    [
        (LINES.replace(b"b", b"c"), NDJSON, {}),
        (LINES, "text/plain", {}),
        (gzip.compress(LINES), NDJSON, {"Content_Encoding": "gzip"}),
    ],
    ids=["content", "kind", "encoding"],
)
def test_another_file_is_another_body(
    service: Service, caller: Caller, body: bytes, kind: str, headers: dict[str, str]
) -> None:
    assert bring(caller, LINES).status_code == 200
    refused = bring(caller, body, kind, **headers)
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")


@pytest.mark.slow("2 s")
def test_a_large_file_is_compared_and_taken_in_whole(service: Service, caller: Caller) -> None:
    """More than is held in memory, and than is read at once."""
    number = 30_000
    body = b"\n".join(json.dumps(f"https://a/{n:060}").encode() for n in range(number))
    assert len(body) > 2 * 1024 * 1024
    first = bring(caller, body)
    assert (first.status_code, first.json()["new"]) == (200, number)
    assert bring(caller, body)["Idempotent-Replayed"] == "true"
