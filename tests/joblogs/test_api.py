"""Logs over REST: pages in both directions, filters, whole logs as text, and who may read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test import AsyncClient
from django.test.utils import CaptureQueriesContext

from apps.access.models import User
from apps.access.states import Role
from apps.joblogs.engine.fingerprints import fingerprint
from apps.joblogs.services import close_log_store, store_lines
from apps.joblogs.stores.base import MOST_LINES
from apps.jobs.models import Run
from tests.access.factories import Api, make_superuser, make_user
from tests.joblogs.factories import NOW, batch, make_build, store_texts
from tests.jobs.factories import make_job, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    return make_run()


@pytest.fixture
def api(run: Run) -> Api:
    return Api(make_user(roles={run.job.project: Role.VIEWER}))


def page(api: Api, run: Run, query: str = "", status: int = 200) -> dict[str, Any]:
    answer = api.call("get", f"/api/v1/runs/{run.pk}/logs{query}")
    assert answer.status_code == status, answer.content
    body: dict[str, Any] = answer.json()
    return body


def seqs(body: dict[str, Any]) -> list[int]:
    return [line["seq"] for line in body["results"]]


def test_a_run_without_lines_has_an_empty_log(api: Api, run: Run) -> None:
    assert page(api, run) == {
        "results": [],
        "next": None,
        "previous": None,
        "dropped": 0,
        "forgotten": 0,
        "missing": [],
    }


def test_a_line_is_shown_whole(api: Api, run: Run) -> None:
    at = NOW - timedelta(seconds=2)
    store_texts(run.stream, f"{at:%Y-%m-%d %H:%M:%S}.250Z ERROR a.b: <b>\x1b[31mred")
    [shown] = page(api, run)["results"]
    assert shown == {
        "ref": "1.1",
        "boot": 1,
        "seq": 1,
        "at": "2026-03-01T11:59:58.250000Z",
        "level": "ERROR",
        "source": "a.b",
        "text": "<b>red",
        "fingerprint": fingerprint("a.b", "<b>red"),
    }


def test_pages_lead_from_the_beginning_to_the_end(api: Api, run: Run) -> None:
    store_texts(run.stream, *map(str, range(1, 8)))
    store_texts(make_run().stream, "of another")
    found, query = [], "?limit=3"
    while True:
        body = page(api, run, query)
        found += seqs(body)
        if body["next"] is None:
            break
        query = f"?limit=3&after={body['next']}"
    assert found == [1, 2, 3, 4, 5, 6, 7]
    # To follow: from the last line on.
    last = body["results"][-1]["ref"]
    assert seqs(page(api, run, f"?after={last}")) == []
    store_lines(batches=[batch(run.stream, [8])], now=NOW)
    assert seqs(page(api, run, f"?after={last}")) == [8]


def test_pages_lead_from_the_end_to_the_beginning(api: Api, run: Run) -> None:
    store_texts(run.stream, *map(str, range(1, 8)))
    body = page(api, run, "?tail=3")
    assert (seqs(body), body["next"]) == ([5, 6, 7], None)
    body = page(api, run, f"?limit=3&before={body['previous']}")
    assert seqs(body) == [2, 3, 4]
    body = page(api, run, f"?limit=3&before={body['previous']}")
    assert (seqs(body), body["previous"]) == ([1], None)


def test_a_page_has_a_limit(api: Api, run: Run) -> None:
    store_lines(batches=[batch(run.stream, range(1, MOST_LINES + 3))], now=NOW)
    with CaptureQueriesContext(connection) as queries:
        body = page(api, run, f"?limit={10**9}")
    assert len(body["results"]) == MOST_LINES
    assert len(queries) <= 6
    assert len(page(api, run, f"?tail={10**9}")["results"]) == MOST_LINES


def test_lines_are_found_by_level_and_text(api: Api, run: Run) -> None:
    store_texts(run.stream, "INFO one", "WARN Two", "ERROR three", "two 100%_", "中文 日志")
    assert seqs(page(api, run, "?level=WARNING&level=ERROR")) == [2, 3]
    assert seqs(page(api, run, "?contains=two")) == [2, 4]
    assert seqs(page(api, run, "?contains=100%25_")) == [4]
    assert seqs(page(api, run, "?contains=%25")) == [4]
    assert seqs(page(api, run, "?contains=日志")) == [5]
    assert seqs(page(api, run, "?contains=two&level=ERROR")) == []
    assert seqs(page(api, run, "?contains=")) == [1, 2, 3, 4, 5]
    assert seqs(page(api, run, "?contains=o&tail=1")) == [4]


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    "query",
    [
        "?after=x",
        "?after=7",
        "?after=0.1",
        f"?after=1.{2**63}",
        "?before=1.1&tail=1",
        "?around=1.1&after=1.1",
        "?around=1.1.1",
        "?limit=0",
        "?tail=0",
        "?level=LOUD",
        "?contains=%00",
        "?contains=" + "x" * 201,
    ],
)
def test_bad_questions_are_refused(api: Api, run: Run, query: str) -> None:
    assert page(api, run, query, 400)["code"]


def test_a_line_is_shown_among_its_neighbours(api: Api, run: Run) -> None:
    store_texts(run.stream, *map(str, range(1, 21)))
    body = page(api, run, "?around=1.10&limit=5")
    assert (seqs(body), body["previous"], body["next"]) == ([8, 9, 10, 11, 12], "1.8", "1.12")
    body = page(api, run, "?around=1.1&limit=4")
    assert (seqs(body), body["previous"], body["next"]) == ([1, 2], None, "1.2")
    # One that is not there (any more): what is around it.
    body = page(api, run, "?around=7.7&limit=4")
    assert (seqs(body), body["next"]) == ([19, 20], None)
    assert seqs(page(api, run, "?around=1.10&limit=1")) == [10]


def test_a_line_that_has_overtaken_others_is_shown_when_it_is_asked_for(api: Api, run: Run) -> None:
    now = datetime.now(UTC)
    store_lines(batches=[batch(run.stream, [1, 2, 5, 6, 7])], now=now)
    assert seqs(page(api, run)) == [1, 2]
    assert seqs(page(api, run, "?around=1.5&limit=4")) == [1, 2, 5, 6]


def test_lines_that_never_came_are_told(api: Api, run: Run) -> None:
    store_lines(batches=[batch(run.stream, [1, 2, 6, 7])], now=NOW)
    assert page(api, run)["missing"] == [{"boot": 1, "first": 3, "last": 5}]
    store_lines(batches=[batch(run.stream, [4])], now=NOW)
    assert page(api, run)["missing"] == [
        {"boot": 1, "first": 3, "last": 3},
        {"boot": 1, "first": 5, "last": 5},
    ]


def test_the_first_error_is_where_to_begin(api: Api, run: Run) -> None:
    path = f"/api/v1/runs/{run.pk}/logs/first-error"
    assert api.call("get", path).json() == {"line": None}
    store_texts(run.stream, "INFO a", "KeyError: 'b'", "ERROR c")
    assert api.call("get", path).json()["line"]["ref"] == "1.2"
    stranger = Api(make_user(roles={make_job().project: Role.ADMIN}))
    assert stranger.call("get", path).status_code == 404


def test_a_store_that_is_away_is_said(api: Api, run: Run, settings: Any) -> None:
    close_log_store()
    settings.LOGS_URL = "sqlite:///proc/nowhere/logs"
    for path in ("", "?tail=5"):
        assert page(api, run, path, 503)["code"] == "logs_unavailable"
    answer = api.call("get", f"/api/v1/runs/{run.pk}/logs/download")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


def test_dropped_lines_are_told(api: Api, run: Run) -> None:
    store_lines(batches=[batch(run.stream, [1], dropped=12)], now=NOW)
    assert page(api, run)["dropped"] == 12


def test_builds_have_logs_too() -> None:
    build = make_build()
    store_texts(build.stream, "cloned")
    viewer = Api(make_user(roles={build.project: Role.VIEWER}))
    path = f"/api/v1/builds/{build.pk}/logs"
    assert [one["text"] for one in viewer.call("get", path).json()["results"]] == ["cloned"]
    stranger = Api(make_user(roles={make_job().project: Role.ADMIN}))
    assert stranger.call("get", path).status_code == 404
    assert Api(make_superuser()).call("get", "/api/v1/builds/987654/logs").status_code == 404
    assert Api(make_superuser()).call("get", f"/api/v1/builds/{2**70}/logs").status_code == 404


def test_a_token_needs_the_scope_of_logs(run: Run) -> None:
    user = make_user(roles={run.job.project: Role.VIEWER})
    for scope, status in (("joblogs:read", 200), ("jobs:read", 403)):
        answer = Api(user, scopes=[scope]).call("get", f"/api/v1/runs/{run.pk}/logs")
        assert answer.status_code == status


# --- whole logs -----------------------------------------------------------------------------------


@sync_to_async
def watched(role: Role | None = Role.VIEWER) -> tuple[Run, User]:
    run = make_run()
    return run, make_user(roles={run.job.project if role else make_job().project: Role.VIEWER})


async def download(run: Run, user: User, query: str = "", **headers: str) -> Any:
    client = AsyncClient(headers=headers)
    await client.aforce_login(user)
    return await client.get(f"/api/v1/runs/{run.pk}/logs/download{query}")


async def text_of(answer: Any) -> str:
    return b"".join([chunk async for chunk in answer.streaming_content]).decode()


@pytest.mark.slow("1 s")
@pytest.mark.django_db(transaction=True)
async def test_a_whole_log_comes_as_text() -> None:
    run, user = await watched()
    texts = ["ERROR <script>", "\x1b[31mred", *map(str, range(3, 2 * MOST_LINES + 5))]
    await sync_to_async(store_texts)(run.stream, *texts)
    await sync_to_async(store_lines)(batches=[batch(run.stream, [], dropped=3)], now=NOW)
    answer = await download(run, user, accept="text/plain")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="run-{run.pk}.log"'
    chunks = [chunk async for chunk in answer.streaming_content]
    assert len(chunks) == 4
    lines = b"".join(chunks).decode().splitlines()
    assert lines[0] == "2026-03-01 12:00:00.000Z ERROR stdout: ERROR <script>"
    assert lines[1] == "2026-03-01 12:00:00.000Z stdout: red"
    assert len(lines) == len(texts) + 1
    assert lines[-1] == "dropped=3"


@pytest.mark.django_db(transaction=True)
async def test_a_part_of_a_log_comes_as_lines_of_json() -> None:
    run, user = await watched()
    early = NOW - timedelta(hours=2)
    texts = ["INFO a", f"{early:%Y-%m-%d %H:%M:%S}Z ERROR b.c: early", 'ERROR 价格 "x"', "plain"]
    await sync_to_async(store_texts)(run.stream, *texts)
    query = "?type=jsonl&level=ERROR&since=2026-03-01T11:00:00Z"
    answer = await download(run, user, query, accept="application/x-ndjson")
    assert answer.headers["Content-Type"] == "application/x-ndjson; charset=utf-8"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="run-{run.pk}.jsonl"'
    lines = [json.loads(line) for line in (await text_of(answer)).splitlines()]
    assert lines == [
        {
            "ref": "1.3",
            "at": "2026-03-01T12:00:00.000Z",
            "level": "ERROR",
            "source": "stdout",
            "text": 'ERROR 价格 "x"',
        }
    ]
    answer = await download(run, user, "?until=2026-03-01T11:00:00Z")
    assert await text_of(answer) == "2026-03-01 10:00:00.000Z ERROR b.c: early\n"
    answer = await download(run, user, "?type=csv")
    assert answer.status_code == 400


@pytest.mark.django_db(transaction=True)
async def test_a_download_waits_for_lines_that_were_overtaken() -> None:
    run, user = await watched()
    now = datetime.now(UTC)
    await sync_to_async(store_lines)(batches=[batch(run.stream, [1, 3])], now=now)
    answer = await download(run, user)
    pages = aiter(answer.streaming_content)
    assert (await anext(pages)).decode().count("\n") == 1
    await sync_to_async(store_lines)(batches=[batch(run.stream, [2])], now=now)
    assert (await anext(pages)).decode().count("\n") == 2


@pytest.mark.django_db(transaction=True)
async def test_logs_of_others_cannot_be_downloaded() -> None:
    run, outsider = await watched(None)
    answer = await download(run, outsider, accept="text/plain")
    assert answer.status_code == 404
    assert b"not_found" in answer.content
