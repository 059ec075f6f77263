"""Parsing and validation of alert configurations, with the place of each error."""

from __future__ import annotations

from typing import Any

import pytest

from apps.alerts.engine.rule_parser import rule_of, rulebook
from apps.alerts.engine.rules import (
    Condition,
    Escalation,
    Recovery,
    Rulebook,
    find_builtin,
    matches,
    scoped_rules,
    worst,
)
from apps.alerts.engine.validation import problems, rule_problems

WHOLE: dict[str, Any] = {
    "rules": [
        {
            "name": "log queue too long",
            "series": "queue.ready",
            "label": "crawlyard.logs",
            "when": {"above": 10000, "for_seconds": 60},
            "recover": {"below": 8000},
            "severity": "critical",
            "tell": ["ops-mail"],
            "escalate": [{"after_seconds": 900, "tell": ["oncall-sms"], "severity": "critical"}],
            "repeat_seconds": 3600,
            "quiet": "night",
        },
        {
            "name": "failing",
            "event": "run.failed",
            "match": {"job": "news*"},
            "when": {"times": 3, "in_seconds": 300},
        },
        {"name": "agent silent", "enabled": False},
    ],
    "quiet_hours": {
        "night": {
            "from": "22:00",
            "to": "07:00",
            "days": ["mon", "fri"],
            "time_zone": "Asia/Shanghai",
            "except": ["critical"],
        }
    },
    "defaults": {"tell": ["everybody"], "repeat_seconds": 7200},
}


def places(data: Any) -> list[str]:
    return [each.place for each in problems(data)]


def rule(**fields: Any) -> list[str]:
    entry = {"name": "x", "series": "queue.ready", "when": {"above": 1}} | fields
    entry = {name: value for name, value in entry.items() if value is not None}
    return [each.place for each in rule_problems(entry, ["night"])]


@pytest.mark.covers("S4.27")
def test_a_whole_configuration_is_understood() -> None:
    assert places(WHOLE) == []
    book = rulebook(WHOLE, 7)
    first, second, third = book.rules
    assert first.when == Condition(above=10000, for_seconds=60)
    assert first.recover == Recovery(below=8000)
    assert first.escalate == (Escalation(900.0, ("oncall-sms",), "critical"),)
    assert second.matches_facts({"job": "news-uk"})
    assert not second.matches_facts({"job": "shop"})
    assert not second.matches_facts({})
    assert (third.enabled, third.event) == (False, "agent.silent")
    assert book.quiet_hours["night"].days == {0, 4}
    assert book.number == 7


def test_nothing_is_a_configuration_too() -> None:
    assert places({}) == []
    assert rulebook({}) == Rulebook()


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"name": None}, "rule.name"),
        ({"name": " x"}, "rule.name"),
        ({"name": "x" * 65}, "rule.name"),
        ({"name": "a\nb"}, "rule.name"),
        ({"series": None}, "rule"),
        ({"event": "run.failed"}, "rule"),
        ({"series": None, "event": "run.fialed"}, "rule.event"),
        ({"series": "Queue Ready"}, "rule.series"),
        ({"when": {}}, "rule.when"),
        ({"when": {"above": 1, "below": 2}}, "rule.when"),
        ({"when": {"above": "1"}}, "rule.when.above"),
        ({"when": {"above": float("nan")}}, "rule.when.above"),
        ({"when": {"above": True}}, "rule.when.above"),
        ({"when": {"above": 1, "abvoe": 1}}, "rule.when.abvoe"),
        ({"when": {"above": 1, "for_seconds": -1}}, "rule.when.for_seconds"),
        ({"when": {"above": 1, "in_seconds": 60}}, "rule.when.in_seconds"),
        ({"when": {"absent_seconds": 5}}, "rule.when.absent_seconds"),
        ({"when": {"rises_by": 5}}, "rule.when.in_seconds"),
        ({"when": {"rises_by": 0, "in_seconds": 60}}, "rule.when.rises_by"),
        ({"when": {"falls_by": 1, "in_seconds": 60, "for_seconds": 1}}, "rule.when.for_seconds"),
        ({"recover": {"below": 2}}, "rule.recover.below"),
        ({"recover": {"above": 2}}, "rule.recover.above"),
        ({"recover": {"quiet_seconds": 60}}, "rule.recover.quiet_seconds"),
        ({"severity": "bad"}, "rule.severity"),
        ({"tell": "ops"}, "rule.tell"),
        ({"tell": ["Ops!"]}, "rule.tell[0]"),
        ({"match": {"job": "x"}}, "rule.match"),
        ({"escalate": [{"tell": ["a"]}]}, "rule.escalate[0].after_seconds"),
        (
            {"escalate": [{"after_seconds": 9}, {"after_seconds": 9}]},
            "rule.escalate[1].after_seconds",
        ),
        ({"repeat_seconds": 1}, "rule.repeat_seconds"),
        ({"quiet": "day"}, "rule.quiet"),
        ({"enabled": "yes"}, "rule.enabled"),
        ({"surprise": 1}, "rule.surprise"),
    ],
)
def test_what_is_wrong_has_its_place(fields: dict[str, Any], place: str) -> None:
    assert rule(**fields) == [place]


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ({"name": "x", "event": "run.failed", "label": "a"}, "rule.label"),
        ({"name": "x", "event": "run.failed", "match": {"jbo": "a"}}, "rule.match.jbo"),
        ({"name": "x", "event": "run.failed", "when": {"times": 3}}, "rule.when.in_seconds"),
        ({"name": "x", "event": "run.failed", "when": {"times": 0}}, "rule.when.times"),
        ({"name": "x", "event": "run.failed", "when": {"for_seconds": 3}}, "rule.when.for_seconds"),
        ({"name": "x", "event": "agent.silent", "when": {"times": 3}}, "rule.when.times"),
        ("x", "rule"),
    ],
)
def test_events_and_conditions_take_other_fields(entry: Any, place: str) -> None:
    assert [each.place for each in rule_problems(entry)] == [place]


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ({"rules": {}}, "rules"),
        ({"rulse": []}, "rulse"),
        ({"rules": [{"name": "a", "series": "x", "when": {"above": 1}}] * 2}, "rules[1].name"),
        ({"quiet_hours": {"n": {"from": "22", "to": "07:00"}}}, "quiet_hours.n.from"),
        ({"quiet_hours": {"n": {"from": "22:00", "to": "24:00"}}}, "quiet_hours.n.to"),
        (
            {"quiet_hours": {"n": {"from": "1:00", "to": "2:00", "days": ["x"]}}},
            "quiet_hours.n.days",
        ),
        (
            {"quiet_hours": {"n": {"from": "1:00", "to": "2:00", "time_zone": "Mars"}}},
            "quiet_hours.n.time_zone",
        ),
        (
            {"quiet_hours": {"n": {"from": "1:00", "to": "2:00", "except": ["x"]}}},
            "quiet_hours.n.except",
        ),
        ({"defaults": {"quiet": "n"}}, "defaults.quiet"),
        ({"defaults": []}, "defaults"),
        ({"defaults": {"tell": ["A"]}}, "defaults.tell[0]"),
        ({"rules": [{"name": "a"}] * 501}, "rules"),
    ],
)
def test_the_rest_has_its_place_too(data: Any, place: str) -> None:
    assert places(data) == [place]


