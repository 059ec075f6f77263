"""JMESPath expressions: every input gives a result or a validation error."""

from __future__ import annotations

import pytest

from apps.sources.engine.paths import find, problem


@pytest.mark.parametrize("text", ["name", "data.items", "data[0].total", "*.id", "[a, b]", "日期"])
def test_usual_ones_are_taken(text: str) -> None:
    assert problem(text) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "invalid JMESPath"),
        ("a" * 1_001 + ".b", "at most 1000 characters"),
        ("(" * 900, "nested too deep"),
        ("!" * 900 + "a", "nested too deep"),
        ("|".join(["[@, @][]"] * 20), "multiply the response"),
        ("{a: " * 30 + "@" + "}" * 30, ""),
    ],
)
def test_a_strange_one_is_refused_with_its_reason(text: str, words: str) -> None:
    assert words in problem(text)
    # A version saved earlier.
    assert find(text, {"b": 1}) is None or not words


@pytest.mark.parametrize("text", ["[::0]", "sort_by(@, &a)", "a" + ".a" * 400])
def test_what_fails_finds_nothing(text: str) -> None:
    assert find(text, [{"a": 1}, {"a": "x"}]) is None
    assert find(text, {"b": [1, 2]}) is None
