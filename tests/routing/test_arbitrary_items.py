"""Any message is routed or dead-lettered, and stays readable; none crashes a router."""

from __future__ import annotations

import json
import pickle
import uuid
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.projects.models import Project
from apps.routing.daemon.pipeline import dead_letter, item_of_malformed
from apps.routing.engine.converters.registry import build_chain
from apps.routing.engine.items import MAX_BYTES, MAX_DEPTH, Item, check_item, write_item
from apps.routing.engine.life import KnownItem, uuid_of
from apps.routing.engine.messages import Counters, after_result, message
from apps.routing.engine.outbounds.base import Outcome, encode
from apps.routing.engine.outcomes import Action, Decision, Reason, TaskState
from apps.routing.engine.rules import Convert, Inbound, Outbound, RuleSet
from apps.routing.engine.track import Malformed, Track, compile_track
from apps.routing.models import RoutedItem
from apps.routing.queries import LedgerEntry, find_by_value, find_items, read_entry
from apps.routing.services import Arrival, ItemMove, move_items, receive_items
from apps.routing.states import ItemState
from tests.access.factories import make_project
from tests.routing.factories import NOW

pytestmark = [pytest.mark.django_db, pytest.mark.covers("S2.2")]

CONVERTS = [
    Convert("logstash.RemoveBuildinKeys"),
    Convert("common.ExtractTaskParams"),
    Convert("common.ExtractMetadata"),
    Convert("common.Rename", {"keys": {"a": "b"}}),
    Convert("common.ParseJson", {"keys": ["payload"], "wrong": "leave"}),
]


def track() -> Track:
    """Rules that use many features."""
    return compile_track(
        RuleSet(
            "p",
            inbounds=(Inbound("in", "http.HttpInbound", convert=tuple(CONVERTS)),),
            outbounds=(
                Outbound(
                    "first",
                    "redis_queue.RedisListOutbound",
                    selector=(
                        "int(task_src) in [1, 2] and task_params['province'] == 'GD'",
                        "matches(b, '^x+$') or len(b) > 3 or lower(b) == 'y'",
                    ),
                    retry_limits=1,
                    task_params=("a", "b", "task_uuid", "priority"),
                ),
                Outbound(
                    "rest",
                    "redis_queue.RedisListOutbound",
                    selector=("True",),
                    task_params_wrapped=True,
                    constants={"x": 1},
                ),
            ),
            terminal_codes=(1000, "done"),
        )
    )


TRACK = track()


@pytest.fixture
def project() -> Project:
    return make_project(slug="p")


def go(project: Project, raw: bytes) -> LedgerEntry:
    """Process one message like a router, without queues; return the stored item."""
    try:
        item = TRACK.entrances["in"].read(raw)
    except Malformed as error:
        poison = error
    else:
        return route(project, item)
    assert poison.code
    assert str(poison)
    arrival = Arrival(project=project.pk, inbound="in", item=item_of_malformed(raw))
    (receipt,) = receive_items(arrivals=[arrival], now=NOW, lease_seconds=60)
    moved = move_items(
        moves=[dead_letter(receipt.entry, poison.code, str(poison), 1, NOW)], now=NOW
    )
    return moved.entries[receipt.entry.id]


def route(project: Project, item: Item) -> LedgerEntry:
    """Send an item, and apply its result."""
    assert TRACK.entrances["in"].accepts(item)
    find_items(project=project.pk, task_uuids=[each for each in [uuid_of(item)] if each])
    decision = TRACK.life().decide(item, None)
    if decision.reason is Reason.ROUTING_LIMITS:
        # Its counters say that it was routed too often.
        return ended(project, item, decision)
    assert decision.action is Action.DISPATCH
    assert decision.text
    arrival = Arrival(project=project.pk, inbound="in", item=decision.item)
    (receipt,) = receive_items(arrivals=[arrival], now=NOW, lease_seconds=60)
    outbound = TRACK.outbounds[decision.outbound]
    body = encode(
        message(
            outbound,
            decision.item,
            uuid=str(receipt.entry.task_uuid),
            counters=decision.counters,
            submit_time=NOW,
        )
    )
    assert not isinstance(body, Outcome)
    moved = move_items(
        moves=[
            ItemMove(
                entry=receipt.entry,
                to=ItemState.DISPATCHED,
                due_at=NOW + timedelta(hours=1),
                outbound=decision.outbound,
                item=decision.item,
                routed_count=decision.counters.routed_count,
                group_retry_times=decision.counters.group_retry_times,
                reason=decision.reason.value,
            )
        ],
        now=NOW,
    )
    sent = moved.entries[receipt.entry.id]
    return settled(sent, item)


