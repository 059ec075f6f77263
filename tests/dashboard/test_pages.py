"""The home page and the page of a run, as they come from the server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone, translation

from apps.access.models import User
from apps.access.states import Role
from apps.dashboard import pages
from apps.dashboard.backlog import Backlog, QueueBacklog
from apps.jobs.models import Run
from apps.jobs.services import claim_runs, finish_run, mark_running, start_run
from apps.jobs.states import RunState
from apps.routing.engine.reports import OutboundReport, Reports
from apps.runtime.models import DeadLetter
from apps.runtime.services import register_daemon
from tests.access.factories import make_superuser, make_user
from tests.agents.factories import make_agent, make_allocation
from tests.jobs.factories import make_job, make_project, make_run
from tests.queuestats.factories import center_report, report
from tests.routing.admin.pages import report as router_says

pytestmark = pytest.mark.django_db

NO_QUEUES = Backlog()


@pytest.fixture(autouse=True)
def queues(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Backlog]]:
    """What the broker would say; test_backlog.py asks a real one."""
    now = {"now": NO_QUEUES}
    monkeypatch.setattr(pages, "backlog", lambda: now["now"])
    return now


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def text_of(page: Any) -> str:
    assert page.status_code == 200
    return " ".join(re.sub(r"<[^>]+>", " ", page.content.decode()).split())


def ended_run(state: RunState, *, hours_ago: float = 1.0, **fields: Any) -> Run:
    ended = timezone.now() - timedelta(hours=hours_ago)
    fields = {"created_at": ended, "started_at": ended, "ended_at": ended} | fields
    return make_run(state=state, **fields)


def test_home_says_that_nothing_needs_a_person() -> None:
    make_agent()
    ended_run(RunState.EXITED)
    assert "Nothing. All runs, Agents" in text_of(logged_in(make_superuser()).get("/admin/"))


def test_home_lists_first_what_needs_a_person(queues: dict[str, Backlog]) -> None:
    failed = ended_run(RunState.FAILED, reason="ValueError: <b>boom</b>")
    lost = ended_run(RunState.LOST)
    ended_run(RunState.FAILED, hours_ago=25, reason="too long ago")
    make_agent(name="gone", silent_seconds=600)
    make_agent(name="switched off", silent_seconds=600, mode="disabled")
    past = timezone.now() - timedelta(minutes=5)
    register_daemon(
        kind="run_center", name="box-1", boot="1", host="box", pid=1, state="running", now=past
    )
    DeadLetter.objects.create(message_id="m", queue="q", body=b"", body_size=0, died_at=past)
    queues["now"] = Backlog(lines=[QueueBacklog("runners", "queued runs", 3, None, 0)])
    page = logged_in(make_superuser()).get("/admin/")
    html, text = page.content.decode(), text_of(page)
    assert f"{failed} failed" in text
    assert f"{lost} lost" in text
    assert "ValueError: &lt;b&gt;boom&lt;/b&gt;" in html
    assert "too long ago" not in text
    assert "Agent gone is silent; last heartbeat 10 minutes ago." in text
    assert "switched off" not in text
    assert "Process run_center box-1 on box is silent; last heartbeat 5 minutes ago." in text
    assert "1 dead letter waits for a decision" in text
    assert "The queue “queued runs” has no consumer; 3 messages wait." in text
    assert text.index(str(failed)) < text.index("Active runs") < text.index("Recent runs")


def test_home_counts_what_it_does_not_list() -> None:
    job = make_job()
    for _ in range(13):
        ended_run(RunState.FAILED, job=job)
    page = logged_in(make_superuser()).get("/admin/")
    assert "13 failed or lost runs in the last 24 hours" in text_of(page)
    assert "/admin/jobs/run/?state__in=failed,lost" in page.content.decode()


def test_home_shows_running_runs_with_their_figures_and_only_visible_ones() -> None:
    mine = make_run(state=RunState.RUNNING, job=make_job(name="my pages"))
    make_run(state=RunState.RUNNING, job=make_job(name="their pages"))
    report(mine, total=1000, success=250, failed=50, queued=700)
    page = logged_in(make_user(roles={mine.job.project: Role.VIEWER})).get("/admin/")
    html = page.content.decode()
    assert f'data-run="{mine.pk}"' in html
    assert '<span data-counter="left">700</span>' in html
    assert 'data-part="success" height="1" width="25.000"' in html
    assert "their pages" not in html


def test_dead_letters_are_for_those_who_see_everything() -> None:
    now = timezone.now()
    DeadLetter.objects.create(message_id="m", queue="q", body=b"", body_size=0, died_at=now)
    member = make_user(roles={make_project(): Role.ADMIN})
    assert "dead letter waits" not in text_of(logged_in(member).get("/admin/"))


def test_home_without_jobs_says_what_to_do_first() -> None:
    page = logged_in(make_superuser()).get("/admin/")
    assert "No jobs yet." in text_of(page)
    assert "/admin/jobs/job/add/" in page.content.decode()


def test_a_broker_that_is_away_is_said_and_the_page_comes_anyway(
    queues: dict[str, Backlog],
) -> None:
    queues["now"] = Backlog(problem="The broker does not respond.", detail="connection refused")
    text = text_of(logged_in(make_superuser()).get("/admin/"))
    assert "The broker does not respond." in text
    assert "connection refused" in text
    assert "Nothing. All runs" not in text


@pytest.mark.slow("1 s")
def test_home_names_what_does_not_answer_the_router() -> None:
    project, other = make_project(), make_project()
    broken = OutboundReport(problem="redis://10.0.0.1:6379/0 cannot be reached", problem_at_ms=1)
    router_says(project, Reports(outbounds={"companies": broken, "details": OutboundReport()}))
    router_says(other, Reports(outbounds={"fine": OutboundReport()}))
    text = text_of(logged_in(make_superuser()).get("/admin/"))
    assert "companies" in text
    assert "redis://10.0.0.1:6379/0 cannot be reached" in text
    assert "details" not in text
    assert "Nothing. All runs" not in text
    stranger = text_of(logged_in(make_user(roles={other: Role.VIEWER})).get("/admin/"))
    assert "companies" not in stranger
    assert "Nothing. All runs" in stranger


@pytest.mark.slow("4 s")
def test_home_costs_the_same_however_much_there_is(django_assert_max_num_queries: Any) -> None:
    client = logged_in(make_superuser())
    for each in range(2):
        for _ in range(1 + 20 * each):
            report(make_run(state=RunState.RUNNING), total=1, success=1)
            ended_run(RunState.FAILED)
            make_agent()
        with django_assert_max_num_queries(20):
            client.get("/admin/")
        with django_assert_max_num_queries(15):
            client.get("/home/live")


@pytest.mark.slow("1 s")
def test_the_sidebar_leads_only_to_what_a_person_may_see() -> None:
    viewer = logged_in(make_user(roles={make_project(): Role.VIEWER})).get("/admin/")
    superuser = logged_in(make_superuser()).get("/admin/")
    links = [
        set(re.findall(r'href="(/admin/\w+/\w+/)"', p.content.decode()))
        for p in (viewer, superuser)
    ]
    assert {"/admin/jobs/job/", "/admin/jobs/run/", "/admin/agents/agent/"} <= links[0]
    machinery = ("deadletter", "daemon", "outboxmessage")
    for hidden in ("/admin/access/user/", *(f"/admin/runtime/{each}/" for each in machinery)):
        assert hidden not in links[0]
        assert hidden in links[1]


def test_the_fragment_is_no_whole_page() -> None:
    html = logged_in(make_superuser()).get("/home/live").content.decode()
    assert "Needs attention" in html
    assert "<html" not in html


def played_run(state: RunState | None = RunState.EXITED, **counts: Any) -> Run:
    """A run that went through its states as in life."""
    now = timezone.now() - timedelta(minutes=10)
    job = make_job(arguments={"start": "https://a.org/中文"})
    run = start_run(job=job, now=now, actor=make_superuser(username="ada"))
    Run.objects.filter(pk=run.pk).update(host="box-1")
    (run,) = claim_runs(host="box-1", limit=1, now=now)
    mark_running(run=run, pid=1, process_started=1.0, now=now)
    report(run, final=state is not None, **counts)
    if state is not None:
        later = now + timedelta(seconds=100)
        finish_run(run=run, state=state, reason="", now=later, exit_code=0)
    return run


@pytest.mark.covers("S1.17")
def test_the_page_of_a_run_tells_its_whole_story() -> None:
    counts = {"total": 530, "success": 528, "failed": 2, "pages": 520, "items": 7}
    run = played_run(agents={"n1": 300, "old": 230}, failures=2, **counts)
    make_allocation(run, make_agent(agent_id="n1", name="north-1"))
    page = logged_in(make_superuser()).get(f"/runs/{run.pk}")
    html, text = page.content.decode(), text_of(page)
    for counter, value in {"left": 0, "total": 530, "success": 528, "failed": 2}.items():
        assert f'data-counter="{counter}">{value}</span>' in html
    assert "All requests accounted for." in text
    assert (
        "Total 530 = 528 succeeded + 2 failed + 0 pending ( 0 queued in the run + 0 in flight)."
    ) in text
    assert 'data-accounting data-balanced="true"' in html
    assert re.search(r'<div data-balanced="true">\s*<dt>Items</dt>', html)
    assert "pages/s on average 5.2" in text
    assert "duration 1:40" in text
    assert re.search(r"queued by ada .* starting by box-1 .* running by box-1 .* exited", text)
    assert "north-1 300" in text
    assert "old silent 230" in text
    assert "https://a.org/2 404 not found" in text
    settings = text_of(logged_in(make_superuser()).get(f"/runs/{run.pk}/settings"))
    assert "https://a.org/中文" in settings
    assert "Start again" in text


def test_books_that_do_not_balance_are_said_not_to() -> None:
    run = played_run(RunState.LOST, total=10, success=1, queued=2)
    html = logged_in(make_superuser()).get(f"/runs/{run.pk}").content.decode()
    assert 'data-accounting data-balanced="false"' in html
    assert 'data-equation="requests" data-balanced="false"' in html
    assert 'data-equation="attempts" data-balanced="true"' in html
    assert "Some requests are unaccounted for" in html


@pytest.mark.covers("S1.19")
def test_the_page_of_a_run_accounts_for_every_attempt() -> None:
    run = played_run(
        None,
        **{"total": 70, "success": 40, "failed": 5, "queued": 10, "in_flight": 15},
        **{"sent": 60, "retried": 40, "returned": 50, "skipped": 20, "timed_out": 10},
        **{"refused": 5, "cancelled": 2, "out": 13, "held": 4},
    )
    client = logged_in(make_superuser())
    page = client.get(f"/runs/{run.pk}")
    assert (
        "60 sent + 40 retried = 50 returned + 20 skipped + 10 timed out + 5 refused "
        "+ 2 cancelled + 13 in flight ( 4 of them deferred)."
    ) in text_of(page)
    assert "received =" not in text_of(page)
    counts = {"received": 90, "dispatched": 70, "skipped": 12, "expired": 3, "refused": 2}
    center_report(run, **counts, held=4)
    page = client.get(f"/runs/{run.pk}/live")
    assert (
        "90 received = 70 dispatched + 12 skipped + 3 expired + 2 refused + 4 deferred."
    ) in text_of(page)
    html = page.content.decode()
    assert 'data-accounting data-balanced="false"' in html
    # One is missing: that line says so, and the others do not.
    found = dict(re.findall(r'data-equation="(\w+)" data-balanced="(\w+)"', html))
    assert found == {"requests": "true", "attempts": "true", "center": "false"}


@pytest.mark.parametrize(("obey", "said"), [(True, "respected"), (False, "ignored")])
def test_the_page_of_a_run_says_whether_robots_txt_is_obeyed(obey: bool, said: str) -> None:
    run = make_run(job=make_job(obey_robots=obey))
    assert f"robots.txt {said}" in text_of(logged_in(make_superuser()).get(f"/runs/{run.pk}"))


def test_a_run_that_has_not_reported() -> None:
    run = make_run()
    text = text_of(logged_in(make_superuser()).get(f"/runs/{run.pk}"))
    assert "The run has not reported anything yet." in text
    assert "No agent is assigned yet." in text


def test_an_ended_run_is_spoken_of_as_one() -> None:
    run = make_run(state=RunState.FAILED)
    page = logged_in(make_superuser()).get(f"/runs/{run.pk}")
    text = text_of(page)
    assert "The run reported nothing." in text
    assert "No agent was assigned to this run." in text
    assert "No request failed." in text
    # Its bar is a share of all there was.
    assert "data-open" not in page.content.decode()


def test_the_bar_of_an_active_run_shows_no_share_of_a_total_that_grows() -> None:
    run = played_run(None, total=20, success=19, queued=1)
    html = logged_in(make_superuser()).get(f"/runs/{run.pk}").content.decode()
    assert "data-bar data-open" in html
    assert "aria-valuenow" not in html
    assert "95 %" not in html


def test_what_the_job_sets_instead_of_the_spider_is_named() -> None:
    client = logged_in(make_superuser())
    run = make_run(job=make_job(speed=0.5, timeout_retries=3))
    text = text_of(client.get(f"/runs/{run.pk}"))
    assert "set by the job speed 0.5, request_timeout_retries 3" in text
    assert "set by the job" not in text_of(client.get(f"/runs/{make_run().pk}"))


def test_the_sidebar_marks_runs_on_the_page_of_a_run() -> None:
    page = logged_in(make_superuser()).get(f"/runs/{make_run().pk}")
    items = [item for group in page.context["sidebar_navigation"] for item in group["items"]]
    assert [item["title"] for item in items if item["active"]] == ["Runs"]


@pytest.mark.slow("1 s")
def test_an_active_run_has_a_stop_button_for_operators_alone() -> None:
    run = played_run(None, total=1, in_flight=1)
    stop = f'action="/admin/jobs/run/{run.pk}/stop"'
    project = run.job.project
    operator = logged_in(make_user(roles={project: Role.OPERATOR}))
    assert stop in operator.get(f"/runs/{run.pk}").content.decode()
    assert stop in operator.get(f"/runs/{run.pk}/live").content.decode()
    viewer = logged_in(make_user(roles={project: Role.VIEWER}))
    assert stop not in viewer.get(f"/runs/{run.pk}").content.decode()
    Run.objects.filter(pk=run.pk).update(state=RunState.STOPPING)
    assert stop not in operator.get(f"/runs/{run.pk}").content.decode()


def test_only_the_first_failures_are_listed_with_a_link_to_all() -> None:
    run = played_run(None, total=80, failed=80, failures=80)
    html = logged_in(make_superuser()).get(f"/runs/{run.pk}").content.decode()
    assert html.count('class="cy-address"') == 50
    assert f"/runs/{run.pk}/requests?filter=outcome:equals:failed" in html
    assert f"/runs/{run.pk}/requests?filter=url:equals:https%3A%2F%2Fa.org%2F1" in html


@pytest.mark.parametrize("address", ["/runs/{}", "/runs/{}/live"])
def test_who_may_not_see_a_run(address: str) -> None:
    address = address.format(make_run().pk)
    assert logged_in(make_user(roles={make_project(): Role.ADMIN})).get(address).status_code == 404
    assert logged_in(make_superuser()).get("/runs/99999999999999999999").status_code == 404
    login = Client().get(address)
    assert login.status_code == 302
    assert "/admin/login/" in login.headers["Location"]


def test_the_page_of_a_run_costs_a_fixed_number_of_queries(
    django_assert_max_num_queries: Any,
) -> None:
    run = played_run(None, total=80, failed=80, failures=80, agents={"n1": 1, "n2": 2})
    make_allocation(run, *(make_agent() for _ in range(20)))
    client = logged_in(make_superuser())
    with django_assert_max_num_queries(19):
        client.get(f"/runs/{run.pk}")
    with django_assert_max_num_queries(17):
        client.get(f"/runs/{run.pk}/live")


@pytest.mark.parametrize("address", ["/admin/", "/runs/{}"])
def test_pages_bring_no_script_of_their_own_and_ask_nobody_else(address: str) -> None:
    run = played_run(None, total=1, in_flight=1)
    client = logged_in(make_superuser())
    html = client.get(address.format(run.pk)).content.decode()
    content = html[html.index('id="content"') :]
    content = content[: content.index("unfold/js/simplebar")]
    mine = content[: content.index("</section>")] + content[content.index("data-live") :]
    assert "<script>" not in mine
    assert not re.search(r'\s(style|onclick|onload)="', mine)
    for source in re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="([^"]+)"', html):
        assert source.startswith("/"), source


def test_state_comes_in_the_persons_language() -> None:
    run = played_run(None, total=1, in_flight=1)
    client = logged_in(make_superuser())
    headers = {"accept-language": "zh-hans"}
    with translation.override("en"):
        html = client.get(f"/runs/{run.pk}", headers=headers).content.decode()
    assert "运行中" in html


@pytest.mark.covers("S1.16")
def test_the_page_of_a_run_says_how_its_agents_were_chosen_and_how_they_are() -> None:
    run = make_run(state=RunState.RUNNING)
    good, draining = make_agent(name="good"), make_agent(name="tired", mode="draining")
    make_allocation(
        run, good, draining, policy="fixed", warning="3 agents asked for, 2 given (1 not alive)"
    )
    page = logged_in(make_superuser()).get(f"/runs/{run.pk}")
    text = text_of(page)
    assert "fixed: some agents, chosen at the start" in text
    assert "3 agents asked for, 2 given (1 not alive)" in text
    assert "tired draining" in text
    assert f"/admin/agents/agent/{good.pk}/change/" in page.content.decode()


def test_home_names_the_mode_and_the_first_problem_of_an_agent() -> None:
    make_agent(name="north", mode="draining", problems=["disk full", "more"])
    text = text_of(logged_in(make_superuser()).get("/admin/"))
    assert "north (draining) disk full" in text
