"""The engine behaves as the example in docs/taskhub-compat.md says."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest

from apps.routing.engine.files.reader import read_rules
from apps.routing.engine.items import Item
from apps.routing.engine.life import KnownItem
from apps.routing.engine.messages import BUILT_IN, message
from apps.routing.engine.outbounds import registry
from apps.routing.engine.outcomes import Action, Decision, Reason, TaskState
from apps.routing.engine.track import Track, compile_track
from apps.routing.services.configuration import problems_of_classes
from tools.requirement_marks import ROOT

DOCUMENT = (ROOT / "docs" / "taskhub-compat.md").read_text("utf-8")
SECTION = DOCUMENT.partition("## A task from end to end")[2].partition("\n## ")[0]
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
UUID = "019aa64f-9000-7000-8000-000000000001"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)


POSTED, SENT, LOG, WRAPPED, FOUND = [json.loads(each) for each in blocks("json")]


@pytest.fixture(scope="module")
def track() -> Track:
    (text,) = blocks("yaml")
    rules, problems = read_rules(
        text.encode(), {"redis_url": "redis://r"}, class_parameters=registry.parameters
    )
    assert rules is not None, problems
    assert [*problems, *problems_of_classes(rules)] == []
    return compile_track(rules)


def enter(track: Track, inbound: str, raw: Item) -> tuple[Item, bool]:
    entrance = track.entrances[inbound]
    item = entrance.read(json.dumps(raw))
    return item, entrance.accepts(item)


def message_of(track: Track, decision: Decision, uuid: str = UUID) -> Item:
    outbound = track.outbounds[decision.outbound]
    return message(outbound, decision.item, uuid=uuid, counters=decision.counters, submit_time=NOW)


def known(decision: Decision) -> KnownItem:
    return KnownItem(
        UUID, TaskState.DISPATCHED, decision.outbound, decision.counters, decision.item
    )


def first(track: Track) -> Decision:
    item, accepted = enter(track, "submitted", POSTED)
    assert accepted
    return track.life().decide(item, None)


@pytest.mark.covers("S2.1", "S2.3", "S2.6", "S2.28", "S2.29", "S2.30")
def test_the_task_of_the_seed_becomes_the_message_of_the_document(track: Track) -> None:
    decision = first(track)
    assert decision.action is Action.DISPATCH
    made = message_of(track, decision)
    assert made == SENT
    assert list(made) == list(SENT)


@pytest.mark.covers("S2.5", "S2.35")
def test_its_log_settles_it_though_the_selector_does_not_take_it(track: Track) -> None:
    sent = first(track)
    result, accepted = enter(track, "spider_log", LOG)
    assert not accepted
    decision = track.life().decide(result, known(sent))
    assert (decision.action, decision.reason) == (Action.DISPATCH, Reason.RETRY)
    again = message_of(track, decision)
    assert again == SENT | {"retry_times": 1, "group_retry_times": 1}


@pytest.mark.covers("S2.27", "S2.31", "S2.37")
def test_a_state_leads_to_the_failback_with_a_wrapped_message(track: Track) -> None:
    result, _ = enter(track, "spider_log", LOG | {"task_result": 4003})
    decision = track.life().decide(result, known(first(track)))
    assert decision.reason is Reason.FAILBACK
    made = message_of(track, decision)
    assert made == WRAPPED
    assert list(made["task_params"]) == list(WRAPPED["task_params"])


@pytest.mark.covers("S2.12", "S2.34")
def test_a_terminal_code_ends_it(track: Track) -> None:
    result, _ = enter(track, "spider_log", LOG | {"task_result": 1000})
    decision = track.life().decide(result, known(first(track)))
    assert (decision.action, decision.state) == (Action.END, TaskState.SUCCEEDED)


@pytest.mark.covers("S2.4")
def test_a_log_becomes_a_new_item(track: Track) -> None:
    item, accepted = enter(track, "found_companies", FOUND)
    assert accepted
    assert "task_uuid" not in item
    decision = track.life().decide(item, None)
    assert decision.is_new
    assert decision.outbound == "details"
    made = message_of(track, decision, "019aa64f-9000-7000-8000-000000000002")
    assert made["detail_url"] == FOUND["detail_url"]
    assert made["routed_count"] == 2
    assert made["retry_times"] == made["group_retry_times"] == 0


def test_every_key_of_the_router_is_in_the_table() -> None:
    assert re.findall(r"^\| `(\w+)` \|", SECTION, re.MULTILINE) == [*BUILT_IN]
