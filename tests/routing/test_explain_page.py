"""The page "Explain a task": contents, input and permissions."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from html import unescape
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from apps.access.states import Role
from apps.projects.models import Project
from apps.routing.admin.explain_texts import FATES
from apps.routing.engine.items import MAX_BYTES
from apps.routing.engine.reports import OutboundReport, Reports
from apps.routing.models import CounterChange, RoutedItem, RouterReport
from apps.routing.queries.replays import RouteKind
from apps.routing.states import ItemState
from tests.access.factories import enter, make_project, make_user
from tests.routing.factories import arrive, moved
from tests.routing.page_rules import (
    NORTH,
    REST,
    SOUTH,
    activate_rules,
    save_broken_rules,
    save_rules,
)

pytestmark = pytest.mark.django_db

ADDRESS = "/routing/explain"
ITEM = {"company_name": "宁乡县楚江冻库", "data_type": "change", "province": "GD"}


@pytest.fixture
def project() -> Project:
    project = make_project()
    activate_rules(project)
    return project


@pytest.fixture
def client(project: Project) -> Client:
    return enter(make_user(roles={project: Role.VIEWER}))


def words(answer: HttpResponse) -> str:
    """Return the visible text of the page's main part in one line."""
    assert answer.status_code == 200, answer.content
    page = answer.content.decode()
    body = page[page.index('id="ask-title"') :]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", body)))


def ask(
    client: Client, project: Project, text: str | dict[str, Any], **fields: Any
) -> HttpResponse:
    """Submit the form."""
    text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    values = {"project": project.pk, "text": text, "happening": "arrives"}
    return client.post(ADDRESS, values | fields)


def untimed(page: str) -> str:
    """Return the message without its time of sending."""
    return re.sub(r'"submit_time": "[^"]*"', "", page)


def message_of(answer: HttpResponse) -> Any:
    """Return the message shown on the page."""
    found = re.search(r'<pre[^>]*id="message-json">(.*?)</pre>', answer.content.decode(), re.S)
    assert found is not None
    return json.loads(unescape(found[1]))


def test_every_route_without_an_outbound_has_a_text() -> None:
    assert set(FATES) == set(RouteKind) - {RouteKind.SENT}


@pytest.mark.covers("S2.7", "S2.20", "S2.28")
def test_it_says_where_an_item_goes_and_why_nowhere_else(client: Client, project: Project) -> None:
    answer = ask(client, project, ITEM | {"task_params": {"level": 1}}, inbound="logs")
    page = words(answer)
    assert "Sent to south" in page
    assert "The task matches a condition of south." in page
    # The converter, the failed selectors with the item's values, and the later outbound.
    assert "common.ExtractTaskParams" in page
    assert "level 1" in page
    assert "province is 'GD'" in page
    assert "Also matches, but an earlier outbound comes first." in page
    assert "No conditions: used only as a failback." in page
    message = message_of(answer)
    assert (message["outbound"], message["company_name"]) == ("south", ITEM["company_name"])
    html = answer.content.decode()
    assert re.search(r'data-verdict="taken"[^>]*aria-current="true"', html)
    assert 'cy-part-failing" data-state="false"' in html
    assert "hunter2" not in html


@pytest.mark.covers("S2.20")
def test_a_type_error_is_told_at_its_place(client: Client, project: Project) -> None:
    answer = ask(client, project, {"province": "BJ", "level": "high"})
    assert 'data-state="error"' in answer.content.decode()
    assert "type error: " in words(answer)


def test_what_the_inbound_does_not_want_says_so(client: Client, project: Project) -> None:
    page = words(ask(client, project, {"province": "GD"}, inbound="logs"))
    assert "Filtered out by the inbound" in page
    assert "data_type is missing" in page
    assert "Message to south" not in page


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ('{"a": 1,\r\n "b": }', "(not_json)", "Line 2, column 7"),
        ("[]", "(not_a_dict)", ""),
        ('{"a": 1, "a": 2}', "(duplicate_key)", ""),
        ("[" * 50_000, "(too_deep)", ""),
        ('"' + "x" * MAX_BYTES, "(too_large)", ""),
    ],
    ids=["comma", "list", "twice", "deep", "huge"],
)
def test_bad_input_is_refused_with_its_place(
    client: Client, project: Project, text: str, code: str, place: str
) -> None:
    page = words(ask(client, project, text))
    assert "Not a valid task" in page
    assert code in page
    assert place in page


def test_what_is_too_long_for_a_form_is_refused_politely(client: Client, project: Project) -> None:
    assert ask(client, project, "x" * (8 * MAX_BYTES)).status_code == 400


