"""The form of frontiers: made, changed, deleted, and what their rules do."""

from __future__ import annotations

from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.projects.models import Project
from apps.seeds.admin.hints import hint_of
from apps.seeds.admin.moments import lasting, next_segment
from apps.seeds.engine.segments import segment_resolver, time_zone
from apps.seeds.models import Frontier
from tests.access.factories import make_project
from tests.confirmation import confirm
from tests.seeds.admin.page_helpers import address, crawl, html_of, person, said, text_of
from tests.seeds.services.small_service import Desk
from yardkit.protocol import SeedOutcome

pytestmark = pytest.mark.django_db
# 2026-11-21T22:48:00Z
EVENING = 1_795_301_280_000


def typed(project: Project, **fields: Any) -> dict[str, Any]:
    """The form of somebody who has filled it in."""
    values = {
        "project": project.pk,
        "name": "pages",
        "description": "",
        "segments": "days:3",
        "time_zone": "Asia/Shanghai",
        "keys": "canonical",
        "ignored_parameters": "t\n sid, t",
        "max_retry": 4,
        "lease_seconds": 60,
        "expected_seeds": 1000,
        "false_positive_rate": 0.01,
    }
    return values | fields


def settings_of(frontier: Frontier, **fields: Any) -> dict[str, Any]:
    """The form of a frontier that is there."""
    names = ("name", "max_retry", "lease_seconds", "expected_seeds", "false_positive_rate")
    return {name: getattr(frontier, name) for name in names} | {"description": ""} | fields


@pytest.mark.covers("S3.3", "S3.9")
def test_a_frontier_is_made_as_it_is_typed(project: Project) -> None:
    answer = person(project, Role.EDITOR).post(address("add"), typed(project, is_paused="on"))
    made = Frontier.objects.get()
    assert answer["Location"] == address("page", made)
    assert (made.segments, made.time_zone, made.keys) == ("days:3", "Asia/Shanghai", "canonical")
    assert (made.ignored_parameters, made.max_retry, made.is_paused) == (["t", "sid"], 4, True)
    assert AuditRecord.objects.get(action="seeds.add_frontier").project_id == project.pk


@pytest.mark.parametrize(
    ("text", "stored"), [("", None), ("-", []), (" a ,b\r\na", ["a", "b"])], ids=repr
)
def test_parameters_are_names_or_the_usual_ones(
    text: str, stored: list[str] | None, project: Project
) -> None:
    client = person(project, Role.EDITOR)
    client.post(address("add"), typed(project, ignored_parameters=text))
    assert Frontier.objects.get().ignored_parameters == stored


@pytest.mark.slow("2 s")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"segments": "fortnight"}, "there is no resolver &#x27;fortnight&#x27;"),
        ({"segments": "days:0"}, "there is no resolver"),
        ({"time_zone": "Europe/Nowhere"}, "there is no time zone"),
        ({"keys": "md5", "ignored_parameters": ""}, "there is no resolver &#x27;md5&#x27;"),
        ({"keys": "whole"}, "only canonical leaves out parameters"),
        ({"ignored_parameters": "x" * 101}, "A list of at most 100 names is needed"),
        ({"name": "-x"}, "must start with a letter or digit"),
        ({"name": ""}, "This field is required."),
        ({"lease_seconds": 0}, "greater than or equal to 1"),
        ({"false_positive_rate": "nan"}, "Enter a number."),
        ({"expected_seeds": 10**12}, "less than or equal to"),
        ({"description": "\x00"}, "Null characters are not allowed."),
    ],
    ids=lambda value: next(iter(value.items())).__repr__()[:40] if isinstance(value, dict) else "",
)
def test_bad_input_makes_none(fields: dict[str, Any], words: str, project: Project) -> None:
    answer = person(project, Role.EDITOR).post(address("add"), typed(project, **fields))
    assert words in html_of(answer)
    assert not Frontier.objects.exists()


def test_a_name_is_there_once_in_a_project(project: Project, frontier: Frontier) -> None:
    answer = person(project, Role.EDITOR).post(address("add"), typed(project, name="news"))
    assert "already exists" in html_of(answer)


def test_none_is_made_in_projects_of_others(project: Project) -> None:
    other = make_project()
    answer = person(project, Role.EDITOR).post(address("add"), typed(other))
    assert "Select a valid choice." in html_of(answer)
    assert person(project, Role.OPERATOR).get(address("add")).status_code == 403


def test_settings_change_and_rules_stay(project: Project, frontier: Frontier) -> None:
    client = person(project, Role.EDITOR)
    html = html_of(client.get(address("change", frontier)))
    assert address("granularity", frontier) in html
    assert "id_segments" not in html
    body = settings_of(frontier, lease_seconds=77, segments="week", keys="whole", project="9")
    assert client.post(address("change", frontier), body).status_code == 302
    frontier.refresh_from_db()
    assert (frontier.lease_seconds, frontier.segments, frontier.keys) == (77, "day", "page")
    entry = AuditRecord.objects.get(action="seeds.change_frontier")
    assert entry.after == {"lease_seconds": 77}


