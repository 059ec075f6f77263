"""Replay of stored items under other rules, without side effects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.projects.models import Project
from apps.routing.engine.dry_run import Action, explain_item
from apps.routing.engine.rules import Convert, Inbound, Outbound, RuleSet
from apps.routing.engine.track import Track, compile_track
from apps.routing.models import CounterChange, RoutedItem
from apps.routing.queries.replays import MOST_ROWS, Route, RouteDifference, RouteKind, replay
from apps.routing.states import ItemState
from tests.access.factories import make_project
from tests.routing.factories import NOW, arrive, moved

pytestmark = pytest.mark.django_db

LOGS = Inbound(name="logs", cls="web.WebInbound")
NORTH = Outbound(name="north", cls="x", init={"key": "n"}, selector=("province == 'BJ'",))
SOUTH = Outbound(name="south", cls="x", init={"key": "s"}, selector=("province == 'GD'",))
RULES = RuleSet(project="ic", inbounds=(LOGS,), outbounds=(NORTH, SOUTH))
BASE = compile_track(RULES, 1)
SENT_NORTH, SENT_SOUTH = Route(RouteKind.SENT, "north"), Route(RouteKind.SENT, "south")
REJECTED = Route(RouteKind.REJECTED)


@pytest.fixture
def project() -> Project:
    return make_project()


def draft(**changed: Any) -> Track:
    """Return the rules with a change."""
    return compile_track(replace(RULES, **changed), 2)


def province(project: Project, *names: str, **fields: Any) -> list[str]:
    """Store an item for each province; return their UUIDs in the same order."""
    return [
        str(arrive(project, item={"province": name, "company_name": "x"}, **fields)[0].task_uuid)
        for name in names
    ]


@pytest.mark.covers("S2.7")
def test_each_way_of_differing_is_counted_and_the_gravest_stands_first(project: Project) -> None:
    gd, bj, js, gs = province(project, "GD", "BJ", "JS", "GS")
    found = replay(
        project=project.pk,
        base=BASE,
        draft=draft(
            outbounds=(
                replace(NORTH, selector=("province in ['GD', 'JS']",)),
                replace(SOUTH, selector=("province == 'SH'",)),
            )
        ),
    )
    assert [(str(row.task_uuid), row.before, row.after, row.difference) for row in found.rows] == [
        (bj, SENT_NORTH, REJECTED, RouteDifference.NEWLY_REJECTED),
        (js, REJECTED, SENT_NORTH, RouteDifference.NEWLY_TAKEN),
        (gd, SENT_SOUTH, SENT_NORTH, RouteDifference.MOVED),
    ]
    assert [(each.before, each.after, each.count) for each in found.groups] == [
        (SENT_NORTH, REJECTED, 1),
        (REJECTED, SENT_NORTH, 1),
        (SENT_SOUTH, SENT_NORTH, 1),
        (REJECTED, REJECTED, 1),
    ]
    assert gs not in {str(row.task_uuid) for row in found.rows}
    assert (found.items, found.different, found.base, found.draft) == (4, 3, 1, 2)
    assert (found.count(RouteDifference.NEWLY_REJECTED), found.count(RouteDifference.NONE)) == (
        1,
        1,
    )


def test_the_same_rules_change_nothing(project: Project) -> None:
    province(project, "GD", "BJ", "JS")
    found = replay(project=project.pk, base=BASE, draft=draft())
    assert (found.items, found.different, found.rows, found.converters_differ) == (3, 0, [], [])


def test_what_is_sent_otherwise_is_a_difference_too(project: Project) -> None:
    province(project, "GD", "BJ")
    named = replace(SOUTH, task_params=("province",))
    elsewhere = replace(NORTH, init={"key": "other"})
    found = replay(project=project.pk, base=BASE, draft=draft(outbounds=(elsewhere, named)))
    assert [row.difference for row in found.rows] == [RouteDifference.MESSAGE] * 2
    # Changes that affect neither the message nor these items are no difference.
    quiet = draft(outbounds=(replace(NORTH, note="x", max_lag=9), replace(SOUTH, rt_priority=1)))
    assert replay(project=project.pk, base=BASE, draft=quiet).different == 0


@pytest.mark.covers("S2.18")
@pytest.mark.parametrize(
    ("inbounds", "fate"),
    [
        ((replace(LOGS, selector=("province == 'BJ'",)),), RouteKind.FILTERED),
        ((replace(LOGS, disable=True),), RouteKind.INBOUND_DISABLED),
        ((), RouteKind.INBOUND_GONE),
    ],
)
def test_what_the_inbound_would_not_bring_any_more_is_told(
    project: Project, inbounds: tuple[Inbound, ...], fate: RouteKind
) -> None:
    province(project, "GD")
    (row,) = replay(project=project.pk, base=BASE, draft=draft(inbounds=inbounds)).rows
    assert (row.before, row.after) == (SENT_SOUTH, Route(fate))
    assert row.difference is RouteDifference.NEWLY_REJECTED


def test_an_inbound_that_neither_knows_is_not_asked(project: Project) -> None:
    province(project, "GD", inbound="from before")
    found = replay(project=project.pk, base=BASE, draft=draft(outbounds=()))
    assert [(row.before, row.after) for row in found.rows] == [(SENT_SOUTH, REJECTED)]


def test_converters_are_not_run_again_and_that_is_said(project: Project) -> None:
    province(project, "GD")
    drops = replace(LOGS, convert=(Convert("common.Delete", {"keys": ["province"]}),))
    found = replay(project=project.pk, base=BASE, draft=draft(inbounds=(drops,)))
    assert (found.different, found.converters_differ) == (0, ["logs"])


def test_only_the_last_of_the_project_that_fit_the_filters_are_asked(project: Project) -> None:
    province(make_project(), "GD")
    province(project, "BJ", "BJ")
    last = province(project, "GD")
    other = province(project, "GD", inbound="else")
    none = draft(outbounds=())
    one = replay(project=project.pk, base=BASE, draft=none, limit=1)
    assert [str(row.task_uuid) for row in one.rows] == other
    logs = replay(project=project.pk, base=BASE, draft=none, limit=1, inbound="logs")
    assert [str(row.task_uuid) for row in logs.rows] == last
    assert replay(project=project.pk, base=BASE, draft=none).items == 4
    assert replay(project=project.pk, base=BASE, draft=none, limit=-1).items == 0


def test_poison_is_left_out_and_what_cannot_be_read_is_counted(project: Project) -> None:
    (dead, odd) = arrive(project, 2)
    moved(dead, ItemState.DEAD)
    RoutedItem.objects.filter(pk=odd.id).update(item="{")
    found = replay(project=project.pk, base=BASE, draft=draft())
    assert (found.items, found.unreadable) == (0, 1)


def test_it_ends_in_time_and_says_so(project: Project) -> None:
    province(project, "GD")
    found = replay(project=project.pk, base=BASE, draft=draft(), seconds=-1)
    assert (found.items, found.stopped) == (0, True)


def test_nothing_is_written_and_one_query_is_enough(project: Project) -> None:
    province(project, *["GD"] * 20)
    before = list(RoutedItem.objects.order_by("id").values()), CounterChange.objects.count()
    with CaptureQueriesContext(connection) as asked:
        found = replay(project=project.pk, base=BASE, draft=draft(outbounds=()))
    assert len(asked) == 1
    assert found.different == 20
    assert (
        list(RoutedItem.objects.order_by("id").values()),
        CounterChange.objects.count(),
    ) == before


def test_so_many_rows_are_kept_and_all_are_counted(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.routing.queries.replays.MOST_ROWS", 3)
    assert MOST_ROWS > 3
    province(project, *["GD"] * 5)
    found = replay(project=project.pk, base=BASE, draft=draft(outbounds=()))
    assert (len(found.rows), found.different) == (3, 5)


@pytest.mark.slow("2 s")
@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["GD", "BJ", "JS"]), max_size=4), st.data())
def test_a_choice_is_what_an_explanation_says(provinces: list[str], data: st.DataObject) -> None:
    texts = st.lists(
        st.sampled_from(["province == 'GD'", "province != 'GD'", "routed_count > 0"]), max_size=2
    )
    track = draft(
        inbounds=(replace(LOGS, selector=tuple(data.draw(texts))),),
        outbounds=tuple(
            replace(each, selector=tuple(data.draw(texts)), disable=data.draw(st.booleans()))
            for each in (NORTH, SOUTH)
        ),
        limits=data.draw(st.integers(0, 2)),
    )
    project = make_project()
    items = [{"province": name, "routed_count": number} for number, name in enumerate(provinces)]
    for item in items:
        arrive(project, item=item)
    found = replay(project=project.pk, base=track, draft=track)
    told = [explain_item(track, item, inbound="logs", now=NOW) for item in items]
    sent = [each.decision.outbound for each in told if each.outcome == Action.DISPATCH]
    filtered = sum(each.outcome == "filtered" for each in told)
    by_outbound = {each.before.outbound: each.count for each in found.groups if each.before.taken}
    assert by_outbound == {name: sent.count(name) for name in set(sent)}
    assert filtered == sum(e.count for e in found.groups if e.before.fate is RouteKind.FILTERED)
    assert (found.items, found.different) == (len(items), 0)
