"""Any text is rejected with a position, or compiles to a selector that never raises."""

from __future__ import annotations

import ast
import io
import tokenize
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apps.routing.engine.selector import SelectorError, compile_rules, compile_selector
from tests.routing.engine.selector import reference

# What Python's own words and signs are made of, and what is dangerous among them.
WORDS = (
    "a", "b", "task_params", "and", "or", "not", "in", "is", "if", "else", "for", "lambda", "await",
    "yield", "==", "!=", "<", "<=", ">", ">=", "=", ":=", "+", "-", "*", "**", "/", "%", "~", "<<",
    ".", ",", ":", ";", "(", ")", "[", "]", "{", "}", "'x'", '"广东"', "r'\\d'", "f'{a}'", "b'x'",
    "'\\x00'", "'\\N{BEE}'", "0", "1", "1.5", "1e999", "0x1", "1j", "9" * 30, "...", "None", "True",
    "int", "len", "str", "matches", "contains", "startswith", "__import__", "__class__", "eval",
    "open", "\\\n", "\n", "# x\n", "'", '"', "'''", "\t", "\x00", "\ufeff", "ａ", "；", "\u202e",
)  # fmt: skip
texts = st.one_of(
    st.text(max_size=60),
    st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=25).map("".join),
    st.text(alphabet="ab1'\"\\()[],.=<>!-# \n\r\tnotandi", max_size=60),
)
ITEMS: tuple[dict[str, Any], ...] = (
    {},
    {"a": 1, "b": "x", "task_params": {"x": "广东"}},
    {"a": "12", "b": [1, [2]], "task_params": "a text"},
    {"a": float("nan"), "b": {"x": {"x": None}}, "task_params": [{}]},
)


def try_out(text: str) -> None:
    """Compile a text and evaluate it for items, alone and among other rules."""
    refused: SelectorError | None = None
    try:
        selector = compile_selector(text)
    except SelectorError as error:
        refused = error
    if refused is not None:
        assert 0 <= refused.offset <= len(text)
        assert refused.text
        return
    rules = compile_rules([("it", [text]), *[("r", [f"a == {n}"]) for n in range(5)]])
    for item in ITEMS:
        expected = selector.matches(item)
        assert (rules.first(item) == 0) is expected
        assert selector.explain(item).matches is expected


@pytest.mark.slow("2 s")
@pytest.mark.covers("S2.20")
@settings(max_examples=500, deadline=None)
@given(texts)
@example("0,")
def test_any_text_is_refused_or_harmless(text: str) -> None:
    try_out(text)


@pytest.mark.slow("5 s")
@pytest.mark.covers("S2.20")
@settings(max_examples=200, deadline=None)
@given(reference.selectors, st.data())
def test_a_broken_selector_is_refused_or_harmless(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 3))
    try_out(text[:place] + data.draw(st.sampled_from([*WORDS, ""])) + text[place + cut :])


@pytest.mark.slow("2 s")
@pytest.mark.covers("S2.20")
@settings(max_examples=200, deadline=None)
@given(texts)
@example("0,")
def test_whatever_is_allowed_is_an_expression_of_allowed_parts(text: str) -> None:
    try:
        compile_selector(text)
    except SelectorError:
        return
    # By another way than the engine's own: no call but of a function of the language, no attribute.
    for node in ast.walk(ast.parse(f"({text}\n)", mode="eval")):
        assert not isinstance(node, ast.Attribute | ast.Lambda | ast.NamedExpr | ast.JoinedStr)
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name)
            assert node.func.id in reference.FUNCTIONS
    names = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(f"({text}\n)").readline)
        if token.type == tokenize.NAME
    ]
    assert not any("__" in name for name in names)
