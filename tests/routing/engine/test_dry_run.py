"""A dry run explains each part of a decision and agrees with the decision logic."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest

from apps.routing.engine.dry_run import (
    NO_UUID,
    Event,
    KnownItem,
    UnknownInbound,
    Verdict,
    explain_item,
    explain_known,
)
from apps.routing.engine.items import MAX_BYTES
from apps.routing.engine.messages import BUILT_IN
from apps.routing.engine.outcomes import Action, Reason, TaskState
from apps.routing.engine.rules import Convert, Inbound, Outbound, Overflow, RuleSet
from apps.routing.engine.track import Track, compile_track
from tests.routing.engine.decisions import NOW, UUID, known

LIST = "redis_queue.RedisListOutbound"
LOGS = Inbound(
    name="logs",
    cls="kafka.KafkaInbound",
    selector=("data_type == 'change'", "task_src == 3"),
    convert=(
        Convert("logstash.RemoveBuildinKeys"),
        Convert("common.ExtractTaskParams"),
        Convert("common.ParseJson", {"keys": ["more"], "wrong": "refuse"}),
    ),
)
NORTH = Outbound(
    name="north",
    cls=LIST,
    init={"url": "redis://ops:hunter2@10.8.6.1/0", "key": "ic:north"},
    selector=("province == 'BJ' and int(level) > 3", "province == 'TJ'"),
)
SOUTH = Outbound(
    name="south",
    cls=LIST,
    init={"url": "{redis_url}", "key": "ic:south"},
    selector=("province == 'GD'",),
    retry_limits=2,
    failback="spare",
    dont_retry_status=(404,),
    task_params=("company_name", "province"),
    task_params_wrapped=True,
    constants={"task_src": 3},
)
SPARE = Outbound(name="spare", cls=LIST, init={"key": "ic:spare"})
REST = Outbound(name="rest", cls=LIST, init={"key": "ic:rest"}, selector=("province",))
OFF = Outbound(name="off", cls=LIST, selector=("province == 'GD'",), disable=True)
RULES = RuleSet(
    project="ic",
    inbounds=(LOGS,),
    outbounds=(OFF, NORTH, SOUTH, SPARE, REST),
    terminal_codes=(1000,),
)
ITEM = {"company_name": "宁乡县楚江冻库", "data_type": "change", "province": "GD"}


@pytest.fixture(scope="module")
def track() -> Track:
    return compile_track(RULES, 7)


def verdicts(track: Track, raw: Any, **given: Any) -> dict[str, str]:
    """Return the verdict on each outbound."""
    told = explain_item(track, raw, inbound=None, now=NOW, **given)
    return {one.name: one.verdict.value for one in told.outbounds}


@pytest.mark.covers("S2.7")
@pytest.mark.parametrize(
    ("raw", "code", "offset"),
    [
        # The position of the comma; before Python 3.13, that of what stands behind it.
        (b'{"a": 1,}', "not_json", 7 if sys.version_info >= (3, 13) else 8),
        (b"[]", "not_a_dict", None),
        (b"\xff{}", "not_utf8", None),
        (b'{"a": NaN}', "bad_number", None),
        (b"[" * 100_000, "too_deep", None),
        ({"a": {1, 2}}, "bad_type", None),
    ],
)
def test_what_is_no_item_is_refused_with_the_place(
    track: Track, raw: Any, code: str, offset: int | None
) -> None:
    told = explain_item(track, raw, inbound="logs", now=NOW)
    assert told.refused is not None
    assert (told.outcome, told.refused.code, told.refused.offset) == ("refused", code, offset)
    assert (told.decision, told.message, told.received, told.outbounds) == (None, None, None, ())
    assert json.dumps(told.as_dict())


def test_an_inbound_that_is_not_there_is_said(track: Track) -> None:
    with pytest.raises(UnknownInbound):
        explain_item(track, ITEM, inbound="nobody", now=NOW)


@pytest.mark.covers("S2.22")
def test_each_converter_tells_what_it_changed(track: Track) -> None:
    raw = {
        "@version": "1",
        "task_params": {"province": "GD", "company_name": "x"},
        "data_type": "change",
        "more": '{"a": 1}',
    }
    told = explain_item(track, json.dumps(raw), inbound="logs", now=NOW).as_dict()
    assert [step["class"] for step in told["steps"]] == [one.cls for one in LOGS.convert]
    assert told["steps"][0]["removed"] == {"@version": "1"}
    assert told["steps"][1]["added"] == {"province": "GD", "company_name": "x"}
    assert told["steps"][2]["changed"] == {"more": {"before": '{"a": 1}', "after": {"a": 1}}}
    assert told["received"] == raw
    assert told["converted"]["province"] == "GD"
    assert told["outcome"] == "dispatch"


def test_a_converter_that_refuses_is_named(track: Track) -> None:
    told = explain_item(track, ITEM | {"more": "{"}, inbound="logs", now=NOW)
    assert told.refused is not None
    assert told.refused.converter == "common.ParseJson"
    assert (told.outcome, told.converted) == ("refused", None)
    assert told.as_dict()["steps"][-1]["error"]["code"] == "not_json"


@pytest.mark.covers("S2.18")
def test_an_item_that_the_inbound_does_not_want_says_what_each_selector_lacked(
    track: Track,
) -> None:
    told = explain_item(track, {"data_type": "new", "province": "GD"}, inbound="logs", now=NOW)
    assert (told.outcome, told.decision, told.message) == ("filtered", None, None)
    assert told.inbound is not None
    assert told.inbound.accepts is False
    failing = [one.text for each in told.inbound.selectors for one in each.failing]
    assert failing == ["data_type == 'change'", "task_src == 3"]
    south = told.outbounds[2]
    assert (south.verdict, south.matches) == (Verdict.NOT_ASKED, True)


@pytest.mark.covers("S2.7", "S2.20", "S2.33")
def test_every_outbound_is_told_in_its_order(track: Track) -> None:
    told = explain_item(track, json.dumps(ITEM), inbound="logs", now=NOW)
    assert {one.name: one.verdict.value for one in told.outbounds} == {
        "off": "disabled",
        "north": "not_matched",
        "south": "taken",
        "spare": "no_selector",
        "rest": "later",
    }
    assert [one.place for one in told.outbounds] == [1, 2, 3, 4, 5]
    north = told.outbounds[1]
    assert north.selectors is not None
    assert [one.text for each in north.selectors for one in each.failing] == [
        "province == 'BJ'",
        "province == 'TJ'",
    ]
    assert told.decision is not None
    assert (told.decision.reason, told.decision.outbound) == (Reason.MATCHED, "south")
    assert told.version == 7


@pytest.mark.covers("S2.20")
def test_a_selector_that_fails_says_so(track: Track) -> None:
    told = explain_item(track, {"province": "BJ", "level": "high"}, inbound=None, now=NOW)
    north = told.as_dict()["outbounds"][1]
    first = north["selectors"][0]
    assert (north["verdict"], first["matches"]) == ("not_matched", False)
    assert "high" in first["error"]
    assert first["error_offset"] == NORTH.selector[0].index("int(")
    assert [one["state"] for one in first["conditions"]] == ["true", "error"]


@pytest.mark.covers("S2.7", "S2.27", "S2.28")
def test_the_message_is_the_one_that_would_be_sent(track: Track) -> None:
    told = explain_item(track, ITEM, inbound="logs", now=NOW)
    assert told.message is not None
    inside = told.message.message["task_params"]
    assert list(inside) == ["company_name", "province", "task_src", *BUILT_IN]
    assert (inside["task_uuid"], inside["submit_time"]) == (
        NO_UUID,
        "2021-10-22T07:12:02.145+00:00",
    )
    assert told.message.target == {"key": "ic:south", "url": "{redis_url}"}
    assert told.message.waits_for_result is True
    assert told.as_dict()["message"]["message"] == told.message.message


def test_no_password_is_told(track: Track) -> None:
    told = explain_item(track, {"province": "TJ"}, inbound=None, now=NOW)
    assert told.message is not None
    assert told.message.target == {"key": "ic:north", "url": "redis://ops:***@10.8.6.1/0"}
    assert "hunter2" not in json.dumps(told.as_dict())


@pytest.mark.covers("S2.34", "S2.35", "S2.36")
@pytest.mark.parametrize(
    ("status", "counters", "reason", "at"),
    [
        (1000, (1, 0, 0), Reason.TERMINAL, "south"),
        (503, (1, 0, 0), Reason.RETRY, "south"),
        (503, (1, 2, 2), Reason.FAILBACK, "spare"),
        (404, (1, 0, 0), Reason.FAILBACK, "spare"),
    ],
)
def test_a_result_is_told_as_if_the_ledger_knew_the_item(
    track: Track, status: int, counters: tuple[int, ...], reason: Reason, at: str
) -> None:
    ledger = known("south", *counters, item=ITEM)
    log = {"task_uuid": UUID, "task_result": status, "data_type": "not wanted"}
    told = explain_item(track, log, inbound="logs", known=ledger, now=NOW)
    # A result is settled whether or not the inbound wants it.
    assert told.inbound is not None
    assert told.inbound.accepts is False
    assert told.decision is not None
    assert (told.decision.reason, told.decision.outbound) == (reason, at)
    assert told.result is not None
    assert told.result.status == str(status)
    assert told.result.terminal is (status == 1000)
    assert told.result.dont_retry is (status == 404)
    assert (told.result.retry_limits, told.result.failback_usable) == (2, True)
    if told.message is not None:
        assert told.message.outbound == at
        assert UUID in json.dumps(told.message.message)
    assert [one.name for one in told.outbounds if one.was_here] == ["south"]


@pytest.mark.covers("S2.36")
def test_the_outbound_that_has_just_refused_is_passed_over(track: Track) -> None:
    rules = replace(RULES, outbounds=(OFF, NORTH, replace(SOUTH, failback=""), SPARE, REST))
    log = {"task_uuid": UUID, "task_result": 404}
    found = verdicts(compile_track(rules), log, known=known("south", item=ITEM))
    assert found["south"] == "passed_over"
    assert found["rest"] == "taken"


@pytest.mark.covers("S2.38")
@pytest.mark.parametrize(
    ("overflow", "south", "rest"),
    [
        (Overflow.HOLD, "held", "later"),
        (Overflow.NEXT, "full", "taken"),
        (Overflow.FAIL, "full", "later"),
    ],
)
def test_a_full_outbound_is_told(overflow: Overflow, south: str, rest: str) -> None:
    full = replace(SOUTH, overflow=overflow)
    track = compile_track(replace(RULES, outbounds=(full, REST)))
    found = verdicts(track, ITEM, full=lambda outbound: outbound.name == "south")
    assert found == {"south": south, "rest": rest}


def test_the_ledger_is_asked_for_results_alone(track: Track) -> None:
    asked: list[str] = []

    def lookup(uuid: str) -> KnownItem | None:
        asked.append(uuid)
        return known("south", item=ITEM)

    new = explain_item(track, ITEM | {"task_uuid": UUID}, inbound=None, known=lookup, now=NOW)
    assert new.decision is not None
    assert (asked, new.known, new.decision.origin) == ([], None, UUID)
    result = explain_item(
        track, {"task_uuid": UUID, "task_result": 1000}, inbound=None, known=lookup, now=NOW
    )
    assert asked == [UUID]
    assert result.known is not None
    explain_item(track, {"task_result": 1000}, inbound=None, known=lookup, now=NOW)
    assert asked == [UUID]


def test_what_happens_when_no_result_comes_or_a_queue_has_room(track: Track) -> None:
    out = explain_known(track, known("south", 1, 2, 2, item=ITEM), Event.TIMED_OUT, now=NOW)
    assert out.decision is not None
    assert (out.decision.state, out.decision.reason) == (TaskState.EXPIRED, Reason.NO_RESULT)
    parked = known("south", state=TaskState.PARKED, item=ITEM)
    room = explain_known(track, parked, Event.OFFERED, now=NOW)
    assert room.decision is not None
    assert (room.decision.action, room.decision.reason) == (Action.DISPATCH, Reason.ROOM)
    full = explain_known(track, parked, Event.OFFERED, now=NOW, full=lambda outbound: True)
    assert full.outbounds[2].verdict is Verdict.HELD
    assert json.dumps([out.as_dict(), room.as_dict(), full.as_dict()])


def test_huge_items_and_huge_rule_sets_are_told_shortly() -> None:
    text = "x" * (MAX_BYTES - 100)
    many = tuple(
        Outbound(name=f"o{n}", cls="x", selector=(f"a == {n}", f"b == {n}")) for n in range(1000)
    )
    track = compile_track(
        RuleSet(project="ic", outbounds=(*many, replace(REST, selector=("long",))))
    )
    told = explain_item(track, {"long": text, "a": 990}, inbound=None, now=NOW)
    assert len(json.dumps(told.as_dict())) < 1_000_000
    assert told.outbounds[990].verdict is Verdict.TAKEN
    # The one that takes it is told whole; of most that come after the first, the verdict alone.
    assert told.outbounds[990].selectors is not None
    assert told.outbounds[600].selectors is None
    assert told.as_dict()["message"]["cut"] is True
    # The message itself is whole.
    assert told.message is not None
    assert told.message.message["long"] == text


def test_a_message_that_no_target_could_be_given_is_said() -> None:
    wide = replace(REST, constants={"big": "y" * (MAX_BYTES + 10)})
    track = compile_track(RuleSet(project="ic", outbounds=(wide,)))
    item = {"province": "x" * (MAX_BYTES - 100)}
    told = explain_item(track, item, inbound=None, now=NOW)
    assert told.message is not None
    assert "bytes" in told.message.refused
