"""Property test: for any rules and item, the dry run agrees with the decision."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.routing.engine.dry_run import Event, Verdict, explain_item, explain_known
from apps.routing.engine.items import ItemError, check_item
from apps.routing.engine.life import KnownItem
from apps.routing.engine.messages import Counters, message
from apps.routing.engine.outcomes import Action, Decision, TaskState
from apps.routing.engine.rules import Convert, Inbound, Outbound, Overflow, RuleSet
from apps.routing.engine.track import Track, compile_track
from tests.routing.engine.decisions import NOW, UUID
from tests.routing.engine.selector import reference


def _is_item(item: dict[str, Any]) -> bool:
    try:
        check_item(item)
    except ItemError:
        return False
    return True


ITEMS = reference.items.filter(_is_item)
STATUSES = ("1", "404", "503", "1000")
SETS = st.sets(st.sampled_from(STATUSES[:3]), max_size=2).map(tuple)
COUNTS = st.integers(0, 4)


@st.composite
def tracks(draw: st.DrawFn) -> Track:
    """Generate compiled rules with a few outbounds and an inbound with selectors."""
    taken = draw(reference.rule_sets)
    outbounds = [
        Outbound(
            name=f"o{number}",
            cls="redis_queue.RedisListOutbound",
            selector=tuple(texts) if draw(st.integers(0, 5)) else (),
            disable=draw(st.integers(0, 4)) == 0,
            retry_limits=draw(st.integers(-1, 3)),
            failback=draw(st.sampled_from(["", "o0", "o1", "gone"])),
            dont_retry_status=draw(SETS),
            direct_failback_status=draw(SETS),
            overflow=draw(st.sampled_from(Overflow)),
        )
        for number, (_, texts) in enumerate(taken)
    ]
    wanted = tuple(draw(st.lists(reference.selectors, max_size=2)))
    return compile_track(
        RuleSet(
            project="ic",
            inbounds=(Inbound(name="in", cls="x", selector=wanted),),
            outbounds=tuple(outbounds),
            limits=draw(st.integers(-1, 4)),
            terminal_codes=(1000,),
        )
    )


@st.composite
def ledgers(draw: st.DrawFn) -> KnownItem:
    """Generate ledger entries of an item."""
    return KnownItem(
        UUID,
        draw(st.sampled_from(TaskState)),
        draw(st.sampled_from(["o0", "o1", "o2", "gone"])),
        Counters(draw(COUNTS), draw(COUNTS), draw(COUNTS)),
        draw(ITEMS),
    )


FULL = st.sets(st.sampled_from(["o0", "o1", "o2", "o3"]))


@pytest.mark.slow("15 s")
@pytest.mark.covers("S2.7", "S2.35")
@settings(max_examples=150, deadline=None)
@given(tracks(), ITEMS, st.none() | ledgers(), st.none() | st.sampled_from(STATUSES), FULL)
def test_an_explanation_is_what_is_decided(
    track: Track, item: dict[str, Any], ledger: KnownItem | None, status: str | None, full: set[str]
) -> None:
    if status is not None:
        item |= {"task_result": status, "task_uuid": UUID}
    told = explain_item(
        track,
        item,
        inbound="in",
        known=ledger,
        now=NOW,
        full=lambda outbound: outbound.name in full,
    )
    wanted = track.entrances["in"].accepts(item)
    assert told.inbound is not None
    assert told.inbound.accepts is wanted
    assert any(one.matches for one in told.inbound.selectors) is bool(
        wanted and told.inbound.selectors
    )
    if not wanted and (ledger is None or status is None):
        assert told.outcome == "filtered"
        return
    decided = track.life(lambda outbound: outbound.name in full).decide(item, ledger)
    assert told.decision == decided
    check(track, told.outbounds, decided, full)
    if decided.action in (Action.DISPATCH, Action.HOLD):
        assert told.message is not None
        assert told.message.message == message(
            track.outbounds[decided.outbound],
            decided.item,
            uuid=told.message.message["task_uuid"],
            counters=decided.counters,
            submit_time=NOW,
        )
    assert json.dumps(told.as_dict())


@pytest.mark.slow("9 s")
@settings(max_examples=100, deadline=None)
@given(tracks(), ledgers(), st.sampled_from(Event), FULL)
def test_an_explained_event_is_what_is_decided(
    track: Track, ledger: KnownItem, event: Event, full: set[str]
) -> None:
    told = explain_known(track, ledger, event, now=NOW, full=lambda outbound: outbound.name in full)
    life = track.life(lambda outbound: outbound.name in full)
    decided = life.timed_out(ledger) if event is Event.TIMED_OUT else life.offer(ledger)
    assert told.decision == decided
    check(track, told.outbounds, decided, full)


@pytest.mark.slow("1 s")
@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=60)
    | st.text(max_size=60)
    | st.text(alphabet='{}[]":,0159eE.-+nulltrueNaN \\\n', max_size=40),
    st.sampled_from(["in", None]),
)
def test_whatever_comes_in_is_explained(raw: bytes | str, inbound: str | None) -> None:
    track = compile_track(
        RuleSet(
            project="ic",
            inbounds=(Inbound(name="in", cls="x", convert=(Convert("common.ExtractTaskParams"),)),),
            outbounds=(Outbound(name="o", cls="x", selector=("a or not b",)),),
        )
    )
    told = explain_item(track, raw, inbound=inbound, now=NOW)
    assert (told.refused is None) is (told.outcome in ("dispatch", "end"))
    assert json.dumps(told.as_dict())
    assert told.text


def check(track: Track, outbounds: Any, decided: Decision, full: set[str]) -> None:
    """Check that the verdicts agree with the matcher and the decision."""
    fits = track.ways.all(decided.item)
    assert [one.place - 1 for one in outbounds if one.matches] == fits
    for one in outbounds:
        assert one.selectors is not None
        assert any(each.matches for each in one.selectors) is one.matches
    by_verdict = {
        verdict: [one.name for one in outbounds if one.verdict is verdict] for verdict in Verdict
    }
    taken = by_verdict[Verdict.TAKEN] + by_verdict[Verdict.HELD]
    goes = decided.action in (Action.DISPATCH, Action.HOLD)
    assert taken == ([decided.outbound] if goes else [])
    assert set(by_verdict[Verdict.FULL]) <= full
    if by_verdict[Verdict.NOT_ASKED]:
        assert not by_verdict[Verdict.LATER]
        return
    # The rules were asked: the first that fits and is not passed over is the one it is about.
    passed = {"disabled", "full", "passed_over"}
    off = {one.place - 1 for one in outbounds if one.verdict.value in passed}
    first = track.ways.first(decided.item, off)
    if goes and not by_verdict[Verdict.FULL] and decided.reason.value in ("matched", "next"):
        assert first is not None
        assert track.rules.outbounds[first].name == decided.outbound
    if not goes and not by_verdict[Verdict.FULL]:
        assert first is None
