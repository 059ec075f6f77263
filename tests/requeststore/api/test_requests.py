"""Requests over REST: handed in once, listed, and each with its whole story."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings

from apps.access.states import Role
from apps.projects.models import Project
from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.engine.flags import PROCESSED
from apps.requeststore.engine.limits import MAX_BODY_BYTES
from apps.requeststore.queues.base import TakenEntry
from apps.requeststore.services.store import RequestStore, shared_request_store
from apps.requeststore.stores.base import Finish, QueueEntry
from apps.requeststore.stores.sqlite import SqliteNode
from apps.runtime.models import IdempotencyKey
from tests.access.factories import Api, make_project, make_user
from tests.requeststore.api.conftest import Caller, as_json
from tests.requeststore.factories import save_bizzes
from tests.requeststore.test_records_read import keep_records
from tests.requeststore.test_sinks import gathered

pytestmark = pytest.mark.django_db
URL = "https://example.com/"


def stored(yard: RequestStore, project: Project) -> int:
    bound = yard.biz(project.pk, "news")
    return sum(yard.node(one.node).count(one.shard).total for one in bound.places)


def process(
    yard: RequestStore, project: Project, number: int, ts: int, flag: int = PROCESSED
) -> None:
    bound = yard.biz(project.pk, "news")
    taken = TakenEntry(QueueEntry(number, "news", ts), None)
    (take,) = yard.take(bound, [taken], owner="fetcher-1", now=yard.now())
    assert take.request is not None
    end = Finish(number, 1, flag, b'{"status": 200, "records": 3}')
    yard.finish(bound, [(take.request, end)], owner="fetcher-1", now=yard.now())


@pytest.mark.covers("S4.8", "S4.29")
def test_requests_are_handed_in_and_their_story_is_told(
    caller: Caller, project: Project, yard: RequestStore, settings: LazySettings, tmp_path: Path
) -> None:
    settings.OBJECTS_URL = f"file://{tmp_path}/objects"
    answer = caller.submit(
        URL,
        {"url": f"{URL}2", "method": "POST", "body_base64": base64.b64encode(b"\xff").decode()},
        {"url": f"{URL}3", "headers": {"Accept": "text/html"}, "meta": {"shop": 7}},
    )
    assert answer["count"] == 3
    assert all(isinstance(each, str) for each in answer["ids"])
    assert sorted(map(int, answer["ids"])) == list(map(int, answer["ids"]))
    number = answer["ids"][2]
    assert caller.show(f"requests/{number}")["records"] is None
    process(yard, project, int(number), answer["ts"])
    keep_records(project.pk, gathered(int(number), {"title": "灯", "price": 7}))
    story = caller.show(f"requests/{number}")
    assert story["records"]["where"] == "news"
    (record,) = story["records"]["records"]
    assert (record["title"], record["price"]) == ("灯", 7)
    assert (story["id"], story["project"], story["biz"]) == (number, project.pk, "news")
    assert (story["flag"], story["state"], story["tries"]) == (1, "processed", 1)
    assert [step["kind"] for step in story["steps"]] == ["stored", "queued", "taken", "finished"]
    assert story["steps"][0]["by"].startswith("rest:user")
    assert story["result"] == {"status": 200, "records": 3}
    assert story["data"]["url"] == f"{URL}3"
    assert story["data"]["headers"] == {"Accept": "text/html"}
    assert story["data"]["meta"] == {"shop": 7}
    assert story["data_bytes"] > 0
    assert story["place"]["database"] == f"crawlyard_p{project.pk}_news"
    assert story["place"]["collection"] == f"requests_{int(number) % 4:03d}"
    assert story["settings_version"] == 1
    assert story["id_made_at"][:10] == story["stored_at"][:10]
    assert story["id_worker"] is not None


@pytest.mark.covers("S4.29")
def test_secrets_are_masked_and_the_rest_is_for_operators(caller: Caller, project: Project) -> None:
    number = caller.submit(
        {
            "url": "https://ann:pw@example.com/?token=abc&page=2",
            "headers": {"Cookie": "sid=1", "Authorization": "Bearer x", "X-Tag": "t"},
            "params": {"api_key": "k", "q": "news"},
            "body": "hello",
        }
    )["ids"][0]
    data = caller.show(f"requests/{number}")["data"]
    assert data["headers"] == {"Cookie": "•••", "Authorization": "•••", "X-Tag": "t"}
    assert data["params"] == {"api_key": "•••", "q": "news"}
    assert (data["body"], data["body_bytes"]) == ("hello", 5)
    text = str(data)
    assert not any(secret in text for secret in ("pw", "abc", "sid=1", "Bearer"))
    assert data["url"] == "https://•••@example.com/?token=•••&page=2"
    viewer = Caller(project, Role.VIEWER).show(f"requests/{number}")["data"]
    assert set(viewer) == {"url", "rule", "method"}


@pytest.mark.covers("S4.29")
def test_requests_of_others_do_not_exist(caller: Caller, project: Project) -> None:
    number = caller.submit(URL)["ids"][0]
    other = make_project()
    save_bizzes(other, news={})
    stranger = Caller(other, Role.ADMIN)
    for path in (f"requests/{number}", "requests/1", f"requests/{2**63 - 1}", "requests/0"):
        assert stranger.show(path, 404)["code"] == "not_found"
    assert stranger.show("requests")["results"] == []
    assert stranger.show(f"bizzes/{project.pk}.news", 404)["code"] == "not_found"
    body = {"project": project.pk, "biz": "news", "requests": [URL]}
    refused = stranger.post("requests", body)
    assert (refused.status_code, set(refused.json()["fields"])) == (400, {"project"})
    # Nor do two bizzes of one name know each other's.
    assert Api(make_user(roles={other: Role.ADMIN})).get("requests?biz=shop").status_code == 404


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    ("requests", "place"),
    [
        ([URL, "ftp://a/b"], "requests.1.url"),
        ([{"url": URL, "uri": "x"}], "requests.0.uri"),
        ([URL] * 3 + [7], "requests.3"),
        ([{"rule": "a"}], "requests.0.url"),
        ([{"url": URL, "rule": "article"}], "requests.0.rule"),
        ([{"url": URL, "headers": {"a\nb": "x"}}], "requests.0.headers"),
        ([{"url": URL, "headers": {"a": 1}}], "requests.0.headers.a"),
        ([{"url": URL, "method": "get it"}], "requests.0.method"),
        ([{"url": URL, "body": "a", "body_base64": "YQ=="}], "requests.0.body_base64"),
        ([{"url": URL, "body_base64": "%"}], "requests.0.body_base64"),
        ([{"url": URL, "meta": {"n": 2**70}}], "requests.0"),
        ([], "requests"),
        ([URL] * 10_001, "requests"),
    ],
)
def test_all_or_nothing_and_where_it_is_wrong(
    caller: Caller, project: Project, yard: RequestStore, requests: list[Any], place: str
) -> None:
    answer = caller.submit(*requests, status=422)
    assert answer["code"] == "bad_requests"
    assert place in answer["fields"], answer
    assert stored(yard, project) == 0


def test_bodies_that_are_none(caller: Caller, project: Project) -> None:
    base = {"project": project.pk, "biz": "news"}
    for body, status, code in (
        (b"", 400, "invalid"),
        (b"{", 400, "parse_error"),
        (b"[1]", 400, "invalid"),
        (b'{"project": NaN}', 400, "parse_error"),
        (as_json(base), 400, "invalid"),
        (as_json(base | {"requests": URL}), 400, "invalid"),
        (as_json(base | {"requests": [URL], "more": 1}), 400, "invalid"),
        (as_json(base | {"requests": [URL], "biz": "shop"}), 404, "unknown_biz"),
        (b" " * (MAX_BODY_BYTES + 1), 413, "body_too_large"),
    ):
        answer = caller.raw(body)
        assert (answer.status_code, answer.json()["code"]) == (status, code), body[:50]


def test_a_request_that_is_too_large_is_refused_with_its_place(
    caller: Caller, project: Project
) -> None:
    body = {"url": URL, "body": "x" * (15 * 1024 * 1024 + 1)}
    answer = caller.submit(URL, body, status=422)
    assert list(answer["fields"]) == ["requests.1"]


@pytest.mark.covers("S4.23")
def test_a_repeat_with_its_key_stores_nothing_twice(
    caller: Caller, project: Project, yard: RequestStore
) -> None:
    first = caller.submit(URL, f"{URL}2", Idempotency_Key="k1")
    again = caller.submit(URL, f"{URL}2", Idempotency_Key="k1")
    assert again == first
    assert caller.submit(URL, status=422, Idempotency_Key="k1")["code"] == "idempotency_key_reused"
    assert stored(yard, project) == 2
    assert caller.submit(URL, f"{URL}2")["ids"] != first["ids"]


@pytest.mark.slow("3 s")
@pytest.mark.covers("S4.23")
@pytest.mark.parametrize("at", [0, 1])
def test_a_repeat_after_an_outage_completes_the_first(
    caller: Caller, project: Project, yard: RequestStore, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when some of it was stored already: the ids were reserved before."""
    really, calls = SqliteNode.insert, []

    def insert(self: SqliteNode, shard: Any, requests: Any, **more: Any) -> Any:
        calls.append(shard)
        if len(calls) == 2:
            if at:
                really(self, shard, requests, **more)
            raise RequestStoreUnavailable("the node is away")
        return really(self, shard, requests, **more)

    urls = [f"{URL}{number}" for number in range(40)]
    monkeypatch.setattr(SqliteNode, "insert", insert)
    body = {"project": project.pk, "biz": "news", "requests": urls}
    refused = caller.post("requests", body, Idempotency_Key="k2")
    assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
    assert int(refused["Retry-After"]) > 0
    monkeypatch.undo()
    assert 0 < stored(yard, project) < 40
    kept = IdempotencyKey.objects.get(key="k2").body or {}
    answer = caller.submit(*urls, Idempotency_Key="k2")
    assert (answer["ids"], answer["ts"]) == (kept["ids"], kept["ts"])
    assert stored(yard, project) == 40
    for number in answer["ids"]:
        kinds = [step["kind"] for step in caller.show(f"requests/{number}")["steps"]]
        assert kinds.count("stored") == 1


