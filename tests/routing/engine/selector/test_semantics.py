"""What selectors mean: missing keys, type errors, functions."""

from __future__ import annotations

from typing import Any

import pytest

from apps.routing.engine.selector import compile_rules, compile_selector
from apps.routing.engine.selector.values import MAX_COPIED, MAX_SEARCHED, Pattern, ValueTooLong

SEED_INBOUND = (
    "submitter == 'taskhub' and (company_name or credit_no or company_code)"
    " and int(task_src) in [1, 11, 5, 3, 22, 21, 7]"
)
SEED_OUTBOUND = (
    "task_src in [3] and not detail_url and data_type and task_parms['province'] == 'GD'"
)


@pytest.mark.covers("S2.3", "S2.18", "S2.19")
def test_selectors_of_the_seed_choose_as_it_says() -> None:
    inbound, outbound = compile_selector(SEED_INBOUND), compile_selector(SEED_OUTBOUND)
    item: dict[str, Any] = {"submitter": "taskhub", "credit_no": "92430124MA4MGMN16U"}
    assert inbound.matches(item | {"task_src": "11"})
    assert inbound.matches(item | {"task_src": 7})
    assert not inbound.matches(item | {"task_src": 2})
    assert not inbound.matches({"submitter": "taskhub", "company_name": "", "task_src": 1})
    # The keys are only named otherwise than the seed's typing error has it.
    task = {"task_src": 3, "data_type": "change", "task_params": {"province": "GD"}}
    assert not outbound.matches(task)
    assert outbound.matches(task | {"task_parms": {"province": "GD"}})
    assert not outbound.matches(
        task | {"task_parms": {"province": "GD"}, "detail_url": "https://example.com"}
    )


FITS, NOT, ERROR = "fits", "does not fit", "type error"


def meaning(text: str, item: dict[str, Any]) -> str:
    """Return the result for an item; function, rules and explanation must agree."""
    rules = compile_rules([("rule", [text])])
    selector = compile_selector(text)
    fits = rules.first(item) == 0
    explained = selector.explain(item)
    assert selector.matches(item) is fits
    assert explained.matches is fits
    assert bool(explained.error) is bool(rules.errors[0])
    if rules.errors[0]:
        assert not fits
        return ERROR
    return FITS if fits else NOT


