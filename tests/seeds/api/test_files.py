"""Seeds out of a frontier as JSON lines, and into one, over REST."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient

from apps.access.states import Role
from apps.seeds.api import lines
from apps.seeds.models import Frontier
from tests.seeds.api.conftest import Caller, Service
from tests.seeds.factories import make_frontier

pytestmark = pytest.mark.django_db

NDJSON = "application/x-ndjson"
DAY = 1772323200000


def export(caller: Caller, query: str = "") -> Any:
    """The response and all that it streams, read as the server reads it."""
    return async_to_sync(_export)(caller, query)


async def _export(caller: Caller, query: str) -> Any:
    path = f"/api/v1/{caller.base}/export{query}"
    answer: Any = await AsyncClient().get(path, headers=caller.headers)
    assert answer.status_code == 200, answer.content
    return answer, b"".join([piece async for piece in answer.streaming_content])


def bring(caller: Caller, body: Any, kind: str = NDJSON, **headers: str) -> Any:
    """What an import answers."""
    raw = body if isinstance(body, bytes) else "\n".join(map(json.dumps, body)).encode()
    answer = caller.raw("import", raw, kind, **headers)
    assert answer.status_code == 200, answer.content
    return answer.json()


def crawl(caller: Caller, *outcomes: str) -> None:
    """One seed for each, in order."""
    for outcome in outcomes:
        lease = caller.ask("lease", {"limit": 1})
        (one,) = lease["seeds"]
        finish = {"segment": one["segment"], "key": one["key"], "outcome": outcome}
        caller.ask("finish", {"generation": lease["generation"], "finishes": [finish]})


def states(raw: bytes) -> dict[str, str]:
    return {each["data"]: each["state"] for each in map(json.loads, raw.splitlines())}


@pytest.mark.slow("10 s")
@pytest.mark.covers("S3.10")
def test_all_of_a_frontier_goes_into_another_one(
    either_service: Service, caller: Caller, frontier: Frontier
) -> None:
    seeds = [{"data": f"https://a/{n}", "max_retry": 1, "ext": {"n": n}} for n in range(5)]
    caller.ask("add", [*seeds, {"data": "https://b/", "active_at": DAY}])
    crawl(caller, "success", "failure", "ignored")
    caller.ask("lease", {"limit": 1})
    answer, raw = export(caller)
    assert answer["Content-Type"] == NDJSON
    assert answer["Content-Disposition"] == 'attachment; filename="news.jsonl"'
    was = states(raw)
    assert sorted(was.values()) == ["failed", "ignored", "init", "init", "running", "succeeded"]

    copy = make_frontier(frontier.project, name="copy")
    either_service.look()
    other = Caller(copy)
    taken = bring(other, raw)
    assert (taken["lines"], taken["new"], taken["refused"]) == (6, 6, 0)
    now = states(export(other)[1])
    # Nobody has leased it there.
    assert now == {data: "init" if state == "running" else state for data, state in was.items()}
    assert bring(other, raw)["duplicates"] == 6
    stats = other.show("stats?live=1")
    assert (stats["balances"], stats["segments_in_all"]) == (True, 2)
    first = json.loads(raw.splitlines()[0])
    assert other.ask("look-up", {"key": first["key"]})["results"][0]["known"]["ext"] == first["ext"]


@pytest.mark.slow("4 s")
def test_only_some_and_compressed(service: Service, caller: Caller) -> None:
    caller.ask("add", ["a", "b", "c", {"data": "d", "active_at": DAY}])
    crawl(caller, "success", "given_up")
    assert set(states(export(caller, "?state=failed&state=succeeded")[1])) == {"a", "b"}
    assert set(states(export(caller, "?segment=2026-03-01")[1])) == {"d"}
    assert export(caller, "?segment=5")[1] == b""
    answer, packed = export(caller, "?gzip=1")
    assert answer["Content-Disposition"].endswith('.jsonl.gz"')
    assert set(states(gzip.decompress(packed))) == {"a", "b", "c", "d"}
    for bad in ("state=gone", "segment=x", "gzip=perhaps"):
        caller.show(f"export?{bad}", 400)


def test_an_urgent_seed_stays_urgent(service: Service, caller: Caller, frontier: Frontier) -> None:
    caller.ask("add", ["a", {"data": "b", "urgent": True}])
    raw = export(caller)[1]
    other = Caller(make_frontier(frontier.project))
    service.look()
    bring(other, raw)
    assert [each["key"] for each in other.ask("lease", {})["seeds"]] == ["b", "a"]


@pytest.mark.covers("S3.19")
def test_a_file_of_addresses(service: Service, caller: Caller) -> None:
    raw = b"\xef\xbb\xbfhttps://a/\r\n\r\n  https://b/  \nhttps://a/\n\xff\nhttps://c/"
    taken = bring(caller, raw, "text/plain")
    assert (taken["lines"], taken["new"], taken["duplicates"], taken["refused"]) == (5, 3, 1, 1)
    assert taken["problems"] == [
        {"line": 5, "code": "parse_error", "text": "This line is not UTF-8."}
    ]
    assert [each["key"] for each in caller.ask("lease", {})["seeds"]] == [
        "https://a/",
        "https://b/",
        "https://c/",
    ]


def test_each_line_is_answered_by_itself(service: Service, caller: Caller) -> None:
    good = [
        b'"a"',
        b'{"data": "b", "active_at": "2026-03-01"}',
        b'{"data": "c", "state": "failed"}',
    ]
    bad = [
        b"[",
        b'["a"]',
        b'{"seeds": []}',
        b'{"data": "x", "data": "y"}',
        b'{"data": 5}',
        b'{"data": "x", "state": "lost"}',
        b'{"data": "x", "state": "failed", "retry": 5000}',
        b'{"data": "x", "state": "init", "added_at": "once"}',
        b'"' + b"x" * lines.MAX_LINE_BYTES + b'"',
        b'{"data": "x", "ext": {"_grab": "dead 1"}, "state": "init"}',
        b'""',
        b"[" * 1000,
    ]
    taken = bring(caller, b"\n".join([*good, *bad, b'"d"']))
    assert (taken["lines"], taken["new"], taken["refused"]) == (16, 4, 12)
    assert [each["line"] for each in taken["problems"]] == list(range(4, 16))
    codes = {each["line"]: each["code"] for each in taken["problems"]}
    assert codes[12] == "line_too_long"
    assert (codes[4], codes[5], codes[10], codes[14]) == (
        "parse_error",
        "invalid",
        "bad_retry",
        "empty_data",
    )


def test_only_the_first_problems_are_told(service: Service, caller: Caller) -> None:
    taken = bring(caller, b"[\n" * 50)
    assert (taken["refused"], len(taken["problems"])) == (50, 20)


@pytest.mark.slow("1 s")
def test_many_lines_go_in_batches(service: Service, caller: Caller) -> None:
    raw = b"".join(b"https://a/%d\n" % number for number in range(10_000))
    packed = gzip.compress(raw[:60_000]) + gzip.compress(raw[60_000:])
    taken = bring(caller, packed, "text/plain", Content_Encoding="gzip")
    assert (taken["lines"], taken["new"]) == (10_000, 10_000)


@pytest.mark.parametrize(
    ("body", "encoding"),
    [(b"no gzip", "gzip"), (gzip.compress(b'"a"\n' * 100)[:-12], "gzip"), (b"", "br")],
    ids=["no gzip", "cut off", "another one"],
)
def test_what_is_not_compressed_as_it_says(
    service: Service, caller: Caller, body: bytes, encoding: str
) -> None:
    answer = caller.raw("import", body or b"x", NDJSON, Content_Encoding=encoding)
    assert (answer.status_code, answer.json()["code"]) == (400, "parse_error")


def test_parts_without_end_are_refused(service: Service, caller: Caller) -> None:
    packed = gzip.compress(b"", mtime=0) * (lines.MAX_MEMBERS + 1)
    answer = caller.raw("import", packed, NDJSON, Content_Encoding="gzip")
    assert (answer.status_code, answer.json()["code"]) == (400, "parse_error")
    assert "more than 20000 gzip members" in answer.json()["detail"]


@pytest.mark.slow("2 s")
def test_a_bomb_is_not_unpacked(
    service: Service, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_PLAIN_BYTES", 1_000_000)
    packed = gzip.compress(b"\n" * 50_000_000)
    answer = caller.raw("import", packed, NDJSON, Content_Encoding="gzip")
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    monkeypatch.setattr(lines, "MAX_IMPORT_BYTES", 1000)
    answer = caller.raw("import", b"\n" * 2000, NDJSON)
    assert answer.status_code == 413


def test_nothing_is_nothing(service: Service, caller: Caller) -> None:
    assert bring(caller, b"")["lines"] == 0
    assert caller.raw("import", b"{}", "application/json").status_code == 415
    viewer = Caller(Frontier.objects.get(), Role.VIEWER)
    assert viewer.raw("import", b'"a"', NDJSON).status_code == 403