def test_a_slip_of_the_pen_is_named() -> None:
    (problem,) = rule_problems({"name": "x", "event": "run.fialed"})
    assert problem.text == "unknown event 'run.fialed'; did you mean run.failed?"


def test_a_built_in_rule_is_changed_by_its_name() -> None:
    own = find_builtin("agent silent")
    assert own is not None
    changed = rule_of({"name": "agent silent", "tell": ["ops"], "severity": "critical"})
    assert (changed.event, changed.when) == (own.event, own.when)
    assert (changed.tell, changed.severity, changed.builtin) == (("ops",), "critical", False)


def test_a_projects_rule_goes_before_the_platforms_of_the_same_name() -> None:
    entry = {"name": "depth", "series": "queue.ready", "when": {"above": 5}}
    platform = rulebook({"rules": [entry, {"name": "agent silent", "enabled": False}]})
    projects = {
        7: rulebook({"rules": [entry | {"when": {"above": 9}}]}),
        8: rulebook({"rules": [{"name": "depth", "enabled": False}]}),
    }
    assert places({"rules": [{"name": "depth", "enabled": False}]}) == []
    found = scoped_rules(platform, projects)
    mine = [each for each in found if each.rule.name == "depth"]
    assert [(each.project, each.rule.when.above) for each in mine] == [(None, 5), (7, 9)]
    wide, own = mine
    assert wide.holds_for(None)
    assert wide.holds_for(9)
    assert not wide.holds_for(7)
    assert not wide.holds_for(8)
    assert own.holds_for(7)
    assert not own.holds_for(None)
    names = [each.rule.name for each in found]
    assert "agent silent" not in names
    assert "daemon silent" in names


def test_defaults_fill_in_also_for_built_in_rules() -> None:
    book = rulebook({"defaults": {"tell": ["ops"], "repeat_seconds": 600}})
    found = scoped_rules(book, {})
    assert {each.rule.tell for each in found} == {("ops",)}
    assert {each.rule.repeat_seconds for each in found} == {600}


def test_patterns_know_stars_and_question_marks_alone() -> None:
    assert matches("run.*", "run.7")
    assert matches("?[1]", "a[1]")
    assert not matches("a[1]", "a1")
    assert not matches("a", "ab")
    assert matches("*", "")
    assert worst(["info", "critical", "warning"]) == "critical"


def test_a_name_without_a_value_says_nothing() -> None:
    empty = dict.fromkeys(("recover", "tell", "escalate", "event", "quiet"))
    step = {"after_seconds": 60, "tell": None}
    data = {
        "rules": [
            {"name": "a", "series": "queue.ready", "when": {"above": 1}} | empty,
            {"name": "b", "series": "queue.ready", "when": {"above": 1}, "escalate": [step]},
        ],
        "defaults": {"tell": None},
        "quiet_hours": None,
    }
    assert list(problems(data)) == []
    one, two = rulebook(data).rules
    assert (one.recover, one.tell, one.escalate, one.event) == (Recovery(), (), (), "")
    assert two.escalate[0].tell == ()