def test_a_huge_item_is_explained_and_shown_cut(client: Client, project: Project) -> None:
    answer = ask(client, project, ITEM | {"page": "长" * 300_000})
    assert "Sent to south" in words(answer)
    assert "too long to show in full" in words(answer)
    # Besides the input, which the form shows again.
    assert len(answer.content.decode()) < 300_000 + 150_000


@pytest.mark.slow("1 s")
def test_what_items_hold_is_text_and_never_markup(client: Client, project: Project) -> None:
    nasty = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>"
    activate_rules(
        project,
        outbounds=(
            replace(SOUTH, failback="", selector=(f"province == '{nasty}' and x == 2", "y")),
            REST,
        ),
    )
    for item in (
        {"province": nasty, nasty: nasty, "x": 1},
        {"province": nasty, "x": 2},
        {"task_params": {nasty: nasty}, "data_type": "change", "province": nasty},
    ):
        for fields in ({}, {"inbound": "logs"}, {"happening": "result", "at": "south"}):
            answer = ask(client, project, item, status=nasty[:90], **fields)
            body = answer.content.decode()
            assert answer.status_code == 200
            assert "<script>alert" not in body
            assert "<img src=x" not in body
    answer = ask(client, project, '{"a" ' + nasty)
    assert "<script>alert" not in answer.content.decode()
    found = client.get(ADDRESS, {"project": project.pk, "item": nasty, "status": nasty})
    assert "<script>alert" not in found.content.decode()


@pytest.mark.slow("1 s")
@pytest.mark.covers("S2.35")
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"happening": "result", "status": "503"}, "The task is sent to south again."),
        (
            {"happening": "result", "status": "503", "retry_times": "2", "group_retry_times": "2"},
            "The task goes to the failback spare.",
        ),
        ({"happening": "result", "status": "1000"}, "Status 1000 ends the task successfully."),
        ({"happening": "timed_out", "retry_times": "2"}, "no retries are left"),
        ({"happening": "offered"}, "The queue of south has room."),
    ],
    ids=["retry", "failback", "terminal", "timed_out", "offered"],
)
def test_it_answers_as_if_the_ledger_knew_the_item(
    client: Client, project: Project, fields: dict[str, str], said: str
) -> None:
    page = words(ask(client, project, ITEM, at="south", routed_count="1", **fields))
    assert said in page


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    "fields",
    [
        {"happening": "result", "at": "south"},
        {"happening": "result", "status": "1"},
        {"happening": "offered"},
        {"happening": "nonsense"},
        {"happening": "result", "status": "1", "at": "nowhere"},
        {"happening": "result", "status": "1", "at": "south", "retry_times": "-1"},
        {"happening": "result", "status": "1", "at": "south", "retry_times": "9" * 30},
        {"inbound": "nobody"},
        {"text": ""},
        {"text": "\x00"},
        {"status": "x\x00"},
    ],
    ids=str,
)
def test_a_question_that_lacks_something_is_not_answered(
    client: Client, project: Project, fields: dict[str, str]
) -> None:
    answer = client.post(
        ADDRESS, {"project": project.pk, "text": "{}", "happening": "new"} | fields
    )
    assert answer.status_code == 200
    assert answer.context["form"].errors
    assert "outcome" not in answer.context


def test_retries_there_are_retries_in_all(client: Client, project: Project) -> None:
    fields = {"happening": "result", "at": "south", "status": "503", "retry_times": "1"}
    message = message_of(ask(client, project, ITEM, **fields))
    assert (message["retry_times"], message["group_retry_times"]) == (2, 2)


def test_an_item_of_the_ledger_is_explained_by_its_name_alone(
    client: Client, project: Project
) -> None:
    (entry,) = arrive(project, item=ITEM)
    answer = client.get(ADDRESS, {"project": project.pk, "item": str(entry.task_uuid)})
    page = words(answer)
    assert f"State of {entry.task_uuid}: received" in page
    assert "Sent to south" in page
    # The link holds the item's UUID and none of its contents.
    link = str(answer.context["link"])
    assert str(entry.task_uuid) in link
    assert "GD" not in link
    assert untimed(words(client.get(link))) == untimed(page)


def test_a_parked_item_is_asked_whether_there_is_room(client: Client, project: Project) -> None:
    (entry,) = arrive(project, item=ITEM)
    moved(entry, ItemState.PARKED, outbound="south", routed_count=1)
    page = words(client.get(ADDRESS, {"project": project.pk, "item": str(entry.task_uuid)}))
    assert "The queue of south has room." in page


def test_the_outbound_of_an_item_may_be_gone_from_the_rules(
    client: Client, project: Project
) -> None:
    (entry,) = arrive(project, item=ITEM)
    moved(entry, ItemState.PARKED, outbound="gone", routed_count=1)
    page = words(client.get(ADDRESS, {"project": project.pk, "item": str(entry.task_uuid)}))
    assert "The outbound of the task was removed; the rules route the task to south." in page