def ended(project: Project, item: Item, decision: Decision) -> LedgerEntry:
    """End an item that is not sent."""
    assert (decision.action, decision.state) == (Action.END, TaskState.FAILED)
    arrival = Arrival(project=project.pk, inbound="in", item=item)
    (receipt,) = receive_items(arrivals=[arrival], now=NOW, lease_seconds=60)
    end = ItemMove(
        entry=receipt.entry, to=ItemState.FAILED, item=decision.item, reason=decision.reason.value
    )
    return move_items(moves=[end], now=NOW).entries[receipt.entry.id]


def settled(sent: LedgerEntry, item: Item) -> LedgerEntry:
    """Apply the item as its own result."""
    known = KnownItem(
        str(sent.task_uuid),
        TaskState.DISPATCHED,
        sent.outbound,
        Counters(sent.routed_count, sent.retry_times, sent.group_retry_times),
        sent.item,
    )
    for status in (item.get("task_result"), 1000, "failed", 1e300, [1]):
        decision = TRACK.life().decide({**item, "task_result": status}, known)
        assert decision.text
        assert TRACK.life().timed_out(known).text
    decision = TRACK.life().decide({**item, "task_result": 1000}, known)
    moved = move_items(
        moves=[ItemMove(entry=sent, to=ItemState.SUCCEEDED, item=decision.item, reason="terminal")],
        now=NOW,
    )
    return moved.entries[sent.id]


def check(project: Project, raw: bytes) -> str:
    """Check that the stored item can be read; return its final state."""
    entry = go(project, raw)
    row = RoutedItem.objects.get(pk=entry.id)
    found = read_entry(entry.id)
    assert found is not None
    assert isinstance(found.item, dict)
    assert len(row.steps) > 0
    return str(row.state)


def nested(opening: bytes, inside: bytes, closing: bytes, depth: int) -> bytes:
    return b'{"a": ' + opening * depth + inside + closing * depth + b"}"


ROUTED = {
    "nothing": b"{}",
    "blanks": b' \r\n{ "a" : 1 }\n',
    "deep": nested(b"[", b"1", b"]", MAX_DEPTH - 2),
    "numbers": b'{"a": 1e308, "b": -0.0, "c": 9223372036854775807, "d": 5e-324}',
    "wrong_types": b'{"task_uuid": {"a": 1}, "rt": [[]], "priority": "x", "task_result": {}}',
    "wrong_counters": json.dumps(
        {"retry_times": "١٢", "routed_count": -5, "group_retry_times": 1e40, "priority": 2**63 - 1}
    ).encode(),
    "huge_counters": b'{"retry_times": 9223372036854775807, "routed_count": "999999999999999999"}',
    "long_uuid": json.dumps({"task_uuid": "x" * 10_000, "task_result": 1}).encode(),
    "near_uuid": json.dumps({"task_uuid": "{" + str(uuid.UUID(int=1)) + "}"}).encode(),
    "odd_keys": json.dumps({"": 1, "__class__": 2, "a.b": 3, "\u2028": 4, "🐝" * 60: 5}).encode(),
    "escapes": b'{"a": "\\u0001\\u001f\\\\ \\ud83d\\ude00"}',
    "long_text": json.dumps({"a": "长" * 300_000}, ensure_ascii=False).encode(),
    "many_values": json.dumps({"a": [0] * 19_000}).encode(),
    "log": json.dumps({"task_params": {"task_params": {"task_params": {}}}}).encode(),
    "payload": json.dumps({"payload": "[" * 100_000}).encode(),
}
POISON = {
    "params_that_are_none": b'{"task_params": [1], "metadata": 7}',
    "empty": b"",
    "no_json": b"{'a': 1}",
    "list": b"[{}]",
    "text": b'"x"',
    "null": b"null",
    "nan": b'{"a": NaN}',
    "infinite": b'{"a": 1e400}',
    "digits": b'{"a": ' + b"9" * 100_000 + b"}",
    "twice": b'{"a": 1, "a": 2}',
    "twice_inside": b'{"a": {"b": 1, "\\u0062": 2}}',
    "character_0": b'{"a": "x\\u0000"}',
    "character_0_in_a_key": b'{"a\\u0000": 1}',
    "surrogate": b'{"a": "\\ud800"}',
    "surrogate_in_a_key": b'{"\\udfff": 1}',
    "surrogate_bytes": b'{"a": "\xed\xa0\x80"}',
    "latin": '{"a": "ä"}'.encode("latin-1"),
    "gbk": '{"a": "宁乡县"}'.encode("gbk"),
    "utf_16": '{"a": 1}'.encode("utf-16"),
    "deep_lists": nested(b"[", b"", b"]", 100_000),
    "deep_dicts": nested(b'{"a":', b"1", b"}", 100_000),
    "deep_unclosed": b"[" * 100_000,
    "too_deep": nested(b"[", b"1", b"]", MAX_DEPTH),
    "too_many": json.dumps({"a": [0] * 30_000}).encode(),
    "long_key": json.dumps({"k" * 1000: 1}).encode(),
    "pickle": pickle.dumps({"a": 1}),
    "bytes_of_noise": bytes(range(256)) * 100,
    "large": b'{"a": "' + b"x" * MAX_BYTES + b'"}',
    "large_noise": b"\xff" * MAX_BYTES,
    "large_control": b'{"a": "' + b"\x01" * (MAX_BYTES - 20) + b'"}',
    "larger": b"x" * (64 * 1024 * 1024),
}