def test_an_operator_reads_the_settings(project: Project, frontier: Frontier) -> None:
    client = person(project, Role.OPERATOR)
    assert "300" in text_of(html_of(client.get(address("change", frontier))))
    assert client.post(address("change", frontier), settings_of(frontier)).status_code == 403


def test_an_empty_frontier_is_deleted(project: Project, frontier: Frontier, desk: Desk) -> None:
    client = person(project, Role.EDITOR)
    assert "URL queue: news" in text_of(html_of(client.get(address("delete", frontier))))
    assert client.post(address("delete", frontier), {"post": "yes"}).status_code == 302
    assert not Frontier.objects.exists()
    assert AuditRecord.objects.filter(action="seeds.delete_frontier").exists()


@pytest.mark.parametrize("how", ["page", "list"])
def test_one_with_seeds_stays(how: str, project: Project, frontier: Frontier, desk: Desk) -> None:
    crawl(frontier, "a", outcome=SeedOutcome.SUCCESS)
    client = person(project, Role.EDITOR)
    if how == "page":
        answer = client.post(address("delete", frontier), {"post": "yes"})
    else:
        body = {"action": "delete_selected", "_selected_action": frontier.pk}
        answer = confirm(client, address("changelist"), body)
    assert "This URL queue still has seeds; wipe it first." in said(answer)
    assert Frontier.objects.exists()


@pytest.mark.slow("3 s")
def test_none_is_deleted_while_the_service_is_away(
    project: Project, frontier: Frontier, settings: Any
) -> None:
    settings.BROKER_URL = "amqp://guest:guest@127.0.0.1:1/"
    answer = person(project, Role.EDITOR).post(address("delete", frontier), {"post": "yes"})
    assert "The seed service is unavailable" in said(answer)
    assert Frontier.objects.filter(is_frozen=False).exists()


# --- what the rules do ----------------------------------------------------------------------------


@pytest.mark.covers("S3.3")
@pytest.mark.parametrize(
    ("segments", "began", "follows"),
    [
        ("day", "2026-11-22 00:00", "2026-11-23 00:00 (in 17 h 12 min)"),
        ("hour", "2026-11-22 06:00", "2026-11-22 07:00 (in 12 min)"),
        ("week", "2026-11-16 00:00", "2026-11-23 00:00 (in 17 h 12 min)"),
        ("month", "2026-11-01 00:00", "2026-12-01 00:00 (in 8 d 17 h)"),
    ],
)
def test_it_is_said_in_which_segment_now_is(segments: str, began: str, follows: str) -> None:
    said_of = {"segments": segments, "time_zone": "Asia/Shanghai", "keys": "whole"}
    hint = hint_of(said_of, EVENING)
    assert hint.problems == []
    assert f"the segment that began {began} (Asia/Shanghai)" in hint.lines[0]
    assert f"begins {follows}" in hint.lines[1]


def test_one_segment_for_all_times_is_said() -> None:
    hint = hint_of({"segments": "none", "time_zone": "UTC", "keys": "whole"}, EVENING)
    assert "each URL is crawled only once" in hint.lines[0]
    resolver = segment_resolver("none", time_zone("UTC"))
    assert next_segment(resolver, EVENING) is None


@pytest.mark.covers("S3.9")
def test_examples_show_which_urls_are_one() -> None:
    rules = {"segments": "day", "time_zone": "UTC", "keys": "canonical"}
    same = [each.same for each in hint_of(rules, EVENING).examples]
    assert same == [False, True, True]
    whole = hint_of(rules | {"keys": "whole"}, EVENING).examples
    assert [each.same for each in whole] == [False, False, False]
    own = hint_of(rules | {"example": "https://A.cn/?b=1&a=2&t=5", "ignored_parameters": "t"}, 1)
    assert [each.key for each in own.examples] == ["https://a.cn/?a=2&b=1"]


def test_what_is_wrong_is_said_while_it_is_typed(project: Project) -> None:
    client = person(project, Role.EDITOR)
    body = {"segments": "dag", "time_zone": "UTC", "keys": "page", "example": "中文\x01"}
    text = text_of(html_of(client.post(address("hint"), body)))
    assert "there is no resolver 'dag'" in text
    assert "control character" in text
    assert "there is no time zone ''" in text_of(html_of(client.post(address("hint"))))
    assert client.get(address("hint")).status_code == 405
    assert "began" in text_of(html_of(client.get(address("add"))))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (5, "less than a minute"),
        (90, "2 min"),
        (7140, "119 min"),
        (7200, "2 h 0 min"),
        (200_000, "2 d 7 h"),
    ],
)
def test_times_to_come_are_told_in_two_units(seconds: float, words: str) -> None:
    assert lasting(seconds) == words
