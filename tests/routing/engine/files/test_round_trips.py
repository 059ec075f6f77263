"""Written rules are read back equal: as a file, as data, with placeholders."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.routing.engine.files.data import VERSION, from_data, to_data
from apps.routing.engine.files.placeholders import MOST_CHARACTERS, TextTooLong, escape, fill, names
from apps.routing.engine.files.reader import read_rules
from apps.routing.engine.files.writer import write_rules
from apps.routing.engine.rules import Convert, Inbound, Outbound, Problem, RuleSet
from tests.routing.engine.files.rule_sets import TEXTS, read, rule_sets

PROPERTY = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
VALUES = {"redis_url": "redis://r/0", "x": "{y}", "y": "{{x}}", "a": "}{"}
LIST = "redis_queue.RedisListOutbound"


def errors(problems: list[Problem]) -> list[Problem]:
    return [problem for problem in problems if not problem.warning]


@pytest.mark.slow("5 s")
@PROPERTY
@given(rules=rule_sets())
def test_a_file_gives_back_the_rule_set(rules: RuleSet) -> None:
    text = write_rules(rules)
    found, problems = read_rules(text.encode(), VALUES)
    assert errors(problems) == []
    assert found == rules
    assert write_rules(found) == text


@pytest.mark.slow("4 s")
@PROPERTY
@given(rules=rule_sets())
def test_a_file_keeps_placeholders_that_were_not_filled_in(rules: RuleSet) -> None:
    found, problems = read_rules(write_rules(rules, with_placeholders=True), None)
    assert errors(problems) == []
    assert found == rules


@pytest.mark.slow("4 s")
@PROPERTY
@given(rules=rule_sets())
def test_data_gives_back_the_rule_set(rules: RuleSet) -> None:
    stored = json.dumps(to_data(rules), allow_nan=False)
    found, problems = from_data(json.loads(stored))
    assert problems == [
        problem for problem in problems if problem.warning and problem.code != "unknown_key"
    ]
    assert found == rules


@PROPERTY
@given(text=TEXTS | st.text("{}ab1_ ", max_size=40), value=TEXTS)
def test_an_escaped_text_is_itself_whatever_the_values_are(text: str, value: str) -> None:
    values = dict.fromkeys(["a", "b", "ab", "x", "_", "redis_url"], value)
    assert fill(escape(text), values) == (text, [])
    assert names(escape(text)) == []


@pytest.mark.covers("S2.14")
@pytest.mark.parametrize(
    ("written", "filled"),
    [
        ("{redis_url}", "redis://r/0"),
        ("{redis_url}/{redis_url}", "redis://r/0/redis://r/0"),
        ("{x}", "{y}"),
        ("{{x}}", "{x}"),
        ("{{{x}}}", "{{x}}"),
        ("{{x}", "{{y}"),
        (r"^\d{3}[a-z]{2,}$", r"^\d{3}[a-z]{2,}$"),
        ('{"a": 1, "b": {}}', '{"a": 1, "b": {}}'),
        ("{ x }", "{ x }"),
        ("{x-y}{1x}{破}", "{x-y}{1x}{破}"),
    ],
)
def test_words_in_single_braces_are_filled_in_and_all_else_stays(written: str, filled: str) -> None:
    assert fill(written, VALUES) == (filled, [])


def test_filling_in_is_bounded() -> None:
    assert fill("{" * 200_000, VALUES) == ("{" * 200_000, [])
    assert fill("{aaa" * 50_000, VALUES)[1] == []
    with pytest.raises(TextTooLong):
        fill("{x}" * 10_000, {"x": "y" * MOST_CHARACTERS})


def test_placeholders_can_be_filled_in_later() -> None:
    text = (
        "project: p\noutbound:\n- {name: a, note: '{x}', selector: 'k == \"{x}\"', "
        f"class: {LIST}, init: {{url: '{{redis_url}}', key: '{{{{k}}}}', c: '{{x}}'}}}}\n"
    )
    kept, problems = read_rules(text, None)
    assert problems == []
    assert kept is not None
    assert kept.outbounds[0].init["url"] == "{redis_url}"
    filled, problems = from_data(to_data(kept), placeholders=VALUES)
    assert problems == []
    assert filled == read(text, VALUES)
    outbound = filled.outbounds[0]
    assert outbound.init == {"url": "redis://r/0", "key": "{k}"}
    assert (outbound.constants, outbound.note) == ({"c": "{y}"}, "{x}")
    assert outbound.selector == ('k == "{x}"',)
    assert outbound.place == "main.yaml:3"
    nothing, problems = from_data(to_data(kept), placeholders={"redis_uri": ""})
    assert nothing is None
    assert [(problem.place, problem.code) for problem in problems] == [
        ("outbound[0].init.url", "unknown_placeholder"),
        ("outbound[0].constants.c", "unknown_placeholder"),
    ]
    assert "is {redis_uri} meant?" in problems[0].text


# --- written for people ---------------------------------------------------------------------------


def test_only_what_is_unusual_is_written_in_the_order_of_the_seed() -> None:
    outbound = Outbound(
        name="a",
        cls=LIST,
        init={"url": "u", "key": "k"},
        selector=("x",),
        max_lag=5,
        task_params=("c",),
        task_params_wrapped=True,
        constants={"task_src": 3, "task_type": "破码", "code": "1000"},
        rt_priority=3000,
    )
    assert (
        write_rules(RuleSet(project="p", outbounds=(outbound,)))
        == """project: p

