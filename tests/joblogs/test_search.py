"""Search over all logs: what one sees and nothing else, page by page, each line with its place."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.access.states import Role
from apps.joblogs.engine.fingerprints import fingerprint
from apps.joblogs.services import close_log_store
from apps.joblogs.templatetags.joblogs_tags import marked
from apps.jobs.models import Run
from tests.access.factories import Api, enter, make_superuser, make_user
from tests.joblogs.factories import NOW, make_build, store_texts
from tests.jobs.factories import make_job, make_run

pytestmark = pytest.mark.django_db

TEXTS = [
    "INFO GET https://shop.example/p/7 took 3 s",
    "WARNING Connection refused by proxy 7",
    "ERROR 抓取失败：价格price 为空",
    "plain",
]


@pytest.fixture
def run() -> Run:
    run = make_run()
    for number, text in enumerate(TEXTS):
        store_texts(run.stream, text, boot=f"b{number}", now=NOW + timedelta(minutes=number))
    return run


@pytest.fixture
def api(run: Run) -> Api:
    return Api(make_user(roles={run.job.project: Role.VIEWER}))


def ask(api: Api, query: str = "", status: int = 200) -> dict[str, Any]:
    answer = api.call("get", f"/api/v1/logs{query}")
    assert answer.status_code == status, answer.content
    body: dict[str, Any] = answer.json()
    return body


def texts(api: Api, query: str = "") -> list[int]:
    """Which of ``TEXTS``."""
    found = {text: number for number, text in enumerate(TEXTS)}
    return [found[row["text"]] for row in ask(api, query)["results"]]


def test_the_newest_come_first_with_their_places(api: Api, run: Run) -> None:
    body = ask(api)
    assert [row["text"] for row in body["results"]] == TEXTS[::-1]
    assert body["next"] is None
    row = body["results"][1]
    assert row == {
        "project": run.job.project_id,
        "job": run.job_id,
        "run": run.pk,
        "build": None,
        "ref": "3.1",
        "boot": 3,
        "seq": 1,
        "at": "2026-03-01T12:02:00Z",
        "level": "ERROR",
        "source": "stdout",
        "text": TEXTS[2],
        "fingerprint": fingerprint("stdout", TEXTS[2]),
        "page": f"/logs/run:{run.pk}#3.1",
    }


@pytest.mark.slow("3 s")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?text=connection", [1]),
        ('?text="connection refused"', [1]),
        ('?text="refused connection"', []),
        ("?text=refused connection", [1]),
        ("?text=失败", [2]),
        ("?text=抓取", [2]),
        ("?text=价格price", [2]),
        ("?text=空", [2]),
        ("?text=https://shop.example/p/7", [0]),
        ("?text=7", [1, 0]),
        ("?level=ERROR&level=WARNING", [2, 1]),
        ("?since=2026-03-01T12:01:00Z&until=2026-03-01T12:03:00Z", [2, 1]),
        (f"?fingerprint={fingerprint('stdout', TEXTS[2])}", [2]),
    ],
)
def test_every_condition_holds(api: Api, query: str, found: list[int]) -> None:
    name, _equals, value = query.partition("=")
    assert texts(api, f"{name}={quote(value, safe='=&')}") == found


def test_one_log_is_searched_by_any_piece_of_text(api: Api, run: Run) -> None:
    assert texts(api, f"?run={run.pk}&contains=FUSED BY") == [1]
    assert "contains" in ask(api, "?contains=fused", 400)["fields"]


def test_pages_lead_back_in_time(api: Api) -> None:
    found, query = [], "?limit=3"
    while True:
        body = ask(api, query)
        found += [row["text"] for row in body["results"]]
        if body["next"] is None:
            break
        query = f"?limit=3&cursor={quote(body['next'])}"
    assert found == TEXTS[::-1]


def test_lines_of_others_are_not_found(run: Run) -> None:
    other = make_job()
    stranger = Api(make_user(roles={other.project: Role.ADMIN}))
    for query in (
        "",
        f"?run={run.pk}",
        f"?project={run.job.project_id}",
        f"?job={run.job_id}",
        "?text=refused",
    ):
        assert ask(stranger, query)["results"] == []
    build = make_build(project=other.project)
    store_texts(build.stream, "built")
    [row] = ask(stranger)["results"]
    assert (row["job"], row["run"], row["build"]) == (None, None, build.pk)
    everything = Api(make_superuser())
    assert len(ask(everything)["results"]) == 5
    assert len(ask(everything, f"?project={run.job.project_id}")["results"]) == 4
    assert len(ask(everything, f"?build={build.pk}")["results"]) == 1


@pytest.mark.slow("2 s")
@pytest.mark.parametrize(
    "query",
    [
        "?limit=0",
        "?run=1&build=1",
        "?run=0",
        f"?run={2**63}",
        "?level=LOUD",
        "?since=yesterday",
        "?text=%00",
        "?text=" + "x" * 201,
        "?fingerprint=x",
    ],
)
def test_bad_questions_are_refused(api: Api, query: str) -> None:
    assert ask(api, query, 400)["code"] == "invalid"


@pytest.mark.parametrize("query", ["?cursor=nonsense", "?text=-", "?text=*", '?text="'])
def test_what_no_store_can_answer_is_said(api: Api, query: str) -> None:
    assert ask(api, query, 422)["code"] == "bad_search"


def test_a_token_needs_the_scope_of_logs(run: Run) -> None:
    user = make_user(roles={run.job.project: Role.VIEWER})
    for scope, status in (("joblogs:read", 200), ("jobs:read", 403)):
        assert Api(user, scopes=[scope]).call("get", "/api/v1/logs").status_code == status


# --- the page -------------------------------------------------------------------------------------


def shown(user: Any, query: str = "", status: int = 200) -> str:
    answer = enter(user).get(f"/logs{query}")
    assert answer.status_code == status
    return str(answer.content.decode())


@pytest.mark.slow("2 s")
def test_the_page_shows_lines_that_lead_to_their_logs(run: Run) -> None:
    viewer = make_user(roles={run.job.project: Role.VIEWER})
    page = shown(viewer, "?text=refused")
    assert "<mark>refused</mark>" in page
    assert f'href="/logs/run:{run.pk}#2.1"' in page
    assert f'href="/runs/{run.pk}"' in page
    assert "为空" not in page
    assert "为空" in shown(viewer, "?level=ERROR&span=&project=&job=&run=")
    assert "No matching lines." in shown(viewer, "?span=1h")
    other = make_job()
    assert "No matching lines." in shown(make_user(roles={other.project: Role.VIEWER}))
    # The projects of others are not there to choose from.
    assert run.job.project.name not in shown(make_user(roles={other.project: Role.VIEWER}))


@pytest.mark.slow("2 s")
def test_the_page_says_what_is_wrong(run: Run, settings: Any) -> None:
    viewer = make_user(roles={run.job.project: Role.VIEWER})
    assert "errorlist" not in shown(viewer, "?since=x&until=2026-01-01T00:00")
    assert 'role="alert"' in shown(viewer, "?since=x")
    assert 'role="alert"' in shown(viewer, f"?project={make_job().project_id}")
    assert 'role="alert"' in shown(viewer, "?text=*")
    assert 'role="alert"' in shown(viewer, "?cursor=x")
    assert 'role="alert"' in shown(viewer, "?fingerprint=x")
    close_log_store()
    settings.LOGS_URL = "sqlite:///proc/nowhere/logs"
    assert "The log store is unavailable" in shown(viewer, status=503)


def test_a_page_costs_few_queries() -> None:
    for _ in range(12):
        store_texts(make_run().stream, "INFO one", "ERROR two")
    client = enter(make_superuser())
    client.get("/logs")
    with CaptureQueriesContext(connection) as queries:
        assert client.get("/logs").status_code == 200
    assert len(queries) <= 12


def test_lines_lie_in_the_page_as_text(run: Run) -> None:
    store_texts(run.stream, "<script>alert(1)</script> evil", boot="x")
    page = shown(make_superuser(), "?text=evil")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; <mark>evil</mark>" in page


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("a <b> c", "b", "a &lt;<mark>b</mark>&gt; c"),
        ("Ab aB", "ab", "<mark>Ab</mark> <mark>aB</mark>"),
        ("one two three", '"two three"', "one <mark>two three</mark>"),
        ("价格为空", "价格", "<mark>价格</mark>为空"),
        ("a", "", "a"),
        ("a.b*c", "b*c", "a.<mark>b*c</mark>"),
    ],
)
def test_what_was_searched_for_is_marked(text: str, words: str, expected: str) -> None:
    assert marked(text, words) == expected


def test_a_long_line_is_cut_around_what_was_searched_for() -> None:
    line = "x" * 5000 + " needle " + "y" * 5000
    cut = str(marked(line, "needle"))
    assert cut.startswith("…")
    assert cut.endswith("…")
    assert "<mark>needle</mark>" in cut
    assert len(cut) < 700
    assert str(marked("z" * 601, "")) == "z" * 600 + "…"
