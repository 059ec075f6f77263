"""The settings of bizzes: every flaw is found, each with its place."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.requeststore.engine.biz import Balance, Biz, BizSettings, Epoch
from apps.requeststore.engine.placement import Placement
from apps.requeststore.engine.validation import (
    DOWNLOADER_FIELDS,
    MAX_TTL_SECONDS,
    SettingsProblem,
    changed_epochs,
    read_settings,
)
from apps.requeststore.texts import FLAWS, told

DAY = 24 * 3600 * 1000


def flaws_of(**biz: Any) -> list[SettingsProblem]:
    return read_settings({"bizzes": {"news": biz}})[1]


def codes(found: list[SettingsProblem]) -> list[tuple[str, str]]:
    return [(flaw.place.removeprefix("bizzes.news."), flaw.code) for flaw in found]


@pytest.mark.covers("S4.9")
def test_all_that_a_biz_presets_is_read() -> None:
    biz = {
        "description": "every article",
        "database": "articles",
        "collection": "pages",
        "queue": "fast",
        "epochs": [
            {"nodes": ["default"]},
            {"since": 5, "splits": 16, "nodes": ["a", "b"], "balance": "consistent"},
        ],
        "ttl_seconds": 3600,
        "priority": 9,
        "failed_flag": 9,
        "flags": {"9": "failed", "7": "gone"},
        "fetch": {
            "through": "center",
            "policy": "chained",
            "agents": 3,
            "timeout_seconds": 5,
            "headers": {"Accept-Language": "zh"},
            "downloader": {"type": "impersonate", "obey_robots": False, "cookies": {"a": "1"}},
        },
        "records": {"to": "json_lines", "name": "news-1.0"},
        "rules": {"article": {"fields": {}}},
    }
    book, flaws = read_settings({"bizzes": {"news": biz}})
    assert flaws == []
    assert book is not None
    read = book.bizzes["news"]
    assert read.epochs[1] == Epoch(since=5, splits=16, nodes=["a", "b"], balance=Balance.CONSISTENT)
    assert read.fetch.timeout_seconds == 5.0
    assert isinstance(read.fetch.timeout_seconds, float)
    assert read.rules == biz["rules"]
    # Read in the same way as by whoever is in a hurry.
    assert book == msgspec.convert({"bizzes": {"news": biz}}, BizSettings)


def test_nothing_said_is_the_usual() -> None:
    assert read_settings({}) == (BizSettings(), [])
    assert read_settings({"bizzes": {"news": {}}}) == (BizSettings(bizzes={"news": Biz()}), [])


@pytest.mark.covers("S4.9")
@pytest.mark.parametrize(
    ("biz", "expected"),
    [
        ({"ttl": 5}, [("ttl", "unknown_field")]),
        ({"colection": "x"}, [("colection", "unknown_field_near")]),
        ({"enabled": 1}, [("enabled", "not_bool")]),
        ({"priority": "1"}, [("priority", "not_whole")]),
        ({"priority": True}, [("priority", "not_whole")]),
        ({"priority": 10}, [("priority", "not_within")]),
        ({"database": None}, [("database", "not_text")]),
        ({"database": "Ab"}, [("database", "bad_name")]),
        ({"collection": ""}, [("collection", "bad_name")]),
        ({"queue": "a.b"}, [("queue", "bad_name")]),
        ({"description": "x" * 501}, [("description", "too_long")]),
        ({"epochs": {}}, [("epochs", "not_list")]),
        ({"epochs": []}, [("epochs", "epochs_count")]),
        ({"epochs": [{}] * 101}, [("epochs", "epochs_count")]),
        ({"epochs": [3]}, [("epochs[0]", "not_mapping")]),
        ({"epochs": [{"since": 1}]}, [("epochs[0].since", "first_epoch")]),
        ({"epochs": [{}, {"since": 9}, {"since": 9}]}, [("epochs[2].since", "epochs_not_rising")]),
        ({"epochs": [{"splits": 0}]}, [("epochs[0].splits", "not_within")]),
        ({"epochs": [{"splits": 257}]}, [("epochs[0].splits", "not_within")]),
        ({"epochs": [{"splits": 1.5}]}, [("epochs[0].splits", "not_whole")]),
        ({"epochs": [{"nodes": []}]}, [("epochs[0].nodes", "nodes_count")]),
        ({"epochs": [{"nodes": "a"}]}, [("epochs[0].nodes", "not_list")]),
        ({"epochs": [{"nodes": ["A"]}]}, [("epochs[0].nodes[0]", "bad_name")]),
        ({"epochs": [{"nodes": [1]}]}, [("epochs[0].nodes[0]", "not_text")]),
        ({"epochs": [{"balance": "random"}]}, [("epochs[0].balance", "not_choice")]),
        ({"ttl_seconds": 59}, [("ttl_seconds", "not_within")]),
        ({"ttl_seconds": MAX_TTL_SECONDS + 1}, [("ttl_seconds", "not_within")]),
        # The books of a span must be closed before a store deletes it.
        ({"keep_seconds": 3599}, [("keep_seconds", "not_within")]),
        ({"take_seconds": 0}, [("take_seconds", "not_within")]),
        ({"max_tries": 0}, [("max_tries", "not_within")]),
        ({"retry_seconds": -1}, [("retry_seconds", "not_within")]),
        ({"flags": {"1": "x"}}, [("flags.1", "bad_flag")]),
        ({"flags": {"02": "x"}}, [("flags.02", "bad_flag")]),
        ({"flags": {"1000": "x"}}, [("flags.1000", "bad_flag")]),
        ({"flags": {"-1": "x"}}, [("flags.-1", "bad_flag")]),
        ({"flags": {"2": 5}}, [("flags.2", "not_text")]),
        ({"failed_flag": 1}, [("failed_flag", "unknown_flag")]),
        ({"failed_flag": 7}, [("failed_flag", "unknown_flag")]),
        ({"max_waiting": -1}, [("max_waiting", "not_within")]),
        ({"max_waiting": "many"}, [("max_waiting", "not_whole")]),
        ({"fetch": {"policy": "best"}}, [("fetch.policy", "not_choice")]),
        ({"fetch": {"through": "tor"}}, [("fetch.through", "not_choice")]),
        ({"fetch": {"concurrency": 0}}, [("fetch.concurrency", "not_within")]),
        ({"fetch": {"timeout_seconds": 0}}, [("fetch.timeout_seconds", "not_within")]),
        ({"fetch": {"headers": {"A B": "1"}}}, [("fetch.headers.A B", "bad_header")]),
        ({"fetch": {"headers": {"A": "1\r\nB: 2"}}}, [("fetch.headers.A", "bad_header")]),
        (
            {"fetch": {"downloader": {"concurrency": 3}}},
            [("fetch.downloader.concurrency", "unknown_field")],
        ),
        (
            {"fetch": {"downloader": {"allowed_networks": ["10.0.0.0/8"]}}},
            [("fetch.downloader.allowed_networks", "unknown_field")],
        ),
        (
            {"fetch": {"downloader": {"use_coockies": True}}},
            [("fetch.downloader.use_coockies", "unknown_field_near")],
        ),
        (
            {"fetch": {"downloader": {"max_redirects": "9"}}},
            [("fetch.downloader.max_redirects", "bad_downloader")],
        ),
        ({"records": {"to": "printer"}}, [("records.to", "not_choice")]),
        ({"records": {"name": "../x"}}, [("records.name", "bad_records_name")]),
        ({"rules": []}, [("rules", "not_mapping")]),
    ],
)
def test_each_flaw_has_its_place(biz: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    found = flaws_of(**biz)
    assert codes(found) == expected
    assert read_settings({"bizzes": {"news": biz}})[0] is None
    for flaw in found:
        assert not flaw.warning
        assert flaw.place in str(told(flaw))


@pytest.mark.parametrize(
    ("biz", "expected"),
    [
        ({"epochs": [{"nodes": ["a", "a"], "splits": 2}]}, [("epochs[0].nodes[1]", "node_twice")]),
        ({"epochs": [{"nodes": ["a", "b"]}]}, [("epochs[0].nodes", "idle_nodes")]),
        ({"finish_by_seconds": 700_000}, [("finish_by_seconds", "after_ttl")]),
        ({"take_seconds": 20}, [("take_seconds", "taken_too_short")]),
        ({"fetch": {"agents": 2}}, [("fetch.agents", "not_direct")]),
    ],
)
def test_what_is_odd_is_warned_of_and_saved(
    biz: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    book, found = read_settings({"bizzes": {"news": biz}})
    assert codes(found) == expected
    assert all(flaw.warning for flaw in found)
    assert book is not None
    assert all(told(flaw).warning for flaw in found)


def test_many_flaws_are_told_at_once() -> None:
    data = {
        "bizzes": {
            "news": {"epochs": [{"since": 3, "splits": 0}], "priority": 99},
            "Sports": {},
            "weather": 5,
        },
        "version": 1,
    }
    assert {(flaw.place, flaw.code) for flaw in read_settings(data)[1]} == {
        ("bizzes.news.epochs[0].since", "first_epoch"),
        ("bizzes.news.epochs[0].splits", "not_within"),
        ("bizzes.news.priority", "not_within"),
        ("bizzes.Sports", "bad_name"),
        ("bizzes.weather", "not_mapping"),
        ("version", "unknown_field"),
    }


def test_two_bizzes_share_neither_collections_nor_queues() -> None:
    data = {
        "bizzes": {
            "a": {},
            "b": {"database": "a"},
            "c": {"queue": "a"},
            "d": {"database": "a", "collection": "own"},
        }
    }
    assert [(flaw.place, flaw.code) for flaw in read_settings(data)[1]] == [
        ("bizzes.b.collection", "same_collection"),
        ("bizzes.c.queue", "same_queue"),
    ]
    many: dict[str, Any] = {"bizzes": {f"b{number}": {} for number in range(201)}}
    assert [(flaw.place, flaw.code) for flaw in read_settings(many)[1]] == [("bizzes", "too_many")]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2000) | st.floats(-9, 9) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*Biz.__struct_fields__, "since", "nodes", "7"]), inner)
    ),
    max_leaves=12,
)


@pytest.mark.slow("1 s")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PLAIN)
def test_whatever_is_given_is_read_or_refused_with_words(value: Any) -> None:
    book, flaws = read_settings({"bizzes": {"news": value}})
    assert (book is None) == any(not flaw.warning for flaw in flaws)
    for flaw in flaws:
        assert str(told(flaw))
    if book is not None:
        biz = book.bizzes["news"]
        assert Placement(prefix="c", project_id=1, name="news", biz=biz).places
        assert json.dumps(value)


def test_every_code_has_words_and_every_word_a_code() -> None:
    assert set(FLAWS) >= {"epoch_changed", "not_within", "bad_flag"}
    for code, text in FLAWS.items():
        assert text, code
    assert "type" in DOWNLOADER_FIELDS


@pytest.mark.covers("S4.14")
@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ([Epoch(splits=4), Epoch(since=9 * DAY, splits=8)], []),
        ([Epoch(splits=4), Epoch(since=9 * DAY, splits=8), Epoch(since=20 * DAY)], []),
        # Nobody has stored by the one that is still to come.
        ([Epoch(splits=4), Epoch(since=9 * DAY, splits=8), Epoch(since=12 * DAY)], []),
        ([Epoch(splits=5), Epoch(since=9 * DAY, splits=8)], [0]),
        ([Epoch(splits=4)], [1]),
        ([Epoch(splits=16)], [0, 1]),
    ],
)
def test_epochs_with_requests_that_change_are_told(new: list[Epoch], expected: list[int]) -> None:
    old = Biz(
        epochs=[Epoch(splits=4), Epoch(since=9 * DAY, splits=8), Epoch(since=11 * DAY, splits=2)]
    )
    assert list(changed_epochs(old, Biz(epochs=new), 10 * DAY)) == expected
    # Once the last request of the first epoch is deleted, it may go.
    assert 0 not in list(changed_epochs(old, Biz(epochs=new), 30 * DAY))
