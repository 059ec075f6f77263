"""Page of the router: accounting, inbounds, outbounds, problems, versions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.access.states import Role
from apps.configcenter.services import ConfigWatcher, activate
from apps.dashboard.navigation import sidebar
from apps.projects.models import Project
from apps.routing.engine.reports import FileReport, InboundReport, OutboundReport, Reports
from apps.routing.models import CounterChange
from apps.routing.queries import projects_with_problems
from apps.routing.states import ItemState
from tests.access.factories import enter, make_project, make_user
from tests.configcenter.factories import NOW, make_process
from tests.routing.admin.pages import (
    LIVE,
    OVERVIEW,
    address,
    html_of,
    outbound,
    person,
    report,
    row_with,
    rule_set,
    save,
    text_of,
)
from tests.routing.factories import arrive, moved
from yardkit.clock import ManualClock

pytestmark = pytest.mark.django_db
ITEMS_OF_EACH = 2


@pytest.fixture
def project() -> Project:
    return make_project()


def run_it(name: str, clock: ManualClock) -> ConfigWatcher:
    """Return a router that reports the version it runs."""
    identity, _daemon = make_process(name)

    def use(project_id: int, active: Any) -> None:
        pass

    follower = ConfigWatcher(kind="routing", apply=use, clock=clock, identity=identity)
    follower.setup()
    return follower


def fill(project: Project) -> None:
    """Store items in several states."""
    for state in (ItemState.PARKED, ItemState.DISPATCHED, ItemState.SUCCEEDED):
        for entry in arrive(project, ITEMS_OF_EACH):
            moved(entry, state, outbound="captcha", reason="target_away")
    for entry in arrive(project, ITEMS_OF_EACH):
        moved(entry, ItemState.REJECTED, outbound="", reason="no_rule")
    CounterChange.objects.create(project=project, inbound="logs", what="filtered", amount=12345)


@pytest.mark.covers("S2.38")
def test_the_books_are_shown_and_where_every_item_stands(project: Project) -> None:
    save(project, active=True)
    fill(project)
    html = html_of(person(project, Role.VIEWER), address(OVERVIEW, project))
    for name, value in (("received", 8), ("final", 4), ("in_flight", 2)):
        assert f'data-books="{name}">{value}<' in html
    text = text_of(html)
    assert "All tasks accounted for" in text
    assert "12,345" in text
    row = row_with(html, 'data-outbound="captcha"')
    # Parked, dispatched, retrying, succeeded, failed, expired, all.
    assert row.endswith("2 0 2 0 0 6")
    assert " 2 " in row
    assert "Never sent to an outbound: rejected 2" in text


def test_books_that_do_not_balance_are_said_first(project: Project) -> None:
    save(project, active=True)
    arrive(project, 2)
    CounterChange.objects.create(project=project, inbound="logs", what="arrived", amount=3)
    html = html_of(person(project), address(LIVE, project))
    assert "3 tasks are unaccounted for." in text_of(html)
    assert 'data-balanced="false"' in html


@pytest.mark.covers("S2.16")
def test_outbounds_stand_in_their_effective_order(project: Project) -> None:
    names = ("o_a_1", "o_b_2", "o_b_1")
    save(project, rule_set(*(outbound(name, "True") for name in names)), active=True)
    html = html_of(person(project, Role.VIEWER), address(OVERVIEW, project))
    places = [html.index(f'data-outbound="{name}"') for name in names]
    assert places == sorted(places)
    assert row_with(html, 'data-outbound="o_b_1"').startswith("3 o_b_1")


@pytest.mark.slow("1 s")
@pytest.mark.covers("S2.8", "S2.16")
def test_a_thousand_outbounds_come_by_pages_and_by_their_names(project: Project) -> None:
    names = [f"o_{number % 2}_{number:04d}" for number in range(1000)]
    save(project, rule_set(*(outbound(name, "True") for name in names)), active=True)
    client = person(project, Role.VIEWER)
    html = html_of(client, address(LIVE, project))
    assert len(html) < 100_000
    assert html.count("data-outbound=") == 50
    assert "1 to 50 of 1,000" in text_of(html)
    # The last page is where a larger number leads, and where the fragment stays.
    html = html_of(client, address(OVERVIEW, project) + "&page=99")
    assert "951 to 1000 of 1,000" in text_of(html)
    assert row_with(html, f'data-outbound="{names[-1]}"').startswith("1000 ")
    assert "&amp;page=20" in html.split('data-fragment="')[1].split('"')[0]
    assert "&amp;page=19" in html
    html = html_of(client, address(OVERVIEW, project) + "&prefix=o_1_&page=2")
    assert "51 to 100 of 500" in text_of(html)
    # Its place is that among all.
    assert row_with(html, f'data-outbound="{names[101]}"').startswith("102 ")
    assert "&amp;prefix=o_1_&amp;page=3" in html
    html = html_of(client, address(LIVE, project) + "&prefix=nobody")
    assert "data-outbound=" not in html


def test_what_is_away_is_said_at_the_top_with_what_is_parked(project: Project) -> None:
    save(project, active=True)
    fill(project)
    since = timezone.now() - timedelta(minutes=4)
    away = OutboundReport(
        problem="redis://cache:6379: connection refused",
        problem_at_ms=round(since.timestamp() * 1000),
        limit_degraded="Redis is away",
    )
    report(project, Reports(outbounds={"captcha": away, "rest": away}), router="r1")
    report(project, Reports(outbounds={"captcha": OutboundReport(depth=7)}), router="r2")
    html = html_of(person(project, Role.VIEWER), address(LIVE, project))
    text = text_of(html)
    said = "Redis does not answer: captcha, rest. 2 tasks are parked and are sent automatically"
    assert said in text
    # One server is gone, and is told of once.
    assert text.count("Redis does not answer") == 1
    assert text.index(said) < text.index("All tasks accounted for")
    row = row_with(html, 'data-outbound="captcha"')
    assert "unreachable 4 minutes ago redis://cache:6379: connection refused" in row
    assert " 7 " in row
    assert "rate limit enforced per router" in row
    assert "Rate limits are enforced by each router separately: captcha, rest." in text


def test_a_failure_file_that_cannot_be_written_is_said_at_the_top(project: Project) -> None:
    save(project, active=True)
    full = "the failure file cannot be written: the disk is full"
    report(project, Reports(failure_file=FileReport(problem=full, problem_at_ms=1)), router="r1")
    report(project, Reports(), router="r2")
    text = text_of(html_of(person(project, Role.VIEWER), address(LIVE, project)))
    assert "The failure file cannot be written. Failed tasks wait" in text
    assert full in text
    (trouble,) = projects_with_problems(make_user(roles={project: Role.VIEWER}), timezone.now())
    assert (trouble.project, trouble.names, trouble.problem) == (project, ("failure file",), full)


def test_lines_tell_how_they_are(project: Project) -> None:
    save(project, active=True)
    found = Reports(
        inbounds={
            "logs": InboundReport(
                problem="<b>no broker</b>",
                problem_at_ms=1,
                poison=3,
                late=2,
                findings=(("threads_over_partitions", "9 threads, 8 partitions"),),
            )
        },
        outbounds={"captcha": OutboundReport(full=True, depth=1000)},
        selector_errors={"rest": 4},
    )
    report(project, found)
    html = html_of(person(project, Role.VIEWER), address(LIVE, project))
    assert "<b>no broker</b>" not in html
    inbound = row_with(html, 'data-inbound="logs"')
    for expected in ("<b>no broker</b>", "2 late acknowledgements", "9 threads, 8 partitions"):
        assert expected in inbound
    assert inbound.endswith(" 3")
    assert "full" in row_with(html, 'data-outbound="captcha"')
    assert "4 type errors in conditions" in row_with(html, 'data-outbound="rest"')
    assert "Inbound logs cannot be read." in text_of(html)


@pytest.mark.covers("S2.23")
def test_what_an_inbound_finds_is_told_in_the_language_of_whoever_looks(project: Project) -> None:
    save(project, active=True)
    found = (("threads_over_partitions", "8 threads, but logs: 4 partition(s)"),)
    report(project, Reports(inbounds={"logs": InboundReport(findings=found)}))
    client = person(project, Role.VIEWER)
    shown = client.get(address(LIVE, project), headers={"Accept-Language": "zh-hans"})
    inbound = row_with(shown.content.decode(), 'data-inbound="logs"')
    assert "线程数多于分区数 (8 threads, but logs: 4 partition(s))" in inbound


def test_reports_of_routers_that_are_gone_do_not_count(project: Project) -> None:
    save(project, active=True)
    old = timezone.now() - timedelta(seconds=20)
    bad = OutboundReport(problem="of yesterday", problem_at_ms=1)
    report(project, Reports(outbounds={"captcha": bad}), at=old)
    text = text_of(html_of(person(project), address(LIVE, project)))
    assert "of yesterday" not in text
    assert "No router is running for this project." in text


def test_a_report_of_another_release_breaks_nothing(project: Project) -> None:
    save(project, active=True)
    row = report(project, Reports())
    row.reports = {"outbounds": "all of them"}
    row.save()
    assert "no report" in text_of(html_of(person(project), address(LIVE, project)))


def test_who_runs_which_version(project: Project) -> None:
    first = save(project, active=True)
    clock = ManualClock(NOW)
    old, new = run_it("r1", clock), run_it("r2", clock)
    second = save(project, rule_set(outbound("new", "True")))
    draft = save(project, rule_set(outbound("newer", "True")))
    activate(version=second, actor=None, now=NOW)
    clock.advance(1)
    new.poll()
    text = text_of(html_of(person(project), address(LIVE, project)))
    assert f"v{second.number} is active 1 of 2 on v{second.number}" in text
    assert f"r1 v{first.number}" in text
    assert f"v{draft.number} not active" in text
    old.poll()
    text = text_of(html_of(person(project), address(LIVE, project)))
    assert f"2 of 2 on v{second.number}" in text


def test_a_project_without_rules_says_so(project: Project) -> None:
    text = text_of(html_of(person(project), address(OVERVIEW, project)))
    assert "No rules yet." in text
    assert "No router is running" not in text


def test_what_left_the_rules_is_still_accounted_for(project: Project) -> None:
    save(project, active=True)
    moved(arrive(project)[0], ItemState.DISPATCHED, outbound="gone <i>")
    html = html_of(person(project), address(LIVE, project))
    assert "<i>" not in html.replace("<ins", "")
    assert "not in the rules" in row_with(html, 'data-outbound="gone &lt;i&gt;"')


def test_the_page_takes_a_fixed_number_of_queries(project: Project) -> None:
    client = person(project)
    counts = []
    for number in (2, 40):
        names = [f"o{n}" for n in range(number)]
        save(project, rule_set(*(outbound(name, "True") for name in names)), active=True)
        for name in names:
            moved(arrive(project)[0], ItemState.PARKED, outbound=name)
        with CaptureQueriesContext(connection) as queries:
            html_of(client, address(OVERVIEW, project))
        counts.append(len(queries))
        assert not [each for each in queries if "COUNT(*)" in each["sql"] and "item" in each["sql"]]
    assert counts[0] == counts[1]
    assert counts[1] <= 20


def test_only_the_projects_of_a_person(project: Project) -> None:
    other = make_project(name="Secret yard")
    client = person(project, Role.VIEWER)
    for name in (OVERVIEW, LIVE):
        assert client.get(address(name, other)).status_code == 404
        for bad in ("x", "-1", "9" * 40, "%00"):
            assert client.get(address(name) + f"?project={bad}").status_code == 404
    assert "Secret yard" not in html_of(client, address(OVERVIEW))
    assert client.get(address(LIVE)).status_code == 200


def test_strangers_see_nothing() -> None:
    nobody: Any = enter(make_user())
    assert nobody.get(address(OVERVIEW)).status_code == 403


def links(rf: RequestFactory, path: str, user: Any) -> dict[str, bool]:
    """Return for each link of the sidebar whether it is marked on this page."""
    request = rf.get(path)
    request.user = user
    return {each["title"]: each["active"] for group in sidebar(request) for each in group["items"]}


@pytest.mark.parametrize(
    ("name", "marked"),
    [
        (OVERVIEW, "Router"),
        # Its address begins like that of the page above.
        ("routing_rules", "Rules"),
        ("routing_parked", "Parked"),
        ("index", "Overview"),
    ],
)
def test_the_sidebar_marks_the_page_that_is_open(
    project: Project, rf: RequestFactory, name: str, marked: str
) -> None:
    found = links(rf, address(name), make_user(roles={project: Role.VIEWER}))
    assert [title for title, active in found.items() if active] == [marked]


def test_who_sees_no_project_has_no_link_to_its_router(rf: RequestFactory) -> None:
    found = links(rf, "/runs/1", make_user())
    assert "Router" not in found
    assert not any(found.values())
