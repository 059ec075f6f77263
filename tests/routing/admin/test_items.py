"""Pages of the ledger: lists, the page of one item, and the actions of operators."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.projects.models import Project
from apps.routing.admin.lists import PER_PAGE
from apps.routing.engine.steps import StepKind, step
from apps.routing.models import RoutedItem
from apps.routing.queries import LedgerEntry
from apps.routing.services import claim_parked
from apps.routing.states import ItemState
from tests.access.factories import enter, make_project, make_superuser
from tests.confirmation import confirm, press
from tests.routing.admin.pages import address, html_of, person, text_of
from tests.routing.factories import NOW, arrive, later, moved, row_of

pytestmark = pytest.mark.django_db

ITEMS = "routing_routeditem_changelist"
FIND = "routing_find"
DEAD = "routing_dead_letters"
PARKED = "routing_parked"
LISTS = (ITEMS, FIND, DEAD, PARKED)
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[31m"


@pytest.fixture
def project() -> Project:
    return make_project()


def page_of(entry: LedgerEntry) -> str:
    return reverse("admin:routing_routeditem_change", args=[entry.id])


def post(client: Client, name: str, entry: LedgerEntry | None = None, **data: Any) -> Any:
    where = reverse(f"admin:{name}", args=[] if entry is None else [entry.id])
    return press(client, where, data)


def failed(project: Project, **fields: Any) -> LedgerEntry:
    return moved(arrive(project)[0], ItemState.FAILED, **({"reason": "retry_limits"} | fields))


def parked(project: Project, number: int = 1, outbound: str = "captcha") -> list[LedgerEntry]:
    """Store items that are parked for another hour."""
    due_at = timezone.now() + timedelta(hours=1)
    fields = {"outbound": outbound, "reason": "target_away", "detail": "refused", "due_at": due_at}
    return [moved(entry, ItemState.PARKED, **fields) for entry in arrive(project, number)]


# --- lists --------------------------------------------------------------------------------------


def test_items_are_listed_by_what_is_asked(project: Project) -> None:
    one = failed(project, outbound="captcha")
    two = parked(project, outbound="rest")[0]
    early = arrive(project, inbound="other")[0]
    RoutedItem.objects.filter(pk=early.id).update(received_at=NOW - timedelta(days=2))
    client = person(project, Role.VIEWER)

    def listed(**query: Any) -> set[LedgerEntry]:
        html = html_of(client, address(ITEMS, project, **query))
        return {entry for entry in (one, two, early) if str(entry.task_uuid) in html}

    assert listed() == {one, two, early}
    assert listed(state="failed") == {one}
    assert listed(outbound="rest") == {two}
    assert listed(inbound="other") == {early}
    assert listed(since="2026-11-21T00:00", until="2026-11-22T00:00:00") == {one, two}
    assert listed(state="failed", outbound="rest") == set()
    assert "no retries left" in html_of(client, address(ITEMS, project))


def test_what_is_typed_wrongly_is_said(project: Project) -> None:
    client = person(project, Role.VIEWER)
    for bad in ({"state": "flying"}, {"since": "tomorrow"}, {"inbound": "\x00"}):
        html = html_of(client, address(ITEMS, project, **bad))
        assert 'role="alert"' in html
    assert client.get(address(ITEMS, project, **{"from": "x"})).status_code == 200


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("name", [ITEMS, DEAD, PARKED])
def test_pages_go_by_ids_and_never_count(name: str, project: Project) -> None:
    if name == PARKED:
        made = parked(project, PER_PAGE + 2)
    else:
        made = [failed(project) for _ in range(PER_PAGE + 2)]
        made.reverse()
    client = person(project, Role.OPERATOR)
    with CaptureQueriesContext(connection) as queries:
        first = html_of(client, address(name, project))
    assert len(queries) <= 12
    assert not [each["sql"] for each in queries if "COUNT(" in each["sql"]]
    begun = "routing_routeditem"
    assert not [each for each in queries if begun in each["sql"] and '"steps"' in each["sql"]]
    assert first.count('name="_selected_action"') == PER_PAGE
    assert str(made[PER_PAGE].task_uuid) not in first
    second = html_of(client, address(name, project, **{"from": made[PER_PAGE - 1].id}))
    assert second.count('name="_selected_action"') == 2
    assert "First page" in second
    assert "Next page" not in second
    assert f"from={made[PER_PAGE - 1].id}" in first


@pytest.mark.parametrize("name", [ITEMS, DEAD, PARKED])
def test_the_first_page_is_linked_where_nothing_else_was_asked(name: str, project: Project) -> None:
    html = html_of(person(project, Role.VIEWER), address(name, **{"from": 7}))
    assert 'href="?"' in html
    assert "First page" in html


def test_search_finds_by_uuid_and_by_value(project: Project) -> None:
    found, other = arrive(project, 2)
    client = person(project, Role.VIEWER)
    answer = client.get(address(FIND, project, value=f" {found.task_uuid} "))
    assert (answer.status_code, answer["Location"]) == (302, page_of(found))
    value = str(found.item["credit_no"])
    html = html_of(client, address(FIND, project, value=value))
    assert str(found.task_uuid) in html
    assert str(other.task_uuid) not in html
    assert str(found.task_uuid) in html_of(
        client, address(FIND, project, value=value, key="credit_no")
    )
    assert "No routed tasks match." in html_of(
        client, address(FIND, project, value=value, key="rt")
    )
    assert "Enter a UUID or a value to search for." in html_of(client, address(FIND, project))


def test_a_search_says_that_there_may_be_more(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.routing.admin.lists.MOST_FOUND", 2)
    arrive(project, 3)
    client = person(project, Role.VIEWER)
    assert "Only the newest matches are shown" in html_of(
        client, address(FIND, project, value="change")
    )
    monkeypatch.undo()
    assert "Only the newest matches are shown" not in html_of(
        client, address(FIND, project, value="change")
    )


# --- one item -----------------------------------------------------------------------------------


def test_an_item_tells_its_story_in_words(project: Project) -> None:
    steps = (
        step(NOW, StepKind.MATCHED, "captcha", "matched"),
        step(later(5), StepKind.DISPATCHED, "captcha"),
        step(later(70), StepKind.RESULT, "captcha", "1001"),
        step(later(71), StepKind.ENDED, "captcha", "retry_limits 1001"),
    )
    entry = failed(
        project,
        outbound="captcha",
        steps=steps,
        detail="The task failed with status 1001.",
        retry_times=3,
    )
    text = text_of(html_of(person(project, Role.VIEWER), page_of(entry)))
    for expected in (
        "matched captcha a rule matches",
        "dispatched captcha +0:05",
        "result captcha 1001 +1:05",
        "ended captcha no retries left: 1001",
        "The task failed with status 1001.",
        '"credit_no"',
    ):
        assert expected in text, expected
    # To look at, not to press.
    assert "Submit again unchanged" not in text


def test_an_unknown_step_is_shown_as_it_is(project: Project) -> None:
    entry = failed(project, steps=(step(NOW, "teleported", "mars", "why not"),))
    assert "teleported mars why not" in text_of(html_of(person(project), page_of(entry)))


def test_hostile_texts_are_texts(project: Project) -> None:
    entry = arrive(project, item={HOSTILE: [HOSTILE]}, inbound=HOSTILE[:80])[0]
    entry = moved(
        entry,
        ItemState.FAILED,
        outbound=HOSTILE[:80],
        reason="<b>r",
        detail=HOSTILE,
        steps=(step(NOW, "<b>k", HOSTILE, HOSTILE),),
    )
    client = person(project, Role.OPERATOR)
    for where in (
        page_of(entry),
        address(ITEMS, project),
        address(DEAD, project),
        address(FIND, project, value=HOSTILE),
        reverse("admin:routing_item_edit", args=[entry.id]),
    ):
        html = html_of(client, where)
        assert "<script>alert" not in html
        assert "<img src=x" not in html
        assert "<b>" not in html
    whole = client.get(reverse("admin:routing_item_json", args=[entry.id]))
    assert whole["Content-Disposition"].startswith("attachment")
    assert whole["X-Content-Type-Options"] == "nosniff"
    assert json.loads(whole.content) == {HOSTILE: [HOSTILE]}


def test_a_big_item_is_cut_on_the_page_and_whole_in_the_file(project: Project) -> None:
    entry = arrive(project, item={"text": "宁" * 200_000})[0]
    client = person(project, Role.VIEWER)
    html = html_of(client, page_of(entry))
    assert len(html) < 200_000
    assert "Only the beginning is shown" in html
    whole = client.get(reverse("admin:routing_item_json", args=[entry.id]))
    assert json.loads(whole.content) == {"text": "宁" * 200_000}


# --- what operators do --------------------------------------------------------------------------


def test_an_operator_cancels_an_item(project: Project) -> None:
    entry = parked(project)[0]
    client = person(project, Role.OPERATOR)
    answer = post(client, "routing_item_cancel", entry, note="not needed\x00")
    assert answer["Location"] == page_of(entry)
    assert row_of(entry).state == ItemState.CANCELLED
    assert row_of(entry).detail == "not needed"
    assert AuditRecord.objects.filter(action="routing.cancel_item").count() == 1
    again = confirm(
        client, reverse("admin:routing_item_cancel", args=[entry.id]), follow=True
    ).content.decode()
    assert "The task has already ended." in again


def test_an_operator_submits_an_item_again(project: Project) -> None:
    entry = failed(project)
    client = person(project, Role.OPERATOR)
    post(client, "routing_item_resubmit", entry)
    new = RoutedItem.objects.get(resubmit_of=entry.task_uuid)
    assert new.state == ItemState.RECEIVED
    # Both lead to each other.
    assert reverse("admin:routing_routeditem_change", args=[new.pk]) in html_of(
        client, page_of(entry)
    )
    assert page_of(entry) in html_of(
        client, reverse("admin:routing_routeditem_change", args=[new.pk])
    )
    again = client.post(
        reverse("admin:routing_item_resubmit", args=[entry.id]), follow=True
    ).content.decode()
    assert "already been submitted again" in again
    assert RoutedItem.objects.filter(project=project).count() == 2


def test_an_operator_edits_an_item_and_submits_it(project: Project) -> None:
    entry = failed(project)
    client = person(project, Role.OPERATOR)
    edit = reverse("admin:routing_item_edit", args=[entry.id])
    assert "credit_no" in html_of(client, edit)
    for bad in ("no json", "[]", '{"a": NaN}', '{"a": 1, "a": 2}', '{"a": "\\u0000"}'):
        html = client.post(edit, {"item": bad}).content.decode()
        assert 'role="alert"' in html, bad
    assert RoutedItem.objects.count() == 1
    answer = client.post(edit, {"item": '{"rt": true, "n": 1.0}', "note": "url was wrong"})
    assert answer["Location"] == page_of(entry)
    assert RoutedItem.objects.get(resubmit_of=entry.task_uuid).item == '{"rt":true,"n":1.0}'
    assert AuditRecord.objects.get(action="routing.resubmit_item").note == "url was wrong"


def test_dead_letters_are_submitted_again_many_at_once(project: Project) -> None:
    dead = [failed(project, outbound="captcha") for _ in range(3)]
    rejected = moved(arrive(project)[0], ItemState.REJECTED, outbound="", reason="no_rule")
    open_one, succeeded = parked(project)[0], moved(arrive(project)[0], ItemState.SUCCEEDED)
    client = person(project, Role.OPERATOR)
    html = html_of(client, address(DEAD, project))
    assert html.count('name="_selected_action"') == 4
    for other in (open_one, succeeded):
        assert str(other.task_uuid) not in html
    by_reason = html_of(client, address(DEAD, project, reason="no_rule"))
    assert str(rejected.task_uuid) in by_reason
    assert str(dead[0].task_uuid) not in by_reason
    back = address(DEAD, project, outbound="captcha")
    ids = [entry.id for entry in (*dead[:2], open_one)]
    answer = post(client, "routing_resubmit", project=project.pk, _selected_action=ids, back=back)
    assert answer["Location"] == back
    said = client.get(back).content.decode()
    assert "2 tasks were submitted again." in said
    assert "Only a task that ended without success" in said
    # What another item stands for is no dead letter any more.
    assert html_of(client, address(DEAD, project)).count('name="_selected_action"') == 2


@pytest.mark.covers("S2.38")
def test_parked_items_are_shown_by_outbound_and_offered_again(project: Project) -> None:
    waiting = parked(project, 3)
    parked(project, 1, outbound="rest")
    client = person(project, Role.OPERATOR)
    html = html_of(client, address(PARKED, project))
    assert 'data-lot="captcha"' in html
    assert "target unreachable" in html
    assert html.count('name="_selected_action"') == 4
    assert html_of(client, address(PARKED, project, outbound="rest")).count("_selected") == 1
    before = RoutedItem.objects.get(outbound="rest").due_at
    answer = post(
        client,
        "routing_offer",
        project=project.pk,
        outbound="captcha",
        back=address(PARKED, project),
    )
    assert answer["Location"] == address(PARKED, project)
    due = set(RoutedItem.objects.filter(outbound="captcha").values_list("due_at", flat=True))
    assert len(due) == 1
    assert before > due.pop()
    assert RoutedItem.objects.get(outbound="rest").due_at == before
    record = AuditRecord.objects.get(action="routing.offer_parked")
    assert record.after == {"outbound": "captcha", "items": 3}
    said = client.get(address(PARKED, project)).content.decode()
    assert "Dispatch of 3 tasks to captcha is retried now." in said
    post(client, "routing_cancel", project=project.pk, _selected_action=[waiting[0].id])
    assert row_of(waiting[0]).state == ItemState.CANCELLED


def test_nothing_ticked_is_said(project: Project) -> None:
    client = person(project, Role.OPERATOR)
    sent = {"project": project.pk, "_selected_action": ["x", "9" * 40, "-1"], "back": "//evil/"}
    answer = post(client, "routing_cancel", **sent)
    assert answer["Location"] == reverse(f"admin:{ITEMS}")
    assert "no task is selected" in client.get(address(ITEMS, project)).content.decode()


# --- who may what -------------------------------------------------------------------------------

ONE = ("routing_item_cancel", "routing_item_resubmit", "routing_item_edit")


def test_viewers_look_and_touch_nothing(project: Project) -> None:
    entry = failed(project)
    client = person(project, Role.VIEWER)
    for name in LISTS:
        assert "_selected_action" not in html_of(client, address(name, project))
    for name in ONE:
        assert post(client, name, entry, item="{}").status_code == 403
    assert client.get(reverse("admin:routing_item_edit", args=[entry.id])).status_code == 403
    for name in ("routing_resubmit", "routing_cancel", "routing_offer"):
        sent = {"project": project.pk, "_selected_action": [entry.id], "outbound": "captcha"}
        assert post(client, name, **sent).status_code == 403
    assert RoutedItem.objects.count() == 1


def test_items_of_other_projects_do_not_exist(project: Project) -> None:
    other = make_project()
    entry = failed(other, outbound="theirs")
    client = person(project, Role.ADMIN)
    assert client.get(page_of(entry)).status_code == 404
    assert client.get(reverse("admin:routing_item_json", args=[entry.id])).status_code == 404
    for name in LISTS:
        assert client.get(address(name, other)).status_code == 404
        assert "theirs" not in html_of(client, address(name, project, value=entry.task_uuid))
    for name in ONE:
        assert post(client, name, entry, item="{}").status_code == 404
    # An id of another project among those of one's own.
    post(client, "routing_resubmit", project=project.pk, _selected_action=[entry.id])
    assert RoutedItem.objects.count() == 1


def test_buttons_answer_to_post_only(project: Project) -> None:
    entry = failed(project)
    client = enter(make_superuser())
    for name in ("routing_item_cancel", "routing_item_resubmit"):
        assert client.get(reverse(f"admin:{name}", args=[entry.id])).status_code == 405
    for name in ("routing_resubmit", "routing_cancel", "routing_offer"):
        assert client.get(reverse(f"admin:{name}")).status_code == 405
    for bad in ("0", "9" * 30, "x"):
        assert client.get(f"{reverse(f'admin:{ITEMS}')}{bad}/change/").status_code == 404


def test_poison_is_shown_as_it_came_and_mended(project: Project) -> None:
    raw = '{"credit_no": "C1",'
    entry = moved(
        arrive(project, item={"raw": raw})[0],
        ItemState.DEAD,
        outbound="",
        reason="poison",
        detail="plugin: the text ends too early",
    )
    client = person(project, Role.OPERATOR)
    text = text_of(html_of(client, page_of(entry)))
    assert "Received content (not a valid task)" in text
    assert "plugin: the text ends too early" in text
    assert raw in text
    # As it was it would be poison again.
    assert "Submit again unchanged" not in text
    answer = post(client, "routing_resubmit", project=project.pk, _selected_action=[entry.id])
    assert "This is not a valid task." in client.get(answer["Location"]).content.decode()
    edit = reverse("admin:routing_item_edit", args=[entry.id])
    assert "{&quot;credit_no&quot;: &quot;C1&quot;,</textarea>" in html_of(client, edit)
    client.post(edit, {"item": '{"credit_no": "C1"}'})
    assert RoutedItem.objects.get(resubmit_of=entry.task_uuid).item == '{"credit_no":"C1"}'


def test_what_a_router_is_busy_with_is_not_offered_to_another(project: Project) -> None:
    busy, free = parked(project, 2)
    held = claim_parked(
        project=project.pk, outbound="captcha", now=timezone.now(), lease_seconds=900, limit=1
    )
    assert [entry.id for entry in held] == [busy.id]
    before = RoutedItem.objects.get(pk=busy.id).due_at
    client = person(project, Role.OPERATOR)
    post(client, "routing_offer", project=project.pk, outbound="captcha")
    assert RoutedItem.objects.get(pk=busy.id).due_at == before
    assert RoutedItem.objects.get(pk=free.id).due_at < before
    post(client, "routing_offer", project=project.pk, outbound="captcha")
    said = client.get(address(PARKED, project)).content.decode()
    assert "No task is parked for captcha, or routers are already dispatching them." in said
