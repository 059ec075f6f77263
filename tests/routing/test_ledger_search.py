"""Search, resubmission, cancellation and retention of items."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from apps.access.models import AuditRecord
from apps.projects.models import Project
from apps.routing.admin.item_page import typed_of
from apps.routing.engine.inbounds.registry import HTTP
from apps.routing.engine.rules import Convert, Inbound, Outbound, RuleSet
from apps.routing.engine.track import compile_track
from apps.routing.errors import InvalidItem, ItemNotOpen, ItemNotResubmittable, ItemResubmitted
from apps.routing.models import CounterChange, RoutedItem, ValuePage
from apps.routing.queries import find_by_value, item_accounting, list_items, reconcile_items
from apps.routing.services import (
    cancel_item,
    claim_due,
    delete_old_items,
    merge_pages,
    move_items,
    resubmit_item,
    sweep_ledger,
)
from apps.routing.states import ItemState
from tests.access.factories import make_project, make_superuser, make_user
from tests.routing.factories import NOW, arrive, later, moved, row_of, to
from tests.routing.page_rules import activate_rules

pytestmark = pytest.mark.django_db

S = ItemState
ITEM = {
    "company_name": "宁乡县老粮仓镇楚江冻库",
    "rt": True,
    "none": None,
    "n": 7,
    "task_params": {"province": "GD", "codes": ["a'b", 1.5, {"x": "\ud800"}]},
}


@pytest.fixture
def project() -> Project:
    return make_project()


def found(project: Project, value: str, key: str = "") -> list[int]:
    rows = RoutedItem.objects.all()
    return [row.pk for row in find_by_value(rows, project=project.pk, value=value, key=key).items]


@pytest.mark.parametrize("value", ["宁乡县老粮仓镇楚江冻库", "7", "GD", "a'b", "1.5", "\ud800"])
def test_an_item_is_found_by_any_value(project: Project, value: str) -> None:
    (entry,) = arrive(project, item=ITEM)
    arrive(project, 20)
    assert found(project, value) == [entry.id]
    assert found(make_project(), value) == []


@pytest.mark.parametrize("value", ["宁乡县", "gd", "True", "None", "", "8", "GD "])
def test_what_no_item_holds_is_not_found(project: Project, value: str) -> None:
    arrive(project, item=ITEM)
    assert found(project, value) == []


def test_a_key_narrows_a_search(project: Project) -> None:
    (one,) = arrive(project, item={"a": "x", "b": "y"})
    (other,) = arrive(project, item={"a": "y"})
    assert found(project, "y") == [other.id, one.id]
    assert found(project, "y", "b") == [one.id]
    assert found(project, "x", "b") == []


def test_values_that_come_with_a_result_are_found_too(project: Project) -> None:
    (entry,) = arrive(project, item={"a": "before"})
    moved(moved(entry, S.DISPATCHED), S.FAILED, item={"a": "after", "error_msg": "timed out"})
    assert found(project, "timed out") == [entry.id]
    # It no longer contains this value.
    assert found(project, "before") == []


def test_a_search_says_when_it_has_not_told_all(project: Project) -> None:
    arrive(project, 5, item={"a": "x"})
    rows = RoutedItem.objects.all()
    some = find_by_value(rows, project=project.pk, value="x", limit=3)
    assert (len(some.items), some.complete) == (3, False)
    assert find_by_value(rows, project=project.pk, value="x", limit=5).complete


def test_a_search_shows_only_what_one_may_see(project: Project) -> None:
    arrive(project, item={"a": "x"})
    rows = RoutedItem.objects.visible_to(make_user())
    assert find_by_value(rows, project=project.pk, value="x").items == []


def test_merged_pages_find_the_same(project: Project) -> None:
    entries = [arrive(project, item={"a": f"v{n % 50}"})[0] for n in range(150)]
    other = make_project()
    (theirs,) = arrive(other, item={"a": "v7"})
    assert merge_pages() == 149
    assert ValuePage.objects.count() == 2
    assert found(project, "v7") == [entries[107].id, entries[57].id, entries[7].id]
    assert found(other, "v7") == [theirs.id]
    assert merge_pages() == 0


def test_a_list_survives_retention_in_the_middle_of_its_search(project: Project) -> None:
    for _ in range(30):
        arrive(project)
    asked = 0

    def deleting(execute: Any, sql: str, *more: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 2:
            RoutedItem.objects.all().delete()
        return execute(sql, *more)

    with connection.execute_wrapper(deleting):
        assert list(list_items(RoutedItem.objects.all(), since=NOW)) == []
    assert asked > 2


def test_lists_are_narrowed_by_state_way_and_time(project: Project) -> None:
    ids = []
    for n in range(30):
        (entry,) = arrive(project, inbound=f"in{n % 2}")
        RoutedItem.objects.filter(pk=entry.id).update(received_at=NOW + timedelta(hours=n))
        ids.append(entry.id)
    moved(arrive(project, inbound="in9")[0], S.PARKED, outbound="full")

    def listed(**fields: object) -> list[int]:
        return list(list_items(RoutedItem.objects.all(), **fields).values_list("pk", flat=True))  # type: ignore[arg-type]

    assert listed(inbound="in0", state=S.RECEIVED) == ids[28::-2]
    assert len(listed(outbound="full")) == len(listed(state=S.PARKED)) == 1
    since, until = NOW + timedelta(hours=10), NOW + timedelta(hours=12)
    RoutedItem.objects.filter(inbound="in9").update(received_at=NOW + timedelta(days=9))
    assert listed(since=since, until=until) == [ids[11], ids[10]]
    assert listed(since=NOW + timedelta(days=30)) == []
    RoutedItem.objects.all().delete()
    assert listed(since=since, until=until) == []


def test_a_person_cancels_what_is_open(project: Project) -> None:
    person = make_superuser()
    (entry,) = arrive(project)
    sent = moved(entry, S.DISPATCHED)
    cancelled = cancel_item(item=row_of(entry), actor=person, now=later(5), note="not wanted")
    row = row_of(entry)
    assert (cancelled.state, row.state, row.ended_at) == (S.CANCELLED, S.CANCELLED, later(5))
    assert row.story[-1].detail == person.get_username()
    # The move of the router that waits for the result is returned as lost.
    assert move_items(moves=[to(sent, S.SUCCEEDED)], now=NOW).lost
    with pytest.raises(ItemNotOpen):
        cancel_item(item=row, actor=person, now=NOW)
    audit = AuditRecord.objects.get(action="routing.cancel_item")
    assert (audit.before, audit.after, audit.project_id) == (
        {"state": "dispatched"},
        {"state": "cancelled"},
        project.pk,
    )


def test_a_failed_item_is_edited_and_submitted_again(project: Project) -> None:
    person = make_superuser()
    ended = moved(arrive(project)[0], S.FAILED)
    old = row_of(ended)
    assert list(RoutedItem.objects.dead_letters()) == [old]
    new = resubmit_item(item=old, data={"a": "mended"}, actor=person, now=later(9))
    old.refresh_from_db()
    row = row_of(new)
    assert (old.state, old.replaced_by, row.resubmit_of) == (S.FAILED, new.task_uuid, old.task_uuid)
    assert json.loads(row.item) == {"a": "mended"}
    assert not RoutedItem.objects.dead_letters().exists()
    assert [entry.id for entry in claim_due(now=later(9), lease_seconds=9, limit=9)] == [new.id]
    with pytest.raises(ItemResubmitted):
        resubmit_item(item=old, actor=person, now=later(9))
    assert AuditRecord.objects.filter(action="routing.resubmit_item").count() == 1
    assert item_accounting(project.pk).received == 2
    assert reconcile_items(project.pk).holds


def test_what_is_submitted_again_begins_anew(project: Project) -> None:
    first = {"company_name": "宁乡县", "rt": True, "priority": 7, "task_params": {"city": "gx"}}
    told = {"outbound": "captcha", "routed_count": 100, "task_uuid": "0", "task_result": 1101}
    (entry,) = arrive(project, item=first)
    grown = {**first, **told, "task_params": {"city": "gx", **told}}
    ended = moved(entry, S.FAILED, item=grown, routed_count=100)
    new = resubmit_item(item=row_of(ended), actor=None, now=NOW)
    assert new.item == first
    rules = RuleSet(
        project="p", outbounds=(Outbound(name="again", cls="x", selector=("company_name",)),)
    )
    decision = compile_track(rules).life().decide(new.item, None)
    assert (decision.outbound, decision.counters.routed_count) == ("again", 1)
    # Resubmitting an edited item starts there too.
    assert json.loads(typed_of(row_of(ended))) == first


def test_what_was_poison_is_converted_when_it_is_mended(project: Project) -> None:
    parse = Convert("common.ParseJson", {"keys": ["more"], "wrong": "refuse"})
    rules = RuleSet(project="p", inbounds=(Inbound(name="logs", cls=HTTP, convert=(parse,)),))
    activate_rules(project, rules)
    poison = moved(arrive(project, item={"more": "{"})[0], S.DEAD)
    with pytest.raises(InvalidItem) as refusal:
        resubmit_item(item=row_of(poison), actor=None, now=NOW)
    assert "ParseJson" in refusal.value.fields["item"][0]
    assert row_of(poison).replaced_by is None
    mended = {"more": '{"a": 1}'}
    assert resubmit_item(item=row_of(poison), data=mended, actor=None, now=NOW).item == {
        "more": {"a": 1}
    }


def test_what_cannot_be_submitted_again(project: Project) -> None:
    (entry,) = arrive(project)
    with pytest.raises(ItemNotResubmittable):
        resubmit_item(item=row_of(entry), actor=None, now=NOW)
    dead = moved(entry, S.DEAD)
    with pytest.raises(InvalidItem) as refusal:
        resubmit_item(item=row_of(dead), data={"a": "\x00"}, actor=None, now=NOW)
    assert "item" in refusal.value.fields
    assert row_of(dead).replaced_by is None
    assert resubmit_item(item=row_of(dead), actor=None, now=NOW).item == entry.item


def test_old_ends_are_forgotten_and_stay_in_the_books(project: Project) -> None:
    items = arrive(project, 6)
    for entry in items[:4]:
        moved(entry, S.SUCCEEDED)
    open_item = moved(items[4], S.PARKED)
    kept = move_items(moves=[to(items[5], S.FAILED)], now=NOW + timedelta(days=5)).entries
    now = NOW + timedelta(days=10)
    assert delete_old_items(now=now, days=7) == 4
    assert set(RoutedItem.objects.values_list("pk", flat=True)) == {open_item.id, *kept}
    book = item_accounting(project.pk)
    assert (book.received, book.final["succeeded"], book.forgotten) == (6, 4, 4)
    assert reconcile_items(project.pk).holds
    assert ValuePage.objects.count() == 1
    assert delete_old_items(now=now, days=7) == 0
    moved(open_item, S.SUCCEEDED)
    swept = sweep_ledger(now=now + timedelta(days=30), days=7)
    assert swept.forgotten == 2
    assert not ValuePage.objects.exists()
    assert CounterChange.objects.exists()
    assert reconcile_items(project.pk).holds