@pytest.mark.covers("S4.3", "S4.4")
def test_lists_by_biz_flag_and_time(caller: Caller, project: Project, yard: RequestStore) -> None:
    old = caller.submit(*(f"{URL}{number}" for number in range(5)))
    new = caller.submit(*(f"{URL}{number}" for number in range(7)))
    process(yard, project, int(old["ids"][0]), old["ts"])
    process(yard, project, int(old["ids"][1]), old["ts"], 7)
    rows = caller.show("requests")["results"]
    assert len(rows) == 12
    assert [row["ts"] for row in rows] == sorted((row["ts"] for row in rows), reverse=True)
    seen, after = [], ""
    for _ in range(10):
        page = caller.show(f"requests?biz=news&limit=5&after={after}")
        seen += [row["id"] for row in page["results"]]
        if not page["next"]:
            break
        after = page["next"]
    assert seen == [row["id"] for row in rows]
    own = caller.show(f"requests?project={project.pk}&flag=7")["results"]
    assert [(row["id"], row["state"]) for row in own] == [(old["ids"][1], "own")]
    assert own[0]["meaning"] == "no such page"
    assert len(caller.show("requests?flag=0")["results"]) == 10
    assert caller.show(f"requests?until={old['stored_at']}")["results"] == []
    since = new["stored_at"]
    found = caller.show(f"requests?since={since}")["results"]
    assert {row["id"] for row in found} >= set(new["ids"])
    assert caller.show("requests?since=2100-01-01T00:00:00Z")["results"] == []
    assert caller.show("requests?biz=gone", 404)["code"] == "not_found"
    for bad in ("after=x", "flag=1000", "limit=0", "since=now", "after=99.x"):
        assert caller.get(f"requests?{bad}").status_code == 400, bad


def test_nothing_is_taken_for_a_biz_that_is_switched_off(caller: Caller, project: Project) -> None:
    save_bizzes(project, news={"enabled": False})
    shared_request_store().wake()
    assert caller.submit(URL, status=409)["code"] == "biz_disabled"


def test_a_store_that_is_away_is_503(
    caller: Caller, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = caller.submit(URL)["ids"][0]

    def away(*_arguments: Any, **_options: Any) -> Any:
        raise RequestStoreUnavailable("secret-host:27017 refused")

    for name in ("find", "page", "insert", "size"):
        monkeypatch.setattr(SqliteNode, name, away)
    for path in (f"requests/{number}", "requests"):
        answer = caller.get(path)
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        assert int(answer["Retry-After"]) > 0
        assert b"secret-host" not in answer.content