outbound:
- name: a
  selector:
  - x
  max_lag: 5
  class: redis_queue.RedisListOutbound
  init:
    url: u
    key: k
    task_params:
    - c
    task_params_wrapped: true
    task_src: 3
    task_type: 破码
    code: '1000'
    rt_priority: 3000
"""
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"constants": {"key": 1}},
        {"constants": {"max_lag": 1}},
        {"constants": {"selector": "x"}},
        {"init": {"url": "u", "other": 1}},
        {"init": {"priority": 1}},
        {"cls": "nobody.Knows", "constants": {"c": 1}},
    ],
    ids=str,
)
def test_what_init_cannot_mix_is_written_apart(changes: dict[str, Any]) -> None:
    outbound = replace(Outbound(name="a", cls=LIST, init={"url": "u", "key": "k"}), **changes)
    rules = RuleSet(project="p", outbounds=(outbound,))
    text = write_rules(rules)
    assert "  constants:" in text
    assert read_rules(text, {})[0] == rules


# --- versions of data -----------------------------------------------------------------------------


def test_data_of_a_newer_release_is_read_where_it_says_so() -> None:
    data = to_data(RuleSet(project="p", outbounds=(Outbound(name="a", cls=LIST),)))
    newer = data | {"version": VERSION + 1, "shade": "red"}
    newer["outbound"] = [data["outbound"][0] | {"colour": "blue"}]
    rules, problems = from_data(newer)
    assert rules == from_data(data)[0]
    assert [(problem.place, problem.code, problem.warning) for problem in problems] == [
        ("shade", "unknown_key", True),
        ("outbound[0].colour", "unknown_key", True),
    ]
    rules, problems = from_data(newer | {"needs": VERSION + 1})
    assert rules is None
    assert [problem.code for problem in problems] == ["newer_version"]
    rules, problems = from_data(newer | {"version": VERSION})
    assert rules is None
    assert {problem.code for problem in problems} == {"unknown_key"}


DEEP: list[Any] = []
for _ in range(5000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("data", "code", "place"),
    [
        (None, "bad_version", "version"),
        ([], "wrong_type", "rules"),
        ({}, "bad_version", "version"),
        ({"version": True, "needs": 1}, "bad_version", "version"),
        ({"version": 1, "needs": "1"}, "bad_version", "needs"),
        ({"version": 1, "needs": 1}, "missing", "rules"),
        ({"version": 1, "needs": 1, "project": "p", 5: 1}, "bad_key", "rules"),
        ({"version": 1, "needs": 1, "project": "p\x00"}, "bad_character", "project"),
        ({"version": 1, "needs": 1, "project": "\ud800"}, "bad_character", "project"),
        ({"version": 1, "needs": 1, "project": "p", "outbound": {}}, "wrong_type", "outbound"),
        ({"version": 1, "needs": 1, "project": "p", "logging": {"a": DEEP}}, "too_deep", "logging"),
        (
            {"version": 1, "needs": 1, "project": "p", "logging": {"a": float("nan")}},
            "out_of_range",
            "logging.a",
        ),
        (
            {"version": 1, "needs": 1, "project": "p", "logging": {"a": object()}},
            "wrong_type",
            "logging.a",
        ),
    ],
)
def test_data_that_is_no_rule_set_is_refused(data: object, code: str, place: str) -> None:
    rules, problems = from_data(data)
    assert rules is None
    assert problems[0].code == code
    assert problems[0].place.startswith(place)


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("field", ["init", "constants", "logging", "convert"])
def test_data_may_be_as_deep_as_a_file(field: str) -> None:
    def made(depth: int) -> RuleSet:
        part = {"x": nested(depth)}
        if field == "logging":
            return RuleSet("p", logging=part)
        if field == "convert":
            convert = (Convert("c", init=part),)
            return RuleSet("p", inbounds=(Inbound("a", "kafka.KafkaInbound", convert=convert),))
        return RuleSet("p", outbounds=(replace(Outbound("a", "x.Y"), **{field: part}),))

    accepted = [depth for depth in range(20, 35) if from_data(to_data(made(depth)))[0]]
    readable = [d for d in range(20, 35) if read_rules(write_rules(made(d)), {})[0] == made(d)]
    assert accepted == readable
    assert accepted
    assert len(accepted) < 15