def test_poison_is_asked_as_it_came(client: Client, project: Project) -> None:
    (entry,) = arrive(project, item={"raw": '{"a": '})
    moved(entry, ItemState.DEAD)
    page = words(client.get(ADDRESS, {"project": project.pk, "item": str(entry.task_uuid)}))
    assert "(not_json)" in page


def test_a_result_finds_its_item_in_the_ledger(client: Client, project: Project) -> None:
    (entry,) = arrive(project, item=ITEM)
    moved(entry, ItemState.DISPATCHED, outbound="south", routed_count=1)
    log = {"task_uuid": str(entry.task_uuid), "task_result": 503, "data_type": "change"}
    assert "The task is sent to south again." in words(ask(client, project, log, inbound="logs"))
    # The same as a new item.
    assert "derived from" in words(ask(client, project, ITEM | log, happening="new"))


@pytest.mark.covers("S2.38")
def test_what_routers_say_of_the_queues_counts(client: Client, project: Project) -> None:
    reports = Reports(
        outbounds={
            "south": OutboundReport(full=True),
            "rest": OutboundReport(problem="connection <b>refused</b>"),
        }
    )
    report = RouterReport.objects.create(
        router="r1", project=project, at=timezone.now(), reports=msgspec.to_builtins(reports)
    )
    page = words(ask(client, project, ITEM))
    assert "Parked for south" in page
    assert "connection <b>refused</b>" in page
    # The report of a router that stopped reporting is ignored.
    RouterReport.objects.filter(pk=report.pk).update(at=report.at - timedelta(minutes=1))
    assert "Sent to south" in words(ask(client, project, ITEM))


def test_another_version_may_be_asked(client: Client, project: Project) -> None:
    save_rules(project, outbounds=(NORTH, REST))
    assert "Sent to rest" in words(ask(client, project, ITEM, version="2"))
    assert "Sent to south" in words(ask(client, project, ITEM))
    for number in ("3", "x", "9" * 18, "-1"):
        assert ask(client, project, ITEM, version=number).status_code == 404


def test_rules_that_cannot_be_run_say_why(client: Client, project: Project) -> None:
    version = save_broken_rules(project)
    page = words(client.get(ADDRESS, {"project": project.pk, "version": version.number}))
    assert f"v{version.number} cannot be run:" in page
    assert ask(client, project, ITEM, version=version.number).status_code == 200


def test_a_project_without_rules_has_the_page_too() -> None:
    bare = make_project()
    viewer = enter(make_user(roles={bare: Role.VIEWER}))
    assert "No version is active" in words(viewer.get(ADDRESS, {"project": bare.pk}))
    assert "No rule matches the task." in words(ask(viewer, bare, ITEM))


def test_nobody_sees_anything_of_another_project(client: Client, project: Project) -> None:
    other = make_project()
    activate_rules(other)
    (entry,) = arrive(other, item=ITEM | {"company_name": "secret"})
    for answer in (
        client.get(ADDRESS, {"project": other.pk}),
        client.get(ADDRESS, {"project": "x"}),
        ask(client, other, ITEM),
    ):
        assert answer.status_code == 404
    answer = client.get(ADDRESS, {"project": project.pk, "item": str(entry.task_uuid)})
    assert "The ledger of this project has no task with this task_uuid." in words(answer)
    # Nor by a result with the UUID of an item in the other project.
    log = {"task_uuid": str(entry.task_uuid), "task_result": 1000}
    assert "secret" not in ask(client, project, log).content.decode()
    assert "No rule matches the task." in words(ask(client, project, log))


def test_strangers_are_sent_to_the_login(project: Project) -> None:
    for address in (ADDRESS, reverse("routing-replay")):
        answer = Client().get(address, {"project": project.pk})
        assert answer.status_code == 302
        assert "login" in answer["Location"]
    nobody = enter(make_user())
    answer = nobody.get(ADDRESS)
    assert "You do not have permission to view any project." in answer.content.decode()


def test_nothing_is_written_and_few_queries_are_asked(client: Client, project: Project) -> None:
    (entry,) = arrive(project, item=ITEM)
    before = list(RoutedItem.objects.values()), CounterChange.objects.count()
    ask(client, project, ITEM)
    with CaptureQueriesContext(connection) as asked:
        client.get(ADDRESS, {"project": project.pk, "item": str(entry.task_uuid)})
    # Eight of them are on every page: session, user and permissions.
    assert len(asked) <= 13
    assert not [each for each in asked if each["sql"].startswith(("INSERT", "UPDATE", "DELETE"))]
    assert (list(RoutedItem.objects.values()), CounterChange.objects.count()) == before
