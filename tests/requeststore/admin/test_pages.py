"""Pages of bizzes and requests: what they tell, to whom, and by how many queries."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.dashboard.navigation import sidebar
from apps.projects.models import Project
from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.models import ClosedSlice, Rebalance, ShardReport
from apps.requeststore.services.rebalances import work_on_rebalance
from apps.requeststore.services.store import RequestStore, shared_request_store
from apps.requeststore.stores.sqlite import SqliteNode
from tests.access.factories import enter, make_project, make_user
from tests.requeststore.api.test_requests import process
from tests.requeststore.factories import make_bizzes, pages, save_bizzes

pytestmark = pytest.mark.django_db
FOUR = {"splits": 4, "nodes": ["default", "second"]}
MOST_QUERIES = 15


@pytest.fixture
def project(db: None, request_nodes: dict[str, str]) -> Project:
    return make_bizzes(news={"description": "News of the day", "epochs": [FOUR]})


@pytest.fixture
def yard(project: Project) -> RequestStore:
    return shared_request_store()


def person(project: Project, role: Role) -> Client:
    return enter(make_user(roles={project: role}))


def address(name: str, *args: Any) -> str:
    return reverse(f"admin:requeststore_{name}", args=args)


def text_of(answer: Any, status: int = 200) -> str:
    """What a person reads."""
    assert answer.status_code == status, (answer.status_code, answer.content[:300])
    html = re.sub(r"<(script|style)\b.*?</\1>", " ", answer.content.decode(), flags=re.DOTALL)
    return unescape(" ".join(re.sub(r"<[^>]+>", " ", html).split()))


def said(answer: Any) -> str:
    """The messages after a button."""
    assert answer.status_code == 302, answer.content[:500]
    return " ".join(str(each) for each in get_messages(answer.wsgi_request))


def store(yard: RequestStore, project: Project, number: int, **fields: Any) -> list[int]:
    bound = yard.biz(project.pk, "news")
    return yard.submit(bound, pages(number, **fields), by="test", now=yard.now())


def everything(project: Project, number: int) -> list[str]:
    """The address of every page that is only looked at."""
    key = f"{project.pk}.news"
    return [
        address("shardreport_changelist"),
        address("look_up"),
        *(address(name, key) for name in ("biz", "requests", "try_out", "extract", "rebalance")),
        address("extract_live", key),
        address("rebalance_live", key),
        address("request", number),
    ]


@pytest.mark.covers("S4.29")
def test_an_id_leads_to_its_whole_story(project: Project, yard: RequestStore) -> None:
    fields = {"headers": {"Cookie": "sid=s3cret", "Accept": "text/html"}, "meta": {"shop": "A1"}}
    (number,) = store(yard, project, 1, **fields)
    ts = yard.find(number).request.ts  # type: ignore[union-attr]  # stored just now
    process(yard, project, number, ts)
    operator = person(project, Role.OPERATOR)
    found = operator.get(address("look_up"), {"id": f" {number} "})
    assert (found.status_code, found["Location"]) == (302, address("request", number))
    html = operator.get(found["Location"])
    text = text_of(html)
    for word in (
        str(number),
        "processed",
        "https://example.com/0",
        f"crawlyard_p{project.pk}_news.requests_{number % 4:03d}",
        "queued",
        "fetcher-1",
        '"records": 3',
        "dataset",
        "text/html",
        "A1",
        "worker number",
    ):
        assert word in text, word
    assert "s3cret" not in html.content.decode()
    assert re.findall(r'data-step="(\w+)"', html.content.decode()) == [
        "stored",
        "queued",
        "taken",
        "finished",
    ]
    viewer = text_of(person(project, Role.VIEWER).get(address("request", number)))
    assert "text/html" not in viewer
    assert "A1" not in viewer
    assert "Only operators can view" in viewer


@pytest.mark.slow("1 s")
@pytest.mark.covers("S4.29")
def test_an_id_that_is_gone_is_told_with_the_counts_of_its_time(
    project: Project, yard: RequestStore
) -> None:
    number = yard.reserve(1)[0]
    ClosedSlice.objects.create(
        project=project,
        biz="news",
        node="default",
        database="d",
        collection="requests_000",
        start_at=timezone.now() - timedelta(minutes=5),
        seconds=600,
        processed=41,
        expired=3,
    )
    text = text_of(person(project, Role.VIEWER).get(address("request", number)), 404)
    assert "has been deleted" in text
    assert "requests_000" in text
    assert " 41 3" in text
    hidden = person(make_project(), Role.ADMIN).get(address("request", number))
    assert "requests_000" not in text_of(hidden, 404)
    for wrong in ("abc", "9" * 19, "-1", "0", ""):
        assert (
            person(project, Role.VIEWER).get(address("look_up"), {"id": wrong}).status_code == 200
        )


def test_the_list_and_a_biz_show_their_books(project: Project, yard: RequestStore) -> None:
    store(yard, project, 20)
    ShardReport.objects.filter(project=project).update(
        by_flag={"0": 250, "-1": 1, "2": 3}, expiring={"3600": 2, "300": 1}
    )
    other = make_project()
    save_bizzes(other, hidden={})
    yard.wake()
    viewer = person(project, Role.VIEWER)
    text = text_of(viewer.get(address("shardreport_changelist")))
    assert f"news {project} · News of the day 1,016 1,000 4 12 0" in text
    assert "hidden" not in text
    text = text_of(viewer.get(address("biz", f"{project.pk}.news")))
    assert "stored 1,016" in text
    assert "flag 2 · failed 12" in text
    assert "Expiring soon, unprocessed: 5 min: 4 · 1 h: 8" in text
    assert "All requests accounted for" in text
    assert f"p{project.pk}.news" in text
    assert f"second crawlyard_p{project.pk}_news requests_003" in text
    assert "Edit as YAML" not in text
    assert "Edit as YAML" in text_of(
        person(project, Role.EDITOR).get(address("biz", f"{project.pk}.news"))
    )


@pytest.mark.slow("2 s")
def test_pages_belong_to_people_of_the_project(project: Project, yard: RequestStore) -> None:
    (number,) = store(yard, project, 1)
    row = Rebalance.objects.create(project=project, biz="news", config_version=1)
    key = f"{project.pk}.news"
    stranger = person(make_project(), Role.ADMIN)
    general = {address("shardreport_changelist"), address("look_up")}
    for page in everything(project, number):
        assert Client().get(page).status_code == 302
        assert stranger.get(page).status_code == (200 if page in general else 404), page
    viewer = person(project, Role.VIEWER)
    for button in (
        address("try_out", key),
        address("reopen", key),
        address("reopen_one", number),
        address("rebalance", key),
        address("rebalance_cancel", row.pk),
    ):
        assert stranger.post(button).status_code == 404, button
        assert viewer.post(button).status_code == 403, button
    assert viewer.get(address("try_out", key)).status_code == 403
    for wrong in ("news", "1.News", f"{project.pk}.shop", "9" * 30 + ".news"):
        assert viewer.get(address("biz", wrong)).status_code == 404
    request = RequestFactory().get("/admin/")
    request.user = make_user(roles={project: Role.VIEWER})
    links = [item["link"] for group in sidebar(request) for item in group["items"]]
    assert address("look_up") in links


@pytest.mark.slow("4 s")
def test_few_queries_however_many_rows(project: Project, yard: RequestStore) -> None:
    (number, *_more) = store(yard, project, 60)
    operator = person(project, Role.EDITOR)
    plan = {"database": "", "collection": "requests", "epoch": {}}
    cursor = {"plan": plan, "sources": [], "ttl_seconds": 1}

    def counted() -> dict[str, int]:
        found = {}
        for page in everything(project, number):
            operator.get(page)
            with CaptureQueriesContext(connection) as queries:
                assert operator.get(page).status_code == 200, page
            found[page] = len(queries)
        return found

    before = counted()
    assert max(before.values()) <= MOST_QUERIES, before
    save_bizzes(project, news={"epochs": [FOUR]}, **{f"biz{each}": {} for each in range(8)})
    yard.wake()
    for each in range(8):
        Rebalance.objects.create(
            project=project, biz="news", config_version=1, cursor=cursor, state="done"
        )
        ShardReport.objects.create(
            project=project, biz=f"biz{each}", node="default", database=f"d{each}", collection="c"
        )
    after = counted()
    # Twice a second one of them asks whether the configuration has changed.
    assert all(abs(after[page] - before[page]) <= 1 for page in before), (before, after)
    assert max(after.values()) <= MOST_QUERIES, after


def test_requests_by_flag_and_time(project: Project, yard: RequestStore) -> None:
    ids = store(yard, project, 55)
    ts = yard.find(ids[0]).request.ts  # type: ignore[union-attr]  # stored just now
    process(yard, project, ids[0], ts, 2)
    viewer = person(project, Role.VIEWER)
    page = address("requests", f"{project.pk}.news")
    html = viewer.get(page).content.decode()
    shown = re.findall(r"/request/(\d+)", html)
    (more,) = re.findall(r'rel="next" href="([^"]+)"', html)
    rest = viewer.get(page + unescape(more)).content.decode()
    shown += re.findall(r"/request/(\d+)", rest)
    assert sorted(map(int, shown)) == sorted(ids)
    assert "First page" in rest
    failed = viewer.get(page, {"flag": "2"}).content.decode()
    assert re.findall(r"/request/(\d+)", failed) == [str(ids[0])]
    past = viewer.get(page, {"until": "2020-01-01T00:00"})
    assert "No requests match the filter" in text_of(past)
    assert "Select a valid choice" in text_of(viewer.get(page, {"flag": "99"}))
    assert viewer.get(page, {"after": "x.y", "since": "never"}).status_code == 200


def test_one_is_tried_out_and_ended_ones_are_tried_again(
    project: Project, yard: RequestStore
) -> None:
    operator = person(project, Role.OPERATOR)
    key = f"{project.pk}.news"
    page = address("try_out", key)
    assert "not an address" in text_of(operator.post(page, {"url": "nowhere", "method": "GET"}))
    answer = operator.post(page, {"url": "https://example.com/", "method": "POST", "body": "a"})
    assert said(answer) == "Request stored and queued."
    number = int(answer["Location"].rsplit("/", 1)[1])
    assert AuditRecord.objects.get(action="requeststore.submit").after == {
        "biz": "news",
        "id": str(number),
    }
    assert "Only requests that have ended" in said(operator.post(address("reopen_one", number)))
    ts = yard.find(number).request.ts  # type: ignore[union-attr]  # stored just now
    process(yard, project, number, ts, 2)
    form = {"flag": "2", "since": "", "until": ""}
    assert "1 request was reopened" in said(operator.post(address("reopen", key), form))
    assert "0 requests" in said(operator.post(address("reopen", key), form))
    assert "Select a valid choice" in said(operator.post(address("reopen", key), {"flag": "0"}))
    process(yard, project, number, ts, 2)
    assert "Request reopened and queued" in said(operator.post(address("reopen_one", number)))
    assert operator.post(address("reopen_one", 5)).status_code == 404


@pytest.mark.slow("1 s")
@pytest.mark.covers("S4.14")
def test_a_rebalance_is_looked_at_begun_and_done(project: Project, yard: RequestStore) -> None:
    ids = store(yard, project, 60)
    key = f"{project.pk}.news"
    editor = person(project, Role.EDITOR)
    page = address("rebalance", key)
    assert "Nothing to move: all requests were stored under one epoch" in text_of(editor.get(page))
    assert "Nothing to move" in said(editor.post(page))
    since = yard.now()
    save_bizzes(project, news={"epochs": [FOUR, {"since": since + 60_000, "splits": 9}]})
    yard.wake()
    assert "The newest epoch has not started" in text_of(editor.get(page))
    save_bizzes(project, news={"epochs": [FOUR, {"since": since, "splits": 9}]})
    yard.wake()
    text = text_of(editor.get(page))
    (would,) = re.findall(r"(\d+) of 60 requests would move to 9 splits", text)
    assert int(would) > 20
    assert "Start re-balance" not in text_of(person(project, Role.OPERATOR).get(page))
    assert "Re-balance started" in said(editor.post(page))
    assert "Another re-balance of this request group is running" in said(editor.post(page))
    row = Rebalance.objects.get()
    live = editor.get(address("rebalance_live", key)).content.decode()
    assert f'data-rebalance="{row.pk}" data-state="running"' in live
    assert address("rebalance_cancel", row.pk) in live
    work_on_rebalance(row.pk)
    text = text_of(editor.get(page))
    assert "Remove the older epochs from the settings" in text
    assert re.search(r"\b0 of [\d,]+ requests would move", text)
    assert "has ended" in said(editor.post(address("rebalance_cancel", row.pk)))
    assert all(yard.find(number) is not None for number in ids)


def test_a_store_that_is_away_is_said_on_the_page(
    project: Project, yard: RequestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (number,) = store(yard, project, 1)

    def away(*_arguments: Any, **_options: Any) -> Any:
        raise RequestStoreUnavailable("secret-host refused")

    for name in ("find", "page", "insert", "size"):
        monkeypatch.setattr(SqliteNode, name, away)
    save_bizzes(project, news={"epochs": [FOUR, {"since": yard.now() - 1, "splits": 5}]})
    yard.wake()
    operator = person(project, Role.OPERATOR)
    key = f"{project.pk}.news"
    for page in (address("requests", key), address("rebalance", key)):
        text = text_of(operator.get(page))
        assert "is unreachable" in text, page
        assert "secret-host" not in text
    assert "is unreachable" in text_of(operator.get(address("request", number)), 503)
    form = {"url": "https://example.com/", "method": "GET"}
    assert "is unreachable" in text_of(operator.post(address("try_out", key), form))
