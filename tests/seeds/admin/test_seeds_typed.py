"""Seeds that people type in: added, looked up, opened again, forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.projects.models import Project
from apps.seeds.models import Frontier
from apps.seeds.services import show_segments
from tests.confirmation import confirm, press
from tests.seeds.admin.page_helpers import (
    DAY,
    address,
    crawl,
    html_of,
    person,
    said,
    text_of,
    today,
)
from tests.seeds.services.small_service import Desk
from yardkit.protocol import SeedOutcome

pytestmark = pytest.mark.django_db


def add(project: Project, frontier: Frontier, *lines: str, **typed: Any) -> str:
    """What the page says to these lines."""
    body = {"seeds": "\r\n".join(lines), "when": "now"} | typed
    answer = person(project, Role.OPERATOR).post(address("seeds", frontier), body)
    return text_of(html_of(answer))


def ask(project: Project, frontier: Frontier, data: str, **typed: Any) -> str:
    """What the page says of this URL; for a viewer without buttons."""
    role = typed.pop("role", Role.VIEWER)
    body = {"url": data, "when": "now"} | typed
    return html_of(person(project, role).post(address("look_up", frontier), body))


def pending(frontier: Frontier) -> dict[int, int]:
    return {one.segment: one.books.pending for one in show_segments(frontier)}


@pytest.mark.covers("S3.2", "S3.9")
def test_lines_become_seeds_and_duplicates_are_counted(
    project: Project, frontier: Frontier, desk: Desk
) -> None:
    lines = ["https://a.cn/1", "", "  https://a.cn/2  ", "https://a.cn/1#top", "  "]
    assert "2 new, 1 duplicates, 0 rejected." in add(project, frontier, *lines)
    assert "0 new, 2 duplicates, 0 rejected." in add(project, frontier, lines[0], lines[2])
    assert pending(frontier) == {today(): 2}


@pytest.mark.covers("S3.4")
def test_seeds_go_where_their_time_says(project: Project, frontier: Frontier, desk: Desk) -> None:
    add(project, frontier, "https://a.cn/1", when="default")
    add(project, frontier, "https://a.cn/2", when="urgent", max_retry="7")
    later = add(project, frontier, "https://a.cn/1", when="later", not_before="2031-02-03T04:05")
    assert "1 new" in later
    assert pending(frontier) == {0: 2, 1_927_843_200_000: 1}
    urgent = desk.store.lookup(frontier.pk, 0, "https://a.cn/2")
    assert urgent is not None
    assert (urgent.due, urgent.max_retry) == (0, 7)


def test_a_later_time_is_one_of_the_frontier(
    project: Project, frontier: Frontier, desk: Desk
) -> None:
    Frontier.objects.filter(pk=frontier.pk).update(time_zone="Asia/Shanghai")
    desk.follow(frontier)
    add(project, frontier, "https://a.cn/1", when="later", not_before="2031-02-03T04:05")
    (segment,) = pending(frontier)
    known = desk.store.lookup(frontier.pk, segment, "https://a.cn/1")
    assert known is not None
    assert known.due == 1_927_829_100_000  # 2031-02-02T20:05Z


def test_what_is_refused_is_shown_and_keeps_no_other_out(
    project: Project, frontier: Frontier, desk: Desk
) -> None:
    text = add(project, frontier, "https://a.cn/1", "https://a.cn/\x01", "中" * 30_000)
    assert "1 new, 0 duplicates, 2 rejected." in text
    assert (
        "The seed contains control or invalid characters. (the data has a control character" in text
    )
    assert "The seed is too long." in text


@pytest.mark.slow("2 s")
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"seeds": ""}, "This field is required."),
        (
            {"seeds": "\n".join(str(n) for n in range(10_001))},
            "10,001 lines are too many: at most 10,000",
        ),
        ({"when": "later"}, "Enter a time."),
        ({"when": "later", "not_before": "soon"}, "Enter a valid date/time."),
        ({"when": "never"}, "never is not one of the available choices."),
        ({"max_retry": "1001"}, "less than or equal to 1000"),
        ({"max_retry": "-1"}, "greater than or equal to 0"),
        ({"seeds": "https://a.cn/\x00"}, "Null characters are not allowed."),
    ],
    ids=["nothing", "too-many", "no-time", "bad-time", "bad-when", "tries", "minus", "zero"],
)
def test_bad_input_adds_nothing(
    typed: dict[str, str], words: str, project: Project, frontier: Frontier, desk: Desk
) -> None:
    assert words in add(project, frontier, "https://a.cn/1", **typed)
    assert pending(frontier) == {}


def test_typed_lines_stay_when_nobody_answers(
    project: Project, frontier: Frontier, nobody: Desk
) -> None:
    body = {"seeds": "https://a.cn/1", "when": "now"}
    client = person(project, Role.OPERATOR)
    html = html_of(client.post(address("seeds", frontier), body))
    assert "The seed service is unavailable, so the result is unknown." in text_of(html)
    assert "https://a.cn/1</textarea>" in html


@pytest.mark.slow("3 s")
def test_no_broker_is_no_error_page(project: Project, frontier: Frontier, settings: Any) -> None:
    settings.BROKER_URL = "amqp://guest:guest@127.0.0.1:1/"
    assert "The seed service is unavailable" in add(project, frontier, "https://a.cn/1")
    assert "The seed service is unavailable" in ask(project, frontier, "https://a.cn/1")


# --- one of them ----------------------------------------------------------------------------------


@pytest.mark.covers("S3.5", "S3.6")
def test_a_url_would_be_new_or_is_known_since(
    project: Project, frontier: Frontier, desk: Desk
) -> None:
    assert "New: not in the URL queue yet." in ask(project, frontier, "https://host/a")
    crawl(frontier, "a", outcome=SeedOutcome.GIVEN_UP)
    text = text_of(ask(project, frontier, "https://host/a#top"))
    assert "Known since 20" in text
    assert "key https://host/a segment" in text
    assert "state failed" in text
    assert "failed tries 1 / 3" in text
    assert "last lease #1" in text
    assert "New: not in the URL queue yet." in ask(
        project, frontier, "https://host/a", when="default"
    )
    later = ask(project, frontier, "https://host/a", when="later", not_before="2031-02-03T04:05")
    assert "New: not in the URL queue yet." in later
    assert "due in" in text_of(later)


def test_who_has_leased_it_is_shown_and_it_stays_his(
    project: Project, frontier: Frontier, desk: Desk
) -> None:
    crawl(frontier, "a", outcome=None)
    html = ask(project, frontier, "https://host/a", role=Role.OPERATOR)
    text = text_of(html)
    assert "state leased" in text
    assert "leased by run:7 until" in text
    assert "/forget" not in html
    body = {"segment": today(), "key": "https://host/a"}
    client = person(project, Role.OPERATOR)
    assert "The seed is leased" in said(confirm(client, address("forget", frontier), body))
    answer = client.post(address("reopen", frontier), body)
    assert "Only a finished seed can be reopened." in said(answer)


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("verb", ["reopen", "forget"])
def test_an_ended_seed_is_opened_again_or_forgotten(
    verb: str, project: Project, frontier: Frontier, desk: Desk
) -> None:
    crawl(frontier, "a", outcome=SeedOutcome.SUCCESS)
    html = ask(project, frontier, "https://host/a", role=Role.OPERATOR)
    assert address(verb, frontier) in html
    body = {"segment": today(), "key": "https://host/a"}
    client = person(project, Role.OPERATOR)
    told = {"reopen": "The seed will be crawled again.", "forget": "its key counts as new"}[verb]
    assert told in said(press(client, address(verb, frontier), body))
    text = text_of(ask(project, frontier, "https://host/a"))
    assert ("pending" if verb == "reopen" else "New: not in the URL queue yet.") in text
    entry = AuditRecord.objects.get(action=f"seeds.{verb}")
    assert entry.after == {"segment": today(), "seed": "https://host/a"}


@pytest.mark.parametrize("segment", ["", "-1", "x", "٣", "1" * 30])
def test_a_segment_that_is_none_is_not_found(
    segment: str, project: Project, frontier: Frontier
) -> None:
    client = person(project, Role.ADMIN)
    for verb in ("reopen", "forget", "reopen_failed", "drop"):
        answer = client.post(address(verb, frontier), {"segment": segment, "key": "a"})
        assert answer.status_code == 404
    assert client.get(address("drop", frontier, segment=segment)).status_code == 404
    assert client.get(address("export", frontier, segment=segment)).status_code == 404


def test_an_unknown_seed_is_said(project: Project, frontier: Frontier, desk: Desk) -> None:
    body = {"segment": today() - DAY, "key": "https://host/\x00"}
    answer = confirm(person(project, Role.OPERATOR), address("forget", frontier), body)
    assert "This seed no longer exists." in said(answer)


@pytest.mark.parametrize("data", ["https://host/\x01", "中" * 30_000])
def test_what_can_be_no_seed_is_said(
    data: str, project: Project, frontier: Frontier, desk: Desk
) -> None:
    text = text_of(ask(project, frontier, data))
    assert "contains control or invalid characters" in text or "The seed is too long." in text


def test_nobody_answers_who_looks_up(project: Project, frontier: Frontier, nobody: Desk) -> None:
    assert "The seed service is unavailable" in ask(project, frontier, "https://host/a")