@pytest.mark.parametrize("name", ROUTED)
def test_what_is_an_item_however_strange_is_routed(project: Project, name: str) -> None:
    assert check(project, ROUTED[name]) == ItemState.SUCCEEDED


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("name", POISON)
def test_what_is_none_is_kept_for_a_person_to_look_at(project: Project, name: str) -> None:
    assert check(project, POISON[name]) == ItemState.DEAD


def test_values_that_nobody_would_look_for_can_be_looked_for(project: Project) -> None:
    strange = ["", "x" * 5000, "\u2028", "🐝", "a\\b'\";--", "1e308", "9223372036854775807"]
    for value in strange:
        check(project, json.dumps({"a": value, "n": [value]}).encode())
    for value in [*strange, "\x00", "\ud800"]:
        find_by_value(RoutedItem.objects.all(), project=project.pk, value=value, limit=5)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=()), max_size=4), inner)
    ),
    max_leaves=10,
)
WORDS = (
    "task_params", "metadata", "task_uuid", "task_result", "retry_times", "priority", "rt", "a",
    "routed_count", "group_retry_times", "outbound", "submitter", "payload", "task_src", "b",
)  # fmt: skip
KNOWN = st.sampled_from(WORDS)


@pytest.mark.slow("3 s")
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(KNOWN, VALUES, max_size=6).map(
        lambda item: json.dumps(item).encode("ascii", "replace")
    )
    | st.dictionaries(KNOWN, VALUES, max_size=6).map(
        lambda item: json.dumps(item, ensure_ascii=False).encode("utf-8", "surrogatepass")
    )
    | st.binary(max_size=60)
)
def test_anything_at_all_has_its_end(project: Project, raw: bytes) -> None:
    assert check(project, raw) in (ItemState.SUCCEEDED, ItemState.FAILED, ItemState.DEAD)


def test_what_says_that_it_was_routed_too_often_ends(project: Project) -> None:
    assert check(project, b'{"routed_count": 100}') == ItemState.FAILED


def test_what_converters_have_made_larger_than_may_come_in_goes_on(project: Project) -> None:
    chain, _ = build_chain([Convert("common.Copy", {"keys": {"a": "b"}})])
    item = chain.convert({"a": "x" * 900_000})
    arrival = Arrival(project=project.pk, inbound="in", item=item)
    (receipt,) = receive_items(arrivals=[arrival], now=NOW, lease_seconds=60)
    found = read_entry(receipt.entry.id)
    assert found is not None
    assert found.item == item
    assert len(found.text) > MAX_BYTES


@pytest.mark.parametrize(
    "extra",
    [{"log": "y" * 600_000}, {"log": [0] * 15_000}, {"log": [[["deep"]]] * 100}],
    ids=["large", "many", "small"],
)
def test_an_item_does_not_grow_with_each_result(extra: Item) -> None:
    item: Item = {"a": "x" * 600_000, "n": [1] * 10_000}
    for turn in range(3):
        result = {**extra, f"log{turn}": extra["log"], "task_result": 1101}
        item = after_result(item, result, uuid="u", outbound="o", counters=Counters(1, turn, turn))
        assert item["task_result"] == 1101
        assert item["retry_times"] == turn
        assert item["a"] == "x" * 600_000
    assert ("log" in item) is (extra["log"] == [[["deep"]]] * 100)
    check_item(item)
    assert len(write_item(item)) <= MAX_BYTES
