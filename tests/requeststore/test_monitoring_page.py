"""The page that says how the request store is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.access.models import User
from apps.access.states import Role
from apps.projects.models import Project
from apps.queuestats.models import SampleSender
from apps.requeststore.admin.monitoring_page import monitoring
from apps.requeststore.models import NodeReport
from apps.requeststore.queries import outlook as outlook_module
from apps.requeststore.services.scale_advice import decide_scale
from tests.access.factories import make_project, make_superuser, make_user
from tests.requeststore.biz_reports import (
    make_bizzes,
    make_fetchers,
    make_queue,
    make_rates,
    make_report,
)
from tests.requeststore.factories import save_bizzes

pytestmark = pytest.mark.django_db

PAGE = "/admin/requeststore/queuereport/"
LIVE = f"{PAGE}live"


@pytest.fixture(autouse=True)
def unread() -> Iterator[None]:
    # Tests that roll back give the same number to another version.
    outlook_module._read.clear()
    yield
    outlook_module._read.clear()


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> datetime:
    """The moment of every page: what was counted up to it is neither old nor to come."""
    moment = timezone.now()
    # The second one is asked before the first decision about scaling.
    monkeypatch.setattr(outlook_module, "database_moment", lambda: moment)
    monkeypatch.setattr(outlook_module, "database_now", lambda: moment)
    return moment


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def furnish(project: Project, now: datetime, **options: float) -> None:
    make_bizzes(project, news={"finish_by_seconds": 7200})
    make_report(project, now=now, by_flag={"0": 60_000, "-1": 3, "-2": 17})
    make_queue(project)
    make_rates(project, now=now, **options)  # type: ignore[arg-type]  # of its own keywords
    make_fetchers(1, now=now)
    NodeReport.objects.create(name="default", kind="sqlite", version="3.45", storage_bytes=9_000)


@pytest.mark.covers("S4.24", "S4.25", "S4.26", "S4.28")
def test_it_shows_paces_backlog_forecast_queue_and_nodes(project: Project, now: datetime) -> None:
    furnish(project, now, failed=2)
    client = logged_in(make_superuser())
    for address in (PAGE, LIVE):
        html = client.get(address).content.decode()
        for part in (
            'data-biz="news"',
            "<td>20/s</td><td>20/s</td><td>20/s</td>",
            "<td>25/s</td><td>25/s</td><td>25/s</td>",
            "<td>2/s</td><td>2/s</td><td>2/s</td>",
            "<dd data-backlog>60,003</dd>",
            "done in 3 h 20 min",
            ">120</dd>",
            ">17</dd>",
            "3.8 MB",
            'data-node="default"',
            'data-fetchers="running">1<',
            "cy-curve-processed",
        ):
            assert part in html, (address, part)
    assert (
        'data-fragment="/admin/requeststore/queuereport/live"' in client.get(PAGE).content.decode()
    )


@pytest.mark.covers("S4.24", "S4.25")
def test_each_precision_is_its_own(project: Project, now: datetime) -> None:
    furnish(project, now)
    # And at the third second from now, the last that is complete, 60 more of each.
    at = now - timedelta(seconds=2)
    make_rates(project, created=60, processed=60, seconds=2, now=at, sender="f2")
    html = logged_in(make_superuser()).get(LIVE).content.decode()
    assert "<td>80/s</td><td>32/s</td><td>21/s</td>" in html
    assert "<td>85/s</td><td>37/s</td><td>26/s</td>" in html


@pytest.mark.covers("S4.24")
def test_a_biz_that_takes_no_more_is_named(project: Project, now: datetime) -> None:
    furnish(project, now)
    client = logged_in(make_superuser())
    assert "takes no new requests" not in client.get(LIVE).content.decode()
    save_bizzes(project, news={"max_waiting": 60_000})
    told = "/news accepts no new requests: 60,000 queued, limit 60,000."
    assert told in client.get(LIVE).content.decode()
    save_bizzes(project, news={"max_waiting": 60_001})
    assert "takes no new requests" not in client.get(LIVE).content.decode()


@pytest.mark.covers("S4.26", "S4.27", "S4.28")
def test_what_is_wrong_stands_first(project: Project, now: datetime) -> None:
    furnish(project, now, created=40, processed=8)
    past = now - timedelta(minutes=7)
    NodeReport.objects.create(
        name="away", kind="mongodb", problem="no <primary> answers", since_at=past
    )
    NodeReport.objects.create(name="lost", kind="mongodb", reported_at=past)
    NodeReport.objects.create(
        name="slow", kind="postgresql", slow=[{"seconds": 4.5, "text": "UPDATE requests"}]
    )
    SampleSender.objects.create(
        sender="box 7", boot="b", behind_seconds=-300, heard_at=now - timedelta(seconds=2)
    )
    html = logged_in(make_superuser()).get(LIVE).content.decode()
    for part in (
        "Storage node away has a problem.",
        "no &lt;primary&gt; answers",
        "7\xa0minutes ago",
        "Storage node lost is not checked",
        "Storage node slow is slow: 4 s for one operation.",
        "news will be late: never at this rate: 40/s created, 8/s processed",
        "more fetchers needed to finish in time",
        "The clock of box 7 is 5 min ahead; its counts are corrected.",
    ):
        assert part in html, part
    assert html.index("has a problem") < html.index("The clock of") < html.index("Request groups")


def test_without_statistics_rates_are_no_zeros(project: Project) -> None:
    make_bizzes(project, news={})
    html = logged_in(make_superuser()).get(LIVE).content.decode()
    assert "no run_statistics process is running" in html
    assert "<td>–</td><td>–</td><td>–</td>" in html


def test_each_sees_the_bizzes_of_their_projects(project: Project) -> None:
    other = make_project()
    for each, name in ((project, "mine"), (other, "theirs")):
        make_bizzes(each, **{name: {}})
    viewer = logged_in(make_user(roles={project: Role.VIEWER}, is_staff=True))
    html = viewer.get(PAGE).content.decode()
    assert 'data-biz="mine"' in html
    assert "theirs" not in html
    assert viewer.get(f"{PAGE}?project={project.pk}").status_code == 200
    assert viewer.get(f"{PAGE}?project={other.pk}").status_code == 404
    assert viewer.get(f"{LIVE}?project=x").status_code == 404
    assert Client().get(PAGE).status_code == 302
    everything = logged_in(make_superuser()).get(PAGE).content.decode()
    assert 'data-biz="mine"' in everything
    assert 'data-biz="theirs"' in everything


@pytest.mark.slow("1 s")
def test_the_number_of_queries_does_not_grow(project: Project, now: datetime) -> None:
    furnish(project, now)
    # As every platform has done within ten seconds.
    decide_scale(now)

    def queries(projects: list[Project]) -> int:
        monitoring([each.pk for each in projects], now)
        with CaptureQueriesContext(connection) as captured:
            monitoring([each.pk for each in projects], now)
        return len(captured)

    few = queries([project])
    others = [make_project() for _ in range(4)]
    for other in others:
        make_bizzes(other, a={}, b={}, c={})
        make_report(other, "a", now=now)
        make_queue(other, "a")
        make_rates(other, "a", now=now, seconds=5)
    assert queries([project, *others]) == few <= 7
    viewer = make_user(roles={project: Role.VIEWER}, is_staff=True)
    for user in (make_superuser(), viewer):
        client = logged_in(user)
        for address in (PAGE, LIVE):
            client.get(address)
            with CaptureQueriesContext(connection) as captured:
                client.get(address)
            assert len(captured) <= 12, "the session, the person and the projects included"
