"""The list and the page of frontiers: what they tell, and to whom."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import RequestFactory
from django.utils import timezone

from apps.access.states import Role
from apps.dashboard.navigation import sidebar
from apps.projects.models import Project
from apps.seeds.admin import frontier_page
from apps.seeds.models import Frontier, Operation
from apps.seeds.queries import service_status
from tests.access.factories import make_project, make_user
from tests.seeds.admin.page_helpers import (
    DAY,
    address,
    html_of,
    person,
    report,
    row_of,
    service,
    text_of,
    today,
)

pytestmark = pytest.mark.django_db


def test_the_list_shows_the_books_of_my_frontiers(project: Project, frontier: Frontier) -> None:
    report(frontier, 0, pending=2, failed=3, ignored=1)
    report(frontier, today(), pending=1000, leased=4, succeeded=50, forgotten=9)
    Frontier.objects.create(project=make_project(), name="hidden")
    service()
    text = text_of(html_of(person(project, Role.VIEWER).get(address("changelist"))))
    assert "news by day" in text
    # Pending, leased, done, failed, the oldest segment with something pending, hand-out.
    assert "1,002 4 60 3 default segment open" in text
    assert "The seed service is running." in text
    assert "hidden" not in text


def test_the_list_costs_the_same_however_many(
    project: Project, django_assert_max_num_queries: Any
) -> None:
    client = person(project, Role.VIEWER)
    for number in range(3):
        for each in range(1 + 10 * number):
            made = Frontier.objects.create(project=project, name=f"f-{number}-{each}")
            report(made, today(), pending=1)
        with django_assert_max_num_queries(14):
            client.get(address("changelist"))


@pytest.mark.covers("S3.11", "S3.15")
def test_the_books_of_a_frontier_balance_visibly(project: Project, frontier: Frontier) -> None:
    report(frontier, 0, pending=1, succeeded=2)
    report(frontier, today(), leased=3, failed=4, ignored=5, forgotten=6, duplicates=7, late=8)
    service()
    html = html_of(person(project, Role.VIEWER).get(address("page", frontier)))
    numbers = {"added": 21, "pending": 1, "leased": 3, "succeeded": 2, "failed": 4}
    for name, value in (numbers | {"ignored": 5, "forgotten": 6}).items():
        assert f'data-books="{name}">{value}<' in html
    text = text_of(html)
    assert "All seeds accounted for: each is in exactly one state." in text
    assert "Needs attention" not in text


def test_books_that_do_not_balance_are_said_first(project: Project, frontier: Frontier) -> None:
    report(frontier, today(), pending=1, added=4)
    html = html_of(person(project, Role.VIEWER).get(address("live", frontier)))
    assert "3 seeds are unaccounted for." in text_of(html)
    assert 'data-balanced="false"' in html
    assert "counts inconsistent" in row_of(html, today())
    assert "<html" not in html


@pytest.mark.covers("S3.7", "S3.14")
def test_segments_say_when_they_begin_and_how_full_their_filter_is(
    project: Project, frontier: Frontier
) -> None:
    filled = {"filter_expected": 100, "filter_bytes": 180, "filter_fill": 0.51}
    report(frontier, 0, succeeded=5)
    report(frontier, today(), pending=5, expired=2, late=1, filter_rate=0.00123, **filled)
    report(frontier, today() + 2 * DAY, pending=6, filter_rate=0.2, **filled)
    html = html_of(person(project, Role.VIEWER).get(address("page", frontier)))
    assert row_of(html, 0).startswith("default segment without a time; crawled only once")
    now = row_of(html, today())
    assert " 00:00 now 5 0 0 0 0 0 2 / 1 51 % full 0.12 % false" in now
    future = row_of(html, today() + 2 * DAY)
    assert "due in" in future
    assert "20 % false" in future
    assert html.index('data-when="future"') < html.index('data-when="now"')


def test_old_segments_are_shown_where_something_waits(
    project: Project, frontier: Frontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontier_page, "SHOWN_NEWEST", 3)
    for days in range(10):
        report(frontier, today() - days * DAY, pending=int(days == 8), succeeded=1)
    report(frontier, 0, succeeded=1)
    client = person(project, Role.VIEWER)
    html = html_of(client.get(address("page", frontier)))
    shown = [0, today(), today() - DAY, today() - 2 * DAY, today() - 8 * DAY]
    assert all(f'data-segment="{each}"' in html for each in shown)
    assert html.count("data-segment=") == 5
    assert "6 older segments" in text_of(html)
    whole = html_of(client.get(address("page", frontier, segments="all")))
    assert whole.count("data-segment=") == 11


def test_the_page_costs_the_same_however_many_segments(
    project: Project, frontier: Frontier, django_assert_max_num_queries: Any
) -> None:
    client = person(project, Role.OPERATOR)
    for days in (1, 100):
        for day in range(days):
            report(frontier, today() - (day + days) * DAY, pending=1)
            Operation.objects.create(frontier=frontier, kind="drop")
        with django_assert_max_num_queries(14):
            client.get(address("live", frontier))


@pytest.mark.covers("S3.18")
def test_a_service_that_is_away_is_said_with_how_old_the_figures_are(
    project: Project, frontier: Frontier
) -> None:
    report(frontier, today(), pending=5, reported_at=timezone.now() - timedelta(seconds=40))
    client = person(project, Role.VIEWER)
    never = text_of(html_of(client.get(address("page", frontier))))
    assert "The seed service is unavailable. never started · last report 4" in never
    assert "No seed is lost" in never
    service(beat_at=timezone.now() - timedelta(seconds=50))
    silent = text_of(html_of(client.get(address("page", frontier))))
    assert "The seed service is unavailable. last heartbeat 5" in silent
    assert "5" in row_of(html_of(client.get(address("live", frontier))), today())
    assert "is unavailable" in text_of(html_of(client.get(address("changelist"))))
    service(name="two")
    assert "is unavailable" not in text_of(html_of(client.get(address("page", frontier))))


def test_a_frontier_that_is_paused_or_moved_says_so(project: Project, frontier: Frontier) -> None:
    Frontier.objects.filter(pk=frontier.pk).update(is_paused=True)
    client = person(project, Role.OPERATOR)
    paused = text_of(html_of(client.get(address("page", frontier))))
    assert "Paused: seeds are accepted but not leased." in paused
    assert "Resume leasing" in paused
    Frontier.objects.filter(pk=frontier.pk).update(is_frozen=True)
    assert "Seeds are being moved." in text_of(html_of(client.get(address("page", frontier))))


def test_operations_show_how_far_they_are(project: Project, frontier: Frontier) -> None:
    make = Operation.objects.create
    now = timezone.now()
    make(frontier=frontier, kind="wipe", state="running", done=250, total=1000, beat_at=now)
    made = make(frontier=frontier, kind="drop", arguments={"segment": today()})
    Operation.objects.filter(pk=made.pk).update(created_at=now - timedelta(minutes=2))
    make(frontier=frontier, kind="move", state="failed", error="5 seeds are leased")
    done = {"reopened": 3, "duplicates": 1, "odd": "text"}
    make(frontier=frontier, kind="reopen_failed", state="done", result=done, requested_by="ada")
    html = html_of(person(project, Role.OPERATOR).get(address("live", frontier)))
    text = text_of(html)
    assert "250 / 1,000" in text
    assert 'width="25.00"' in html
    assert "No sign of life for a minute" in text
    assert "5 seeds are leased" in text
    assert "opened again 3 · already in the target segment 1" in text
    assert "by ada" in text
    assert html.count("Cancel") == 2


PAGES = ("page", "live", "look_up", "seeds", "granularity", "export", "drop", "wipe", "change")
BUTTONS = ("pause", "resume", "reopen", "forget", "reopen_failed", "drop", "wipe", "seeds")
NEEDED = {
    "seeds": Role.OPERATOR,
    "drop": Role.EDITOR,
    "wipe": Role.ADMIN,
    "granularity": Role.EDITOR,
}


@pytest.mark.parametrize("name", sorted({*PAGES, *BUTTONS}))
def test_frontiers_of_others_do_not_exist(name: str, frontier: Frontier) -> None:
    stranger, at = person(make_project(), Role.ADMIN), address(name, frontier)
    answers = [stranger.get(at), stranger.post(at, {"name": frontier.name, "segment": "0"})]
    if name == "change":
        # Django's own form goes home instead, with a message.
        assert [answer["Location"] for answer in answers] == ["/admin/"] * 2
    else:
        assert {answer.status_code for answer in answers} <= {404, 405}
        assert 404 in [answer.status_code for answer in answers]


@pytest.mark.slow("2 s")
@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("name", [*BUTTONS, "granularity"])
def test_buttons_need_their_role(
    name: str, role: Role, project: Project, frontier: Frontier
) -> None:
    needed = NEEDED.get(name, Role.OPERATOR)
    answer = person(project, role).post(address(name, frontier))
    if role.covers(needed):
        assert answer.status_code != 403
    else:
        assert answer.status_code == 403


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("name", ["drop", "wipe", "seeds"])
def test_questions_need_the_role_of_their_answers(
    name: str, project: Project, frontier: Frontier
) -> None:
    report(frontier, 0, pending=1)
    for role in Role:
        answer = person(project, role).get(address(name, frontier, segment=0))
        assert answer.status_code == (200 if role.covers(NEEDED[name]) else 403)


def test_a_viewer_is_offered_nothing_that_is_refused(project: Project, frontier: Frontier) -> None:
    report(frontier, today(), failed=5)
    html = html_of(person(project, Role.VIEWER).get(address("page", frontier)))
    for what in ("formaction", "/drop?", '/wipe"', '/seeds"'):
        assert what not in html


@pytest.mark.parametrize("name", ["pause", "reopen", "forget", "reopen_failed", "cancel"])
def test_nothing_is_done_by_following_a_link(
    name: str, project: Project, frontier: Frontier
) -> None:
    client = person(project, Role.ADMIN)
    where = address("page", frontier) + ("operations/1/cancel" if name == "cancel" else name)
    assert client.get(where.replace("_", "-")).status_code == 405


def test_the_sidebar_leads_to_frontiers(project: Project) -> None:
    def titles(user: Any) -> list[str]:
        request = RequestFactory().get("/admin/seeds/frontier/")
        request.user = user
        groups = sidebar(request)
        return [item["title"] for group in groups for item in group["items"] if item["active"]]

    assert titles(make_user(roles={project: Role.VIEWER})) == ["URL queues"]
    assert titles(make_user()) == []


def test_home_counts_the_seeds_of_my_projects(project: Project, frontier: Frontier) -> None:
    report(frontier, 0, pending=1200, leased=3, failed=4)
    other = Frontier.objects.create(project=make_project(), name="hidden")
    report(other, 0, pending=1, added=7)
    service()
    text = text_of(html_of(person(project, Role.VIEWER).get("/admin/")))
    assert "1,200 pending, 3 leased, 4 failed; all seeds accounted for." in text
    assert "some seeds are unaccounted for" not in text
    stranger = html_of(person(make_project(), Role.VIEWER).get("/home/live"))
    assert "data-seeds" not in stranger


def test_home_says_that_seeds_need_a_person(project: Project, frontier: Frontier) -> None:
    report(frontier, 0, pending=1, added=2)
    text = text_of(html_of(person(project, Role.VIEWER).get("/home/live")))
    assert "The seed service does not respond." in text
    assert "news : Some seeds are unaccounted for." in text
    assert "Nothing. All runs" not in text


def test_one_living_process_is_enough() -> None:
    now = timezone.now()
    assert service_status(now).heard_at is None
    service(name="dead", beat_at=now - timedelta(hours=1))
    assert not service_status(now).alive
    service(name="gone", state="stopped")
    assert not service_status(now).alive
    service(name="alive")
    assert service_status(now).alive
