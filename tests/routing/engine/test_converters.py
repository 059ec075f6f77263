"""Built-in converters."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.routing.engine.converters.base import ConvertError
from apps.routing.engine.converters.registry import BUILT_IN, build_chain
from apps.routing.engine.items import Item, check_item
from apps.routing.engine.rules import Convert

# The seed's own example of a spider's log, as filebeat and logstash hand it over.
LOG: Item = {
    "task_result": 1001,
    "spider_start_time": "2021-10-22 15:12:02.145",
    "type": "tax_arrears_announcement",
    "metadata": {"period": "2020年第2期"},
    "http_code": 200,
    "data_type": "task_distribution",
    "error_msg": "",
    "task_params": {"city": "guangxi", "operate": "all", "task_type": "task"},
}
SHIPPER: Item = {
    "@timestamp": "2021-10-22T07:12:03.000Z",
    "@version": "1",
    "host": {"name": "spider-7"},
    "path": "/var/log/spider.log",
    "tags": ["beats_input_codec_plain_applied"],
    "message": "{...}",
    "beat": {"hostname": "spider-7"},
    "input": {"type": "log"},
    "offset": 1732,
    "prospector": {"type": "log"},
    "log": {"file": {"path": "/var/log/spider.log"}},
    "agent": {"version": "7.17.0"},
    "ecs": {"version": "1.12.0"},
}


def converted(cls: str, item: Item, **init: Any) -> Item:
    """Return ``item`` after one converter, which must not modify its argument."""
    chain, problems = build_chain([Convert(cls, init)])
    assert problems == []
    before = copy.deepcopy(item)
    try:
        return chain.convert(item)
    finally:
        assert item == before


@pytest.mark.covers("S2.22")
def test_what_shippers_add_goes_and_what_the_spider_wrote_stays() -> None:
    assert converted("logstash.RemoveBuildinKeys", LOG | SHIPPER) == LOG


def test_keys_that_a_task_could_have_stay_when_no_shipper_was_at_work() -> None:
    item = {"host": "example.com", "path": "/a", "tags": ["x"], "message": "hello"}
    assert converted("logstash.RemoveBuildinKeys", item) == item


def test_what_goes_can_be_chosen() -> None:
    left = converted("logstash.RemoveBuildinKeys", LOG | SHIPPER, also=["type"], keep=["host"])
    assert left == {k: v for k, v in LOG.items() if k != "type"} | {"host": SHIPPER["host"]}


@pytest.mark.covers("S2.22", "S2.26")
@pytest.mark.parametrize(
    ("cls", "key"),
    [("common.ExtractTaskParams", "task_params"), ("common.ExtractMetadata", "metadata")],
)
class TestLifting:
    def test_what_is_inside_is_at_the_top_level_too(self, cls: str, key: str) -> None:
        assert converted(cls, LOG) == LOG | LOG[key]
        without = {name: value for name, value in LOG.items() if name != key}
        assert converted(cls, LOG, keep_dict=False) == without | LOG[key]

    def test_the_json_text_of_an_object_will_do(self, cls: str, key: str) -> None:
        text = json.dumps(LOG[key])
        assert converted(cls, LOG | {key: text}) == LOG | LOG[key]

    def test_what_the_task_was_given_replaces_what_the_log_says(self, cls: str, key: str) -> None:
        item = {"data_type": "task_distribution", key: {"data_type": "change"}}
        assert converted(cls, item)["data_type"] == "change"
        assert converted(cls, item, existing="keep")["data_type"] == "task_distribution"

    def test_how_the_attempt_ended_is_never_replaced(self, cls: str, key: str) -> None:
        item = {"task_result": 1001, key: {"task_result": 1000}}
        assert converted(cls, item)["task_result"] == 1001

    def test_a_task_that_goes_round_does_not_grow(self, cls: str, key: str) -> None:
        item = {"a": 1, key: {"b": 2}}
        for _ in range(40):
            item = converted(cls, {"task_result": 1, key: item})
        assert item == {"task_result": 1, "a": 1, key: {"b": 2}}

    @pytest.mark.parametrize("nothing", [None, "", {}, "{}"])
    def test_nothing_to_lift_is_no_fault(self, cls: str, key: str, nothing: Any) -> None:
        item = {"a": 1, key: nothing}
        assert converted(cls, item).keys() == item.keys()
        assert converted(cls, {"a": 1}) == {"a": 1}

    @pytest.mark.parametrize(
        ("wrong", "code"),
        [
            ([1], "not_a_dict"),
            (7, "not_a_dict"),
            ("[1]", "not_a_dict"),
            ("{", "not_json"),
            ('{"a": NaN}', "not_json"),
            ('{"a": 1, "a": 1}', "not_json"),
            ("[" * 100_000, "not_json"),
            ('{"a": ' + "[" * 40 + "]" * 40 + "}", "bad_result"),
        ],
        ids=lambda value: repr(value)[:20],
    )
    def test_anything_else_refuses_the_item(
        self, cls: str, key: str, wrong: Any, code: str
    ) -> None:
        with pytest.raises(ConvertError) as caught:
            converted(cls, {key: wrong})
        assert (caught.value.code, caught.value.step, caught.value.cls) == (code, 0, cls)


def test_rename() -> None:
    assert converted("common.Rename", {"a": 1, "b": 2}, keys={"a": "b", "b": "a"}) == {
        "a": 2,
        "b": 1,
    }
    assert converted("common.Rename", {"a": 1, "b": 2}, keys={"a": "b", "x": "y"}) == {"b": 1}
    assert converted("common.Rename", {"a": 1, "b": 2}, keys={"a": "b"}, existing="keep") == {
        "b": 2
    }


def test_copy_set_and_delete() -> None:
    item = {"a": 1, "b": None}
    assert converted("common.Copy", item, keys={"a": "b", "x": "y"}) == {"a": 1, "b": 1}
    assert converted("common.Copy", item, keys={"a": "b"}, existing="keep") == item
    assert converted("common.Set", item, values={"a": 2, "c": [3]}) == {"a": 2, "b": None, "c": [3]}
    assert converted("common.Set", item, values={"a": 2, "b": 3}, existing="keep") == {
        "a": 1,
        "b": 3,
    }
    assert converted("common.Delete", item, keys=["a", "x"]) == {"b": None}


def test_json_in_texts() -> None:
    item = {"a": '[1, {"b": null}]', "n": 7, "e": " ", "w": "no"}
    assert converted("common.ParseJson", item, keys=["a", "n", "e", "x"]) == item | {
        "a": [1, {"b": None}]
    }
    assert converted("common.ParseJson", item, keys=["w"], wrong="leave") == item
    with pytest.raises(ConvertError) as caught:
        converted("common.ParseJson", item, keys=["w"])
    assert caught.value.code == "not_json"
    assert "w holds a text" in caught.value.text


@pytest.mark.parametrize(
    ("value", "init", "time"),
    [
        ("2021-10-22 15:12:02.145", {}, "2021-10-22T15:12:02.145+00:00"),
        ("2021-10-22 15:12:02", {"zone": "Asia/Shanghai"}, "2021-10-22T07:12:02+00:00"),
        ("2021-10-22T15:12:02+08:00", {"zone": "UTC"}, "2021-10-22T07:12:02+00:00"),
        ("2021-10-22", {}, "2021-10-22T00:00:00+00:00"),
        ("2021.10.22", {"formats": ["%Y/%m/%d", "%Y.%m.%d"]}, "2021-10-22T00:00:00+00:00"),
        ("2021年10月22日", {"formats": ["%Y年%m月%d日"]}, "2021-10-22T00:00:00+00:00"),
        ("22/10/2021 +0800", {"formats": ["%d/%m/%Y %z"]}, "2021-10-21T16:00:00+00:00"),
        (1634886722, {}, "2021-10-22T07:12:02+00:00"),
        (1634886722145, {}, "2021-10-22T07:12:02.145+00:00"),
        (1634886722.5, {"to": "seconds"}, 1634886722.5),
        ("2021-10-22", {"to": "seconds"}, 1634860800),
        ("2021-10-22", {"to": "milliseconds"}, 1634860800000),
        ("", {}, ""),
        (None, {}, None),
    ],
)
def test_times_of_many_shapes_become_one(value: Any, init: dict[str, Any], time: Any) -> None:
    assert converted("common.ParseTime", {"at": value}, keys=["at", "x"], **init) == {"at": time}


@pytest.mark.parametrize(
    "value", ["soon", "2021-13-01", True, [], {}, 10**18, -(10**18), "9" * 200, "9999-12-31T23-23"]
)
def test_what_is_no_time_refuses_the_item_or_stays(value: Any) -> None:
    with pytest.raises(ConvertError) as caught:
        converted("common.ParseTime", {"at": value}, keys=["at"])
    assert caught.value.code == "no_time"
    assert converted("common.ParseTime", {"at": value}, keys=["at"], wrong="leave") == {"at": value}


KEYS = st.sampled_from(["task_params", "metadata", "task_result", "at", "a", "b", "@version"])
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
# The texts of JSON and of times among them.
TEXTS = st.sampled_from(["", "{}", '{"a": 1}', "[", "2021-10-22", "0001-01-01"])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | st.text(max_size=8),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(KEYS, part, max_size=3),
    max_leaves=8,
)
INITS: dict[str, dict[str, Any]] = {
    "common.Rename": {"keys": {"a": "b", "at": "a"}},
    "common.Copy": {"keys": {"a": "b", "at": "a"}},
    "common.Set": {"values": {"a": 1}},
    "common.Delete": {"keys": ["a"]},
    "common.ParseJson": {"keys": ["a", "task_params"]},
    "common.ParseTime": {"keys": ["a", "at"], "zone": "Asia/Shanghai"},
}


@pytest.mark.slow("2 s")
@settings(deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=6), st.permutations(sorted(BUILT_IN)))
def test_whatever_comes_is_converted_or_refused_and_never_changed(
    item: Item, order: list[str]
) -> None:
    chain, problems = build_chain([Convert(cls, INITS.get(cls, {})) for cls in order])
    assert problems == []
    before = copy.deepcopy(item)
    explained = chain.explain(item)
    if explained.item is not None:
        check_item(explained.item)
        assert explained.error is None
        assert repr(chain.convert(item)) == repr(explained.item)
    else:
        assert explained.error is not None
        assert explained.error.cls == order[len(explained.steps) - 1]
    assert repr(item) == repr(before)
