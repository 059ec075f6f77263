"""Differences between two rule sets, as text and as data."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.routing.engine.files.data import to_data
from apps.routing.engine.files.diff import Kind, diff_rules, public_data
from apps.routing.engine.rules import Convert, Failure, Inbound, Outbound, RuleSet, Server
from tests.routing.engine.files.rule_sets import rule_sets

LIST = "redis_queue.RedisListOutbound"


def outbounds(names: str) -> RuleSet:
    made = tuple(Outbound(name=name, cls=LIST) for name in names)
    return RuleSet(project="p", outbounds=made)


def told(old: RuleSet, new: RuleSet) -> list[str]:
    return [str(change) for change in diff_rules(old, new)]


def test_equal_sets_do_not_differ_wherever_they_were_read_from() -> None:
    one = Inbound(name="a", cls="c", convert=(Convert("x", place="f:1"),), place="f:1")
    other = replace(one, convert=(Convert("x", place="g:5"),), place="g:3")
    assert diff_rules(RuleSet("p", inbounds=(one,)), RuleSet("p", inbounds=(other,))) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ab", "abc", ["outbound c added at place 3"]),
        ("abc", "ac", ["outbound b removed"]),
        ("abc", "bca", ["outbound a moved from place 1 to 3"]),
        ("abcd", "dabc", ["outbound d moved from place 4 to 1"]),
        ("abcd", "xbcd", ["outbound a removed", "outbound x added at place 1"]),
        ("ab", "xab", ["outbound x added at place 1"]),
        ("", "", []),
    ],
)
def test_only_what_moved_among_the_others_has_moved(old: str, new: str, said: list[str]) -> None:
    assert told(outbounds(old), outbounds(new)) == said


def test_changed_fields_are_told_with_both_values() -> None:
    old = Outbound(
        name="a",
        cls=LIST,
        init={"url": "redis://u:p/w@r/0", "key": "k"},
        selector=("x == 1",),
        constants={"task_type": "找新", "n": 1},
    )
    new = replace(
        old,
        init={"url": "redis://u:other@r/1", "key": "k", "deep": {"password": "s3cret", "b": 1}},
        selector=("x == 1", "y"),
        constants={"task_type": "破码", "n": True},
        disable=True,
        task_params=("a",),
        token_scope="province",
    )
    changes = diff_rules(RuleSet("p", outbounds=(old,)), RuleSet("p", outbounds=(new,)))
    said = [str(change) for change in changes]
    assert said == [
        "outbound a disabled",
        'outbound a: selector: ["x == 1"] -> ["x == 1", "y"]',
        'outbound a: token_scope: "*" -> "province"',
        'outbound a: task_params: none -> ["a"]',
        'outbound a: init.url: "redis://u:****@r/0" -> "redis://u:****@r/1"',
        'outbound a: init.deep: none -> {"password": "****", "b": 1}',
        'outbound a: constants.task_type: "找新" -> "破码"',
        "outbound a: constants.n: 1 -> true",
    ]
    assert changes[0].kind is Kind.DISABLED
    page = json.loads(json.dumps([change.to_json() for change in changes]))
    assert page[2] == {
        "kind": "changed",
        "of": "outbound",
        "name": "a",
        "field": "token_scope",
        "old": "*",
        "new": "province",
        "text": said[2],
    }


@pytest.mark.parametrize(
    "init",
    [
        {"headers": {"X-Api-Key": "hush"}},
        {"headers": {"X-Auth": "hush", "Cookie": "sid=hush"}},
        {"headers": {"X-Signature": "hush"}},
        {"deep": {"api-key": "hush", "private_key": "hush", "Cookie": "hush"}},
        {"url": "https://robot.example/send?access_token=hush&to=all"},
        {"url": "redis://r/0?db=1&password=hush"},
        {"url": f"amqp://user:hush{'h' * 600}@r/"},
        {"servers": ["kafka://one:9092", "kafka://u:hush@two:9092"]},
    ],
)
def test_no_secret_is_shown_to_who_may_only_look(init: dict[str, Any]) -> None:
    old = Outbound(name="a", cls=LIST, init={"key": "list"})
    new = replace(old, init={"key": "list", **init})
    shown = public_data(to_data(RuleSet("p", outbounds=(new,))))
    assert "hush" not in json.dumps(shown)
    assert shown["outbound"][0]["init"]["key"] == "list"
    for one, other in ((old, new), (replace(old, init={}), new)):
        changes = diff_rules(RuleSet("p", outbounds=(one,)), RuleSet("p", outbounds=(other,)))
        assert "hush" not in "".join(map(str, changes))


def test_what_is_no_secret_is_shown() -> None:
    init = {"key": "list", "headers": {"Accept": "*/*"}, "url": "https://h/x?page=2&keys"}
    new = Outbound(name="a", cls=LIST, init=init)
    shown = public_data(to_data(RuleSet("p", outbounds=(new,))))
    assert shown["outbound"][0]["init"] == init


def test_the_sets_own_fields_and_inbounds() -> None:
    old = RuleSet("p", limits=5, inbounds=(Inbound(name="i", cls="c", disable=True, threads=2),))
    new = RuleSet(
        "q",
        terminal_codes=(1000,),
        server=Server("::1", 1),
        failure=Failure("/f"),
        logging={"a": 1},
        inbounds=(Inbound(name="i", cls="c", threads=4),),
    )
    assert told(old, new) == [
        'project: "p" -> "q"',
        'server: none -> {"bind": "::1", "port": 1}',
        "routing.limits: 5 -> -1",
        "routing.terminal_codes: [] -> [1000]",
        'failure: none -> {"path": "/f", "compress": false}',
        "logging.a: none -> 1",
        "inbound i enabled",
        "inbound i: threads: 2 -> 4",
    ]
    long = replace(old, project="x" * 500)
    assert len(told(old, long)[0]) < 300


NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True).map("".join)


@given(old=NAMES, new=NAMES)
def test_what_did_not_move_keeps_its_order(old: str, new: str) -> None:
    changes = diff_rules(outbounds(old), outbounds(new))
    by_kind = {kind: {c.name for c in changes if c.kind is kind} for kind in Kind}
    assert by_kind[Kind.ADDED] == {*new} - {*old}
    assert by_kind[Kind.REMOVED] == {*old} - {*new}
    stayed = [name for name in new if name in old and name not in by_kind[Kind.MOVED]]
    assert stayed == [name for name in old if name in stayed]
    common = [name for name in old if name in new]
    if common == [name for name in new if name in old]:
        assert by_kind[Kind.MOVED] == set()


@pytest.mark.slow("6 s")
@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(old=rule_sets(), new=rule_sets())
def test_sets_differ_when_there_is_a_difference(old: RuleSet, new: RuleSet) -> None:
    for one, other in ((old, new), (old, old)):
        changes = diff_rules(one, other)
        assert json.dumps([change.to_json() for change in changes])
        # Python takes 1 for true: sets may be equal to it, and still differ.
        assert changes or one == other
        assert all(len(str(change).splitlines()) == 1 for change in changes)
    assert diff_rules(old, old) == []
