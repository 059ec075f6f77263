"""The index returns the same rules as evaluating all selectors."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apps.routing.engine.selector import compile_rules, compile_selector
from apps.routing.engine.selector.index import MAX_TABLES, Candidates, Entry, Key, build, terms_of
from apps.routing.engine.selector.language import parse
from tests.routing.engine.selector import reference

Rules = list[tuple[str, list[str]]]
NAN = float("nan")


@pytest.mark.slow("15 s")
@pytest.mark.covers("S2.3", "S2.20")
@settings(max_examples=150, deadline=None)
@given(reference.rule_sets, st.lists(reference.items, min_size=1, max_size=6), st.data())
@example([("r", ["a == 1"])] * 5, [{"a": True}, {"a": 1.0}, {"a": "1"}, {"a": NAN}], None)
@example([("r", ["a in [1, 'x'] and b == 2"])] * 5, [{"a": [1], "b": 2}, {"a": 1, "b": 2.0}], None)
@example([("r", ["a == 1 or int(b) == 1"])] * 5, [{"a": 1, "b": "bad"}, {"b": "bad"}], None)
@example([("r", ["a == 1 and a == 2"])] * 5, [{"a": 1}, {"a": 2}], None)
def test_indexed_rules_choose_as_the_reference_does(
    rules: Rules, items: list[dict[str, Any]], data: st.DataObject | None
) -> None:
    compiled = compile_rules(rules)
    for item in items:
        expected = reference.every(rules, item)
        assert compiled.all(item) == expected
        assert compiled.first(item) == (expected[0] if expected else None)
        skip = data.draw(st.sets(st.integers(0, 7))) if data else {0}
        left = [one for one in expected if one not in skip]
        assert compiled.first(item, skip=skip) == (left[0] if left else None)


@pytest.mark.slow("8 s")
@pytest.mark.covers("S2.20")
@settings(max_examples=400, deadline=None)
@given(reference.selectors, reference.items)
def test_a_selector_says_what_the_reference_says(text: str, item: dict[str, Any]) -> None:
    selector = compile_selector(text)
    expected = reference.holds(text, item)
    explained = selector.explain(item)
    assert selector.matches(item) is (expected is True)
    assert explained.matches is (expected is True)
    assert bool(explained.error) is (expected is None)


# Few keys and values, so that what is wrong meets an item that shows it.
DENSE = [
    *(f"{key} == {value}" for key in ("a", "b", "p['x']") for value in ("1", "'x'", "'1'", "None")),
    *(f"int({key}) in [1, 2]" for key in ("a", "b", "p['x']")),
    *("a in ['x', 'X', 1]", "b in [True, 2.0, 'x']", "int(b) == 2.0", "a == b", "a == [1]"),
    *(
        "lower(a) == 'x'",
        "len(b) == 1",
        "str(a) == '1'",
        "not a",
        "a != 1",
        "b not in [1]",
        "a < 2",
    ),
]
VALUES = (1, 2, 1.0, True, None, "1", "2", "x", "X", "bad", [1], {"x": 1}, NAN)


@pytest.mark.slow("5 s")
@pytest.mark.covers("S2.20")
def test_dense_rules_choose_as_the_reference_does() -> None:
    chance = random.Random(2)

    def selector() -> str:
        parts = [chance.choice(DENSE) for _ in range(chance.choice((1, 1, 2, 3)))]
        joint = chance.choice((" and ", " and ", " or "))
        return joint.join(f"not ({one})" if chance.random() < 0.1 else one for one in parts)

    matched = 0
    for _ in range(300):
        rules = [("r", [selector() for _ in range(2)]) for _ in range(chance.randrange(3, 12))]
        compiled = compile_rules(rules)
        for _ in range(10):
            item = {key: chance.choice(VALUES) for key in ("a", "b") if chance.random() < 0.9}
            item["p"] = {"x": chance.choice(VALUES)} if chance.random() < 0.7 else item.get("a")
            expected = reference.every(rules, item)
            assert compiled.all(item) == expected, (rules, item)
            assert compiled.first(item) == (expected[0] if expected else None), (rules, item)
            matched += bool(expected)
    assert 1000 < matched < 3000


def index(*texts: str) -> Candidates:
    """Return an index over one selector per rule, with uncompiled rest conditions."""
    return build(
        (Entry(number, parse(text).root) for number, text in enumerate(texts)), lambda _: bool
    )


def rules_in(candidates: Candidates, item: dict[str, Any]) -> list[int]:
    """Return the rules whose selectors the index returns."""
    return sorted({rule for row in candidates.find(item) for rule, _ in row})


def test_few_of_many_are_tried() -> None:
    texts = [
        f"task_type == 'T{number % 40}' and province in ['P{number % 7}', 'X'] and url"
        for number in range(280)
    ]
    found = index(*texts)
    assert rules_in(found, {"task_type": "T3", "province": "P3"}) == [3]
    assert rules_in(found, {"task_type": "T3", "province": "X"}) == list(range(3, 280, 40))
    assert rules_in(found, {"task_type": "T3"}) == []
    assert rules_in(found, {"task_type": ["T3"], "province": "P3"}) == []
    assert len(found.tables) == 1


def test_what_all_ask_for_is_asked_once() -> None:
    texts = [f"s == 'hub' and int(n) in [1, 2] and k == {number}" for number in range(9)]
    found = index(*texts)
    (table,) = found.tables
    assert table.apart == (Key(("k",), False),)
    assert set(table.same) == {Key(("s",), False), Key(("n",), True)}
    assert rules_in(found, {"s": "hub", "n": "2", "k": 4}) == [4]
    assert rules_in(found, {"s": "hub", "n": "3", "k": 4}) == []
    # Nothing is left of such a selector.
    assert [test for row in found.find({"s": "hub", "n": 1, "k": 4}) for _, test in row] == [None]


def test_selectors_of_every_kind_share_a_bounded_number_of_tables() -> None:
    texts = [
        " and ".join(f"k{number}_{part} == 1" for part in range(number % 3 + 1))
        for number in range(200)
    ]
    found = index(*texts)
    assert 0 < len(found.tables) <= 2 * MAX_TABLES
    for number in (0, 1, 77, 199):
        item = {f"k{number}_{part}": 1 for part in range(3)}
        assert number in rules_in(found, item)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("a == 1", [{"a": {1}}]),
        ("'x' == a['b'][0]", [{"a['b'][0]": {"x"}}]),
        ("int(a) in [1, 2]", [{"int(a)": {1, 2}}]),
        ("a in [1, 2] and a in (2, 3) and not b", [{"a": {2}}]),
        ("a == 1 or b == 2 and c == 3", [{"a": {1}}, {"b": {2}, "c": {3}}]),
        ("(a == 1 or a == 2) and b == 3", [{"a": {1}, "b": {3}}, {"a": {2}, "b": {3}}]),
        ("a == 1 and a == 2", []),
        ("a in []", []),
        ("a == 1 or b", None),
        ("not a == 1", None),
        ("a != 1", None),
        ("a == b", None),
        ("a == [1]", None),
        ("a in [1, [2]]", None),
        ("a in 'abc'", None),
        ("lower(a) == 'x'", None),
        ("1 == a == 1", None),
    ],
)
def test_what_the_index_reads_of_a_selector(text: str, terms: list[Any] | None) -> None:
    found = terms_of(parse(text).root)
    shown = None if found is None else [{str(k): set(v) for k, v in one.items()} for one in found]
    assert shown == terms


def test_values_that_cannot_be_read_are_counted_by_their_key() -> None:
    rules = compile_rules([("r", [f"int(task_src) in [{n}]"]) for n in range(6)])
    assert rules.first({"task_src": "3"}) == 3
    assert rules.unreadable == {}
    for value in ("bad", [1], None):
        assert rules.first({"task_src": value}) is None
    assert rules.first({}) is None
    assert rules.unreadable == {"int(task_src)": 2}
    assert rules.errors == (0,) * 6
