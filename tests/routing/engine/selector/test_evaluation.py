"""Explanation of why a selector matches an item or not."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings

from apps.routing.engine.selector import PartExplanation, PartState, compile_selector
from apps.routing.engine.selector.evaluation import MAX_VALUE
from tests.routing.engine.selector import reference


def lines(part: PartExplanation, depth: int = 0) -> list[str]:
    """Return a tree as lines: indent, text, state, value."""
    own = f"{'  ' * depth}{part.text} | {part.state.value} | {part.value}"
    return [own, *[line for one in part.parts for line in lines(one, depth + 1)]]


@pytest.mark.covers("S2.20")
def test_every_part_says_what_it_was() -> None:
    text = "submitter == 'taskhub' and (company_name or credit_no) and int(task_src) in [1, 11]"
    item = {"submitter": "taskhub", "credit_no": "924", "task_src": "2"}
    explained = compile_selector(text).explain(item)
    assert explained.matches is False
    assert lines(explained.tree) == [
        f"{text} | false | False",
        "  submitter == 'taskhub' | true | True",
        "    submitter | true | 'taskhub'",
        "  company_name or credit_no | true | '924'",
        "    company_name | missing | None",
        "    credit_no | true | '924'",
        "  int(task_src) in [1, 11] | false | False",
        "    int(task_src) | true | 2",
        "      task_src | true | '2'",
    ]
    assert explained.tree.parts[1].offset == text.index("company_name")


@pytest.mark.covers("S2.20")
def test_an_error_says_where_and_what_comes_after_is_not_looked_at() -> None:
    text = "省份 == '广东' and not int(b) == 1 and c"
    explained = compile_selector(text).explain({"省份": "广东", "b": "bad", "c": 1})
    assert explained.matches is False
    assert explained.error_offset == text.index("int(b)")
    assert "bad" in explained.error
    assert lines(explained.tree) == [
        f"{text} | error | None",
        "  省份 == '广东' | true | True",
        "    省份 | true | '广东'",
        "  not int(b) == 1 | error | None",
        "    int(b) == 1 | error | None",
        "      int(b) | error | None",
        "        b | true | 'bad'",
        "  c | not_looked_at | None",
    ]


def test_a_part_that_is_none_is_not_one_that_is_missing() -> None:
    selector = compile_selector("p['x'] or p['y']")
    tree = selector.explain({"p": {"x": None}}).tree
    assert [one.state for one in tree.parts] == [PartState.FALSE, PartState.MISSING]
    tree = selector.explain({"p": {"x": 1}}).tree
    assert [one.state for one in tree.parts] == [PartState.TRUE, PartState.NOT_LOOKED_AT]


def test_values_are_shortened() -> None:
    item = {"x": "东" * 100_000, "y": [list(range(1000))] * 1000}
    explained = compile_selector("x and y").explain(item)
    shown = [one.value or "" for one in explained.tree.parts]
    assert all(0 < len(one) <= MAX_VALUE for one in shown)
    assert shown[0].startswith("'东东")


@pytest.mark.slow("3 s")
@settings(max_examples=200, deadline=None)
@given(reference.selectors, reference.items)
def test_explanations_are_json_and_cite_the_text(text: str, item: dict[str, Any]) -> None:
    explained = compile_selector(text).explain(item)
    told = asdict(explained)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    waiting = [explained.tree]
    while waiting:
        part = waiting.pop()
        assert text[part.offset :].startswith(part.text)
        waiting += part.parts