@pytest.mark.slow("1 s")
@pytest.mark.covers("S2.20")
@pytest.mark.parametrize(
    ("text", "item", "expected"),
    [
        # A name that is not there is None.
        ("x", {}, NOT),
        ("not x", {}, FITS),
        ("x == None", {}, FITS),
        ("x == 'GD'", {}, NOT),
        ("x != 'GD'", {}, FITS),
        ("x in ['GD', None]", {}, FITS),
        ("x or y", {"y": 1}, FITS),
        ("x not in ['GD']", {}, FITS),
        # So is a key that is not there, however deep.
        ("p['x']", {}, NOT),
        ("not p['x']", {}, FITS),
        ("not p['x']", {"p": {}}, FITS),
        ("not p['x']", {"p": {"x": 1}}, NOT),
        ("p['x']['y'] == 1", {"p": {}}, NOT),
        ("p['x']['y'] == None", {"p": None}, FITS),
        ("p['x']['y'] == 1", {"p": {"x": {"y": True}}}, FITS),
        ("p[0] == 'a' and p[-1] == 'b'", {"p": ["a", "b"]}, FITS),
        ("p[2] == None", {"p": ["a", "b"]}, FITS),
        ("p[0] == '广'", {"p": "广东"}, FITS),
        ("p[1] == None", {"p": {"1": 2}}, FITS),
        # A type error ends the whole selector.
        ("x < 3", {}, ERROR),
        ("not x < 3", {}, ERROR),
        ("x < 3 or y == 1", {"y": 1}, ERROR),
        ("y == 1 or x < 3", {"y": 1}, FITS),
        ("y == 1 and x < 3", {"y": 2}, NOT),
        ("a == 1 or int(b) == 1", {"a": 1, "b": "bad"}, FITS),
        ("a == 1 or int(b) == 1", {"a": 2, "b": "bad"}, ERROR),
        ("not (a == 1 and int(b) == 1)", {"a": 1, "b": "bad"}, ERROR),
        ("not (a == 1 and int(b) == 1)", {"a": 2, "b": "bad"}, FITS),
        ("'a' in x", {"x": 5}, ERROR),
        ("'a' in x", {}, ERROR),
        ("'a' not in x", {}, ERROR),
        ("x in 'abc'", {"x": 1}, ERROR),
        ("x in 'abc'", {"x": "b"}, FITS),
        ("p['x'] == 1", {"p": "a text"}, ERROR),
        ("p['x'] == 1", {"p": [1]}, ERROR),
        ("p[0] == 1", {"p": 5}, ERROR),
        ("x < 'a'", {"x": 1}, ERROR),
        # Chains look at each once.
        ("1 < x <= 3", {"x": 3}, FITS),
        ("1 < x <= 3", {"x": 1}, NOT),
        ("1 < x < y", {"x": 1}, NOT),
        # int() as Python has it.
        ("int(x) == 12", {"x": "12"}, FITS),
        ("int(x) == 12", {"x": " 12 "}, FITS),
        ("int(x) == 12", {"x": 12.9}, FITS),
        ("int(x) == 1", {"x": True}, FITS),
        ("int(x) == 12", {"x": "12.5"}, ERROR),
        ("int(x) == 12", {}, ERROR),
        ("int(x) == 12", {"x": [12]}, ERROR),
        ("int(x) > 1", {"x": "9" * 64}, FITS),
        ("int(x) > 1", {"x": "9" * 65}, ERROR),
        ("int(x) > 1", {"x": float("inf")}, ERROR),
        ("float(x) == 2.5", {"x": "2.5"}, FITS),
        ("float(x) > 1", {"x": "nan"}, ERROR),
        ("float(x) > 1", {"x": "1e999"}, ERROR),
        ("str(x) == '12'", {"x": 12}, FITS),
        ("str(x) == 'None'", {}, ERROR),
        ("str(x) == '[]'", {"x": []}, ERROR),
        ("len(x) == 2", {"x": "广东"}, FITS),
        ("len(x) == 1", {"x": {"a": 1}}, FITS),
        ("len(x) == 1", {"x": 1}, ERROR),
        ("lower(x) == 'gd'", {"x": "GD"}, FITS),
        ("lower(x) == 'gd'", {"x": 1}, ERROR),
        ("lower(x) == 'a'", {"x": "A" * (MAX_COPIED + 1)}, ERROR),
        ("startswith(x, '广')", {"x": "广东"}, FITS),
        ("startswith(x, y)", {"x": "ab", "y": "a"}, FITS),
        ("startswith(x, '广')", {}, ERROR),
        ("not startswith(x, '广')", {}, ERROR),
        ("endswith(x, '.cn')", {"x": "a.cn"}, FITS),
        ("endswith(x, y)", {"x": "ab", "y": 1}, ERROR),
        ("contains(x, '东')", {"x": "广东"}, FITS),
        ("contains(x, 2)", {"x": [1, 2]}, FITS),
        ("contains(x, 'a')", {"x": {"a": 0}}, FITS),
        ("contains(x, 'a')", {"x": "b" * (MAX_SEARCHED + 1)}, ERROR),
        ("contains(x, 1)", {"x": "1"}, ERROR),
        ("matches(x, r'^\\d{4}$')", {"x": "2021"}, FITS),
        ("matches(x, r'\\d{4}')", {"x": "广东2021年"}, FITS),
        ("matches(x, r'^\\d{4}$')", {"x": "20211"}, NOT),
        ("matches(x, 'a')", {"x": 5}, ERROR),
        ("matches(x, 'a')", {"x": "\ud800"}, ERROR),
        # Lists, equal values, and a number that equals nothing.
        ("x == ['a', 1]", {"x": ["a", 1]}, FITS),
        ("x == ('a', 1)", {"x": ["a", 1]}, FITS),
        ("x in [['a'], 1]", {"x": ["a"]}, FITS),
        ("x in [1, 2]", {"x": [1]}, NOT),
        ("x in []", {"x": 1}, NOT),
        ("x == 1", {"x": True}, FITS),
        ("x == 1", {"x": 1.0}, FITS),
        ("x == '1'", {"x": 1}, NOT),
        ("x == x", {"x": float("nan")}, NOT),
        ("x in ['a','b','c','d','e','f','g','h','i']", {"x": ["i"]}, NOT),
        ("x in ['a','b','c','d','e','f','g','h','i']", {"x": "i"}, FITS),
        ("True", {}, FITS),
    ],
)
def test_meaning(text: str, item: dict[str, Any], expected: str) -> None:
    assert meaning(text, item) == expected


class Broken(dict[str, Any]):
    """Dict that fails on every access."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    def __bool__(self) -> bool:
        raise RuntimeError("no")

    def __len__(self) -> int:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("text", ["x", "x == 1", "x in [1]", "len(x)", "int(x) == 1", "x < 1"])
def test_a_value_that_breaks_does_not_fit(text: str) -> None:
    assert meaning(text, {"x": Broken()}) == ERROR


def test_errors_are_counted_for_the_rule_they_are_of() -> None:
    rules = compile_rules([("one", ["a < 1", "b < 1"]), ("two", ["b < 1"]), ("three", ["c == 1"])])
    assert rules.first({"a": 2, "b": "x", "c": 1}) == 2
    assert rules.errors == (1, 1, 0)
    assert rules.first({"b": "x"}) is None
    assert rules.errors == (3, 2, 0)


@pytest.mark.covers("S2.3")
def test_the_first_rule_wins_and_others_can_be_skipped() -> None:
    rules = compile_rules(
        [("no", []), ("gd", ["p == 'GD'", "p == 'JS'"]), ("any", ["p"]), ("js", ["p in ['JS']"])]
    )
    assert rules.names == ("no", "gd", "any", "js")
    assert rules.first({"p": "JS"}) == 1
    assert rules.first({"p": "JS"}, skip={1}) == 2
    assert rules.first({"p": "JS"}, skip=frozenset({1, 2})) == 3
    assert rules.first({"p": "JS"}, skip={1, 2, 3}) is None
    assert rules.all({"p": "JS"}) == [1, 2, 3]
    assert rules.first({}) is None
    assert compile_rules([]).first({"p": "JS"}) is None


@pytest.mark.covers("S2.20")
def test_a_pattern_looks_at_fewer_bytes_the_larger_it_is() -> None:
    small, large = Pattern("a"), Pattern("(a{10}){20}")
    assert small.most_bytes > 16_000 > large.most_bytes > 100
    assert large.found("a" * large.most_bytes)
    with pytest.raises(ValueTooLong):
        large.found("a" * (large.most_bytes + 1))
    # Counted in bytes, for that is what a search takes.
    with pytest.raises(ValueTooLong):
        large.found("东" * large.most_bytes)
