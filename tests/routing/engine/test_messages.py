"""The exact message that an outbound sends."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.routing.engine.items import Item, check_item, read_item, write_item
from apps.routing.engine.messages import (
    BUILT_IN,
    Counters,
    accepted,
    after_result,
    is_rt,
    message,
    priority,
    problems,
    value_of,
)
from apps.routing.engine.rules import Outbound

# The seed's own outbound and item.
CAPTCHA = Outbound(
    name="zongju_captcha_ts3",
    cls="redis_queue.RedisListOutbound",
    task_params=("company_name", "credit_no", "search_key", "province", "data_type"),
    constants={"task_src": 3, "task_type": "破码"},
    retry_limits=5,
    place="main.yaml:12",
)
ITEM: Item = {
    "company_name": "宁乡县老粮仓镇楚江冻库",
    "credit_no": "92430124MA4MGMN16U",
    "search_key": "92430124MA4MGMN16U",
    "data_type": "change",
    "rt": True,
    "metadata": {"province": "HN"},
}
NOW = datetime(2021, 10, 22, 15, 12, 2, 145_000, tzinfo=timezone(timedelta(hours=8)))


def sent(outbound: Outbound = CAPTCHA, item: Item = ITEM) -> Item:
    """Return the message that is built for ``item``."""
    return message(outbound, item, uuid="0190-uuid", counters=Counters(2, 1, 3), submit_time=NOW)


BUILT: Item = {
    "outbound": "zongju_captcha_ts3",
    "routed_count": 2,
    "retry_times": 1,
    "submitter": "taskhub",
    "submit_time": "2021-10-22T07:12:02.145+00:00",
    "retry_limits": 5,
    "rt": True,
    "priority": 2000,
    "task_uuid": "0190-uuid",
    "group_retry_times": 3,
    "token_scope": "*",
}
PARAMS: Item = {
    "company_name": "宁乡县老粮仓镇楚江冻库",
    "credit_no": "92430124MA4MGMN16U",
    "search_key": "92430124MA4MGMN16U",
    "data_type": "change",
}
CONSTANTS: Item = {"task_src": 3, "task_type": "破码"}


@pytest.mark.covers("S2.26", "S2.28", "S2.30")
def test_a_message_has_the_named_keys_the_constants_and_those_of_the_hub() -> None:
    # The province is inside the metadata, and only the top level is looked at.
    assert sent() == PARAMS | CONSTANTS | BUILT
    assert list(sent())[-len(BUILT_IN) :] == list(BUILT_IN)
    assert sent(item=ITEM | {"province": "GD"})["province"] == "GD"


@pytest.mark.covers("S2.27")
def test_a_wrapped_message_has_one_key() -> None:
    wrapped = sent(replace(CAPTCHA, task_params_wrapped=True))
    assert wrapped == {"task_params": sent()}


def test_without_a_list_all_is_taken_but_the_last_result() -> None:
    everything = replace(CAPTCHA, task_params=None)
    item = ITEM | {"task_result": 1001, "outbound": "another", "task_uuid": "old"}
    assert sent(everything, item) == ITEM | CONSTANTS | BUILT


def test_the_parameters_of_an_earlier_attempt_are_not_sent_on() -> None:
    everything = replace(CAPTCHA, task_params=None)
    log = {"task_result": 2001, "http_code": 500, "task_params": sent(everything)}
    after = after_result(ITEM, log, uuid="0190-uuid", outbound="o", counters=Counters(2, 1, 3))
    again = message(
        everything, after, uuid="0190-uuid", counters=Counters(2, 2, 4), submit_time=NOW
    )
    assert again == ITEM | {"http_code": 500} | CONSTANTS | BUILT | {
        "retry_times": 2,
        "group_retry_times": 4,
    }
    # A spider that logs ``task_params`` where there is one, and else all it was given.
    assert value_of({"task_params": again.get("task_params", again)}, "group_retry_times") == 4
    own: Item = {"task_params": {"province": "GD"}}
    assert sent(everything, own)["task_params"] == {"province": "GD"}


@pytest.mark.covers("S2.28")
def test_no_item_and_no_constant_can_say_what_the_hub_says() -> None:
    forged: Item = dict.fromkeys(BUILT_IN, "forged")
    outbound = replace(CAPTCHA, task_params=tuple(BUILT_IN), constants=forged)
    assert sent(outbound, forged) == BUILT | {"rt": False, "priority": 1000}


def test_the_item_and_the_outbound_stay_as_they_are() -> None:
    item, constants = dict(ITEM), {"task_src": 3}
    outbound = replace(CAPTCHA, task_params=None, constants=constants)
    sent(outbound, item)["new"] = 1
    assert item == ITEM
    assert constants == {"task_src": 3}


@pytest.mark.covers("S2.29")
@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({}, 1000),
        ({"rt": True}, 2000),
        ({"rt": "true"}, 2000),
        ({"rt": 1}, 2000),
        ({"rt": "1"}, 2000),
        ({"rt": False}, 1000),
        ({"rt": "false"}, 1000),
        ({"rt": None}, 1000),
        ({"rt": [1]}, 1000),
        ({"rt": 1.5}, 1000),
        ({"priority": 7}, 7),
        ({"priority": 0, "rt": True}, 0),
        ({"priority": -5}, -5),
        ({"priority": "7"}, 1000),
        ({"priority": True}, 1000),
        ({"priority": 2**60}, 1000),
        ({"priority": None, "rt": True}, 2000),
    ],
    ids=repr,
)
def test_priorities(item: Item, expected: int) -> None:
    assert priority(CAPTCHA, item) == expected
    assert sent(item=item)["priority"] == expected
    assert sent(item=item)["rt"] is is_rt(item)


def test_what_the_hub_said_is_read_from_either_level() -> None:
    for wrapped in (False, True):
        back = sent(replace(CAPTCHA, task_params_wrapped=wrapped))
        log: Item = {"task_result": 1001, "task_params": back.get("task_params", back)}
        for item in (log, back | log):
            assert value_of(item, "task_uuid") == "0190-uuid"
            assert value_of(item, "group_retry_times") == 3
    assert value_of({"task_uuid": None, "task_params": {"task_uuid": "b"}}, "task_uuid") == "b"
    assert value_of({"task_uuid": "a", "task_params": {"task_uuid": "b"}}, "task_uuid") == "a"
    assert value_of({"task_params": "text"}, "task_uuid") is None
    assert value_of({}, "task_uuid") is None


HUB: dict[str, Any] = {"uuid": "0190-uuid", "outbound": "o", "counters": Counters(2, 1, 3)}


def test_after_an_attempt_the_item_has_what_it_had_and_what_came_back() -> None:
    item = ITEM | {"detail_url": "u", "priority": 7, "submitter": "ops", "task_result": 9}
    forged = {"task_uuid": "x", "retry_times": 0, "outbound": "x", "rt": False, "priority": 1}
    result = sent(item=item) | {"task_result": 1001, "company_name": "renamed"} | forged
    after = after_result(item, result, **HUB)
    assert after == ITEM | CONSTANTS | {
        "detail_url": "u",
        "priority": 7,
        "task_result": 1001,
        "company_name": "renamed",
        "outbound": "o",
        "routed_count": 2,
        "retry_times": 1,
        "submitter": "taskhub",
        "task_uuid": "0190-uuid",
        "group_retry_times": 3,
    }
    assert item["submitter"] == "ops"
    assert priority(CAPTCHA, after_result(after, result, **HUB)) == 7


def test_a_priority_that_was_a_hubs_never_becomes_the_items_own() -> None:
    log = {"priority": 7, "submitter": "taskhub", "a": 1}
    assert accepted(log) == {"submitter": "taskhub", "a": 1}
    assert accepted({"priority": 7, "task_params": {"submitter": "taskhub"}}).keys() == {
        "task_params"
    }
    assert accepted({"priority": 7, "submitter": "ops"})["priority"] == 7
    assert accepted({"priority": 7})["priority"] == 7
    # One without it is not copied: another item would be written to the ledger once more.
    derived = {"submitter": "taskhub", "a": 1}
    assert accepted(derived) is derived
    after = after_result(accepted(log), {"task_result": 1001, "priority": 7}, **HUB)
    assert priority(CAPTCHA, after) == 1000


def test_reserved_names_are_a_warning() -> None:
    assert problems(CAPTCHA) == []
    found = problems(
        replace(
            CAPTCHA,
            task_params=("outbound", "task_src", "task_result"),
            constants={"task_src": 3, "rt": True},
        )
    )
    assert [(p.place, p.code, p.warning) for p in found] == [
        ("main.yaml:12", "reserved_name", True),
        ("main.yaml:12", "shadowed_name", True),
        ("main.yaml:12", "reserved_name", True),
        ("main.yaml:12", "reserved_name", True),
    ]
    assert "'outbound'" in found[0].text
    assert "'task_src'" in found[1].text


@pytest.mark.parametrize("wrong", [datetime(2021, 1, 1, tzinfo=UTC), float("nan"), (1,), {1: 2}])
def test_a_constant_that_json_cannot_say_is_refused(wrong: Any) -> None:
    (found,) = problems(replace(CAPTCHA, constants={"at": wrong}, place=""))
    assert (found.place, found.code, found.warning) == (
        "outbound zongju_captcha_ts3",
        "bad_constant",
        False,
    )


NAMES = st.sampled_from([*BUILT_IN, "task_params", "task_result", "a", "b"])
VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5)
ITEMS = st.dictionaries(NAMES, VALUES | st.dictionaries(NAMES, VALUES, max_size=3), max_size=8)


@pytest.mark.slow("1 s")
@settings(deadline=None)
@given(ITEMS, ITEMS, st.none() | st.lists(NAMES, max_size=6), st.booleans())
def test_every_message_can_be_read_back(
    item: Item, constants: Item, names: list[str] | None, wrapped: bool
) -> None:
    outbound = replace(
        CAPTCHA,
        task_params=None if names is None else tuple(names),
        constants=constants,
        task_params_wrapped=wrapped,
    )
    try:
        check_item(item)
        check_item(constants)
    except ValueError:
        return
    back = read_item(write_item(sent(outbound, item)))
    for name in BUILT_IN:
        if name not in ("rt", "priority"):
            assert value_of(back, name) == BUILT[name]
