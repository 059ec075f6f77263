"""What is done to many seeds at once by buttons: asked first, begun, cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from apps.access.states import Role
from apps.projects.models import Project
from apps.seeds.models import Frontier, Operation
from apps.seeds.services import change_granularity, client_of, show_segments
from apps.seeds.services.operation_steps import freeze
from apps.seeds.states import OperationState
from tests.seeds.admin.page_helpers import (
    DAY,
    address,
    crawl,
    html_of,
    person,
    report,
    run,
    said,
    text_of,
    today,
)
from tests.seeds.services.small_service import Desk
from yardkit.protocol import Seed, SeedOutcome

pytestmark = pytest.mark.django_db


def test_failed_seeds_are_added_to_the_segment_of_now(
    project: Project, frontier: Frontier, desk: Desk
) -> None:
    crawl(frontier, "a", "b", outcome=SeedOutcome.GIVEN_UP, days_ago=1)
    client = person(project, Role.OPERATOR)
    answer = client.post(address("reopen_failed", frontier), {"segment": today() - DAY})
    assert "Started" in said(answer)
    done = run(Operation.objects.get())
    assert (done.state, done.result) == ("done", {"reopened": 2, "duplicates": 0})
    assert done.requested_by
    counts = {one.segment: one.books.pending for one in show_segments(frontier)}
    assert counts == {today() - DAY: 0, today(): 2}


def test_a_segment_is_dropped_by_somebody_who_saw_what_is_in_it(
    project: Project, frontier: Frontier, desk: Desk
) -> None:
    crawl(frontier, "a", "b", outcome=SeedOutcome.SUCCESS)
    report(frontier, today(), pending=3, succeeded=1200, failed=4, forgotten=5)
    client = person(project, Role.EDITOR)
    text = text_of(html_of(client.get(address("drop", frontier, segment=today()))))
    assert "Pending 3" in text.replace("pending", "Pending")
    assert "succeeded 1,200" in text
    assert "Drop 1,207 seeds" in text
    assert Operation.objects.count() == 0
    assert client.get(address("drop", frontier, segment=today() + DAY)).status_code == 404
    assert "Started" in said(client.post(address("drop", frontier), {"segment": today()}))
    assert run(Operation.objects.get()).state == OperationState.DONE
    assert show_segments(frontier) == []


def test_leased_seeds_are_dropped_only_when_that_is_ticked(
    project: Project, frontier: Frontier, desk: Desk
) -> None:
    crawl(frontier, "a", outcome=None)
    report(frontier, today(), leased=1)
    client = person(project, Role.EDITOR)
    asked = text_of(html_of(client.get(address("drop", frontier, segment=today()))))
    assert "Include the 1 leased seed" in asked
    client.post(address("drop", frontier), {"segment": today()})
    refused = run(Operation.objects.get())
    assert refused.state == OperationState.FAILED
    client.post(address("drop", frontier), {"segment": today(), "leased_too": "1"})
    assert run(Operation.objects.exclude(pk=refused.pk).get()).state == OperationState.DONE
    text = text_of(html_of(client.get(address("page", frontier))))
    assert refused.error in text
    assert "segments 1 · seeds 1 · leased 1" in text


@pytest.mark.covers("S3.20")
def test_a_frontier_is_wiped_by_its_name(project: Project, frontier: Frontier, desk: Desk) -> None:
    crawl(frontier, "a", outcome=SeedOutcome.SUCCESS)
    crawl(frontier, "b", outcome=SeedOutcome.SUCCESS, days_ago=2)
    client = person(project, Role.ADMIN)
    for wrong in ("", "New", "news\x00", "old"):
        text = text_of(html_of(client.post(address("wipe", frontier), {"name": wrong})))
        assert "The name does not match. Nothing was deleted." in text
    assert Operation.objects.count() == 0
    assert "Started" in said(client.post(address("wipe", frontier), {"name": " news "}))
    assert run(Operation.objects.get()).state == OperationState.DONE
    assert show_segments(frontier) == []


def test_hand_out_is_paused_and_resumed(project: Project, frontier: Frontier) -> None:
    client = person(project, Role.OPERATOR)
    for verb, paused in (("pause", True), ("resume", False)):
        client.post(address(verb, frontier))
        frontier.refresh_from_db()
        assert frontier.is_paused is paused


def test_an_operation_is_cancelled_once(project: Project, frontier: Frontier, desk: Desk) -> None:
    crawl(frontier, "a", outcome=SeedOutcome.SUCCESS)
    client = person(project, Role.OPERATOR)
    client.post(address("reopen_failed", frontier), {"segment": today()})
    operation = Operation.objects.get()
    where = f"{address('page', frontier)}operations/{operation.pk}/cancel"
    assert "Cancelled" in said(client.post(where))
    operation.refresh_from_db()
    assert operation.state == OperationState.CANCELLED
    assert "has already ended" in said(client.post(where))
    assert client.post(f"{address('page', frontier)}operations/99999/cancel").status_code == 404
    assert person(project, Role.VIEWER).post(where).status_code == 403


def test_an_operation_of_another_frontier_is_not_cancelled_here(
    project: Project, frontier: Frontier
) -> None:
    other = Frontier.objects.create(project=project, name="other")
    operation = Operation.objects.create(frontier=other, kind="wipe")
    client = person(project, Role.ADMIN)
    where = f"{address('page', frontier)}operations/{operation.pk}/cancel"
    assert client.post(where).status_code == 404


def test_a_frontier_that_is_moved_is_left_alone(
    project: Project, frontier: Frontier, desk: Desk
) -> None:
    change_granularity(frontier, segments="week")
    client = person(project, Role.ADMIN)
    answer = client.post(address("wipe", frontier), {"name": "news"})
    assert "Another operation on this URL queue has not ended yet." in said(answer)
    freeze(frontier.pk)
    desk.follow(frontier)
    body = {"seeds": "https://a.cn/1", "when": "now"}
    text = text_of(html_of(client.post(address("seeds", frontier), body)))
    assert "The seeds of this URL queue are being moved." in text


# --- other rules ----------------------------------------------------------------------------------


def rules(**fields: Any) -> dict[str, Any]:
    """The form as it stands, with other answers."""
    values = {"segments": "day", "time_zone": "UTC", "keys": "page", "ignored_parameters": ""}
    return values | fields


@pytest.mark.covers("S3.3")
def test_rules_are_changed_by_somebody_who_saw_what_they_do(
    project: Project, frontier: Frontier, desk: Desk
) -> None:
    for days in (0, 1):
        crawl(frontier, "a", "b", outcome=SeedOutcome.SUCCESS, days_ago=days)
    client = person(project, Role.EDITOR)
    where = address("granularity", frontier)
    assert 'value="day"' in html_of(client.get(where))
    html = html_of(client.post(where, rules(segments="none")))
    text = text_of(html)
    assert "4 seeds would be moved to: a single segment, UTC, page" in text
    assert "become duplicates 2" in text
    assert "default segment (2)" in text
    assert "Move 4 seeds" in text
    assert '<input type="hidden" name="segments" value="none">' in html
    assert Operation.objects.count() == 0
    answer = client.post(where, rules(segments="none", apply="1"))
    assert "Move started." in said(answer)
    assert run(Operation.objects.get()).state == OperationState.DONE
    frontier.refresh_from_db()
    assert (frontier.segments, frontier.is_frozen) == ("none", False)
    counts = {one.segment: one.books.succeeded for one in show_segments(frontier)}
    assert counts == {0: 2}
    moved = text_of(html_of(client.get(address("page", frontier))))
    assert "move seeds to other segments a single segment, UTC, page" in moved


def test_the_same_rules_change_nothing(project: Project, frontier: Frontier, desk: Desk) -> None:
    text = text_of(
        html_of(person(project, Role.EDITOR).post(address("granularity", frontier), rules()))
    )
    assert "These are the current rules. Nothing would change." in text
    assert "Move" not in text


@pytest.mark.slow("4 s")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"segments": "dag"}, "there is no resolver"),
        ({"time_zone": "Mars"}, "there is no time zone"),
        ({"keys": "page", "ignored_parameters": "t"}, "only canonical leaves out parameters"),
        ({"segments": ""}, "This field is required."),
        ({"wait_minutes": "9999"}, "less than or equal to 1440"),
    ],
    ids=["segments", "zone", "parameters", "nothing", "wait"],
)
@pytest.mark.parametrize("apply", [False, True])
def test_bad_rules_move_nothing(
    apply: bool,
    fields: dict[str, Any],
    words: str,
    project: Project,
    frontier: Frontier,
    desk: Desk,
) -> None:
    body = rules(**fields) | ({"apply": "1"} if apply else {})
    answer = person(project, Role.EDITOR).post(address("granularity", frontier), body)
    assert words in text_of(html_of(answer))
    assert not Operation.objects.exists()


def test_leased_seeds_are_waited_for_only_when_that_is_said(
    project: Project, frontier: Frontier, desk: Desk
) -> None:
    crawl(frontier, "a", outcome=None)
    client = person(project, Role.EDITOR)
    body = rules(segments="week", apply="1")
    answer = client.post(address("granularity", frontier), body)
    assert "1 seeds are leased" in text_of(html_of(answer))
    assert client.post(address("granularity", frontier), body | {"wait_minutes": "5"})
    assert Operation.objects.get().arguments["wait_until"]


# --- files ----------------------------------------------------------------------------------------


def test_an_export_is_rests_own(project: Project, frontier: Frontier, desk: Desk) -> None:
    client_of(frontier).add([Seed("https://a.cn/1")])
    client = person(project, Role.VIEWER)
    whole = client.get(address("export", frontier))
    assert whole["Location"] == f"/api/v1/frontiers/{frontier.pk}/export?gzip=true"
    one = client.get(address("export", frontier, segment=0))
    assert one["Location"] == f"/api/v1/frontiers/{frontier.pk}/export?segment=0"


@pytest.mark.slow("3 s")
@pytest.mark.parametrize("name", ["granularity", "export"])
def test_nobody_answers(name: str, project: Project, frontier: Frontier, settings: Any) -> None:
    settings.BROKER_URL = "amqp://guest:guest@127.0.0.1:1/"
    client = person(project, Role.EDITOR)
    if name == "export":
        assert "The seed service is unavailable" in said(client.get(address(name, frontier)))
    else:
        answer = client.post(address(name, frontier), rules(segments="week"))
        assert "The seed service is unavailable" in text_of(html_of(answer))
