"""Conditions of a selector that failed, and the item's values for them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from apps.routing.engine.selector import PartState, compile_selector
from apps.routing.engine.selector.conditions import explain_conditions
from tests.routing.engine.selector import reference


def failing(text: str, item: dict[str, Any]) -> list[str]:
    """Return the texts of the conditions that failed."""
    return [one.text for one in explain_conditions(text, item).failing]


@pytest.mark.covers("S2.20")
@pytest.mark.parametrize(
    ("text", "item", "expected"),
    [
        ("a == 1 and b == 2", {"a": 1, "b": 3}, ["b == 2"]),
        ("a == 1 and b == 2", {"a": 0, "b": 3}, ["a == 1"]),
        ("a == 1 or b == 2", {"a": 0, "b": 3}, ["a == 1", "b == 2"]),
        ("(a == 1 or b == 2) and c", {"a": 0, "b": 2}, ["c"]),
        ("not (a == 1 or b == 2) and c", {"a": 0, "b": 2, "c": 1}, ["b == 2"]),
        ("not (a == 1 and b == 2)", {"a": 1, "b": 2}, ["a == 1", "b == 2"]),
        ("not a", {"a": 1}, ["not a"]),
        ("a == 1 or int(b) == 1", {"b": "x"}, ["int(b) == 1"]),
        ("not (c and int(b) == 1)", {"b": "x", "c": 1}, ["int(b) == 1"]),
        ("a == 1 or b == 2", {"b": 2}, []),
    ],
)
def test_only_what_made_it_fail_is_failing(
    text: str, item: dict[str, Any], expected: list[str]
) -> None:
    assert failing(text, item) == expected


@pytest.mark.covers("S2.20")
def test_a_condition_says_what_the_item_had_and_where_it_stands() -> None:
    text = "省份 == '广东' and task_parms['province'] in ['JS']"
    told = explain_conditions(text, {"省份": "广东", "task_params": {"province": "JS"}})
    first, second = told.conditions
    assert (first.state, first.values[0].value, first.failing) == (PartState.TRUE, "'广东'", False)
    assert second.failing
    assert (second.values[0].text, second.values[0].missing) == ("task_parms['province']", True)
    assert text[second.offset :].startswith(second.text)


def test_a_type_error_is_told_at_its_condition() -> None:
    told = explain_conditions("a < 3", {"a": "x"})
    (only,) = told.conditions
    assert (only.state, only.failing, bool(only.note)) == (PartState.ERROR, True, True)


@pytest.mark.slow("3 s")
@settings(max_examples=300, deadline=None)
@given(reference.selectors, reference.items)
def test_who_does_not_fit_has_failed_by_something_and_who_fits_by_nothing(
    text: str, item: dict[str, Any]
) -> None:
    told = explain_conditions(text, item)
    assert told.matches is compile_selector(text).matches(item)
    assert not (told.matches and told.failing)
    offsets = [one.offset for one in told.conditions]
    assert len(set(offsets)) == len(offsets)
    for one in told.conditions:
        assert text[one.offset : one.offset + len(one.text)] == one.text
        assert not (one.failing and one.state is PartState.NOT_LOOKED_AT)
