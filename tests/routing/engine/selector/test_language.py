"""Valid selectors, and the positions of errors in invalid ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.routing.engine.selector import SelectorError, compile_rules, compile_selector
from apps.routing.engine.selector.language import MAX_DEPTH, MAX_NODES, parse
from apps.routing.engine.selector.scanner import MAX_BRACKETS, MAX_CHARACTERS, MAX_NAME, MAX_NOTS

CORPUS = json.loads(
    (Path(__file__).parents[3] / "data" / "corpus" / "expressions.json").read_text(encoding="utf-8")
)


def refusal(text: Any) -> SelectorError:
    """Return the error of an invalid selector; a warning fails the test."""
    with pytest.raises(SelectorError) as caught:
        compile_selector(text)
    error: SelectorError = caught.value
    return error


@pytest.mark.covers("S2.19")
@pytest.mark.parametrize("text", CORPUS["good"])
def test_the_selectors_of_the_seed_compile(text: str) -> None:
    assert compile_selector(text).matches({}) is False


@pytest.mark.covers("S2.20")
@pytest.mark.parametrize("group", ["escape", "exhaust"])
def test_nothing_of_the_corpus_escapes_or_exhausts(group: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    assert len(CORPUS[group]) >= 30
    for text in CORPUS[group]:
        tried = text.replace("MARKER_FILE", str(marker))
        error = refusal(tried)
        assert 0 <= error.offset <= len(tried)
        assert error.code
        assert error.text
    assert not marker.exists()


@pytest.mark.covers("S2.20")
@pytest.mark.parametrize(
    ("text", "code", "offset"),
    [
        ("a == __import__('os')", "name", 5),
        ("省份 == '广东' and a.b", "attribute", 16),
        ("...", "sign", 0),
        # Characters of four bytes and of two.
        ("'😀é' == a and b[1.5]", "subscript", 16),
        ("a ==\n  '广东' and\n  eval('1') == 1", "function", 18),
        ("a ==\r\n  '广' or\r\n  b[None]", "subscript", 20),
        ("a = 1", "sign", 2),
        ("a == ‘GD’", "sign", 5),
        ("a ＝＝ 1", "sign", 2),
        ("ａ == 1", "name", 0),
        ("a == 'GD", "text", 5),
        ("a == 'GD' 'JS'", "comma", 10),
        ("a in ['GD' 'JS']", "comma", 11),
        ("(a == 1", "bracket", 0),
        ("a == 1)", "bracket", 6),
        ("a == (1]", "bracket", 7),
        ("a) or (b", "bracket", 1),
        ("a == 1 b == 2", "syntax", 0),
        ("a == == 1", "syntax", 5),
        ("a ==", "syntax", 4),
        ("a == # 1", "syntax", 8),
        ("a == 0x10", "number", 5),
        ("a == 1j", "number", 5),
        ("a == 1.", "number", 5),
        ("a == 99999999999999999999", "number", 5),
        ("a == 1e999", "number", 5),
        ("a == --1", "sign", 5),
        ("a == -b", "sign", 5),
        ("a == f'{b}'", "prefix", 5),
        ("a == b'x'", "prefix", 5),
        ("a == '\\d'", "escape", 6),
        ("a == '\\x00'", "character", 5),
        ("a == '\\ud800'", "character", 5),
        ("a == '\x1b'", "unseen_character", 6),
        ("a == '\u202e'", "unseen_character", 6),
        ("a\u200b == 1", "unseen_character", 1),
        ("a == '\ud800'", "unseen_character", 6),
        ("a == '\0'", "null_character", 6),
        ("a is None", "word", 2),
        ("a if b else c", "word", 2),
        ("len == 3", "function", 0),
        ("len()", "arguments", 0),
        ("int(a, 10) == 1", "arguments", 0),
        ("lower(a)(b)", "function", 0),
        ("a in 5", "container", 5),
        ("a in None", "container", 5),
        ("a in (b == 1)", "container", 6),
        ("a in [b]", "list", 6),
        ("a in b in c", "chain", 0),
        ("a, b", "list", 0),
        ("'abc'", "constant", 0),
        ("[1]", "constant", 0),
        ("'abc'[0] == 'a'", "subscript", 0),
        ("lower(a)['x']", "subscript", 0),
        ("a[b] == 1", "subscript", 2),
        ("a['x', 'y'] == 1", "subscript", 2),
        ("matches(a, b)", "pattern", 11),
        ("matches(a, '(')", "pattern", 11),
        ("matches(a, '(?=x)')", "pattern", 11),
        ("matches(a, '((a{10}){10}){9}')", "pattern", 11),
        ("", "empty", 0),
        (" # nothing", "empty", 0),
        (7, "not_text", 0),
    ],
)
def test_a_refusal_says_what_and_where(text: Any, code: str, offset: int) -> None:
    error = refusal(text)
    assert (error.code, error.offset) == (code, offset), str(error)
    assert str(error).endswith(f"(character {offset + 1})")


def limits() -> Iterator[tuple[str, str, str]]:
    """Return for each limit the largest valid text and one that exceeds it."""
    text = "a == 'x'"
    yield text + " " * (MAX_CHARACTERS - len(text)), text + " " * MAX_CHARACTERS, "too_long"
    yield "(" * MAX_BRACKETS + "a" + ")" * MAX_BRACKETS, "(" * 21 + "a" + ")" * 21, "too_deep"
    yield "not " * (MAX_DEPTH - 1) + "a", "not " * MAX_NOTS + "a", "too_deep"
    yield "a" * MAX_NAME, "a" * (MAX_NAME + 1), "name"
    # The list, the name and the comparison are parts too.
    fits = MAX_NODES - 3
    yield f"a in [{'1,' * fits}]", f"a in [{'1,' * (fits + 1)}]", "too_long"
    yield " or ".join(["contains(a, 'x')"] * 10), " or ".join(["contains(a, 'x')"] * 11), "too_slow"
    yield " or ".join(["a == b"] * 10), " or ".join(["a == b"] * 11), "too_slow"
    yield " or ".join(["'a' in b"] * 10), " or ".join(["'a' in b"] * 11), "too_slow"
    yield " or ".join(["matches(a, 'x')"] * 4), " or ".join(["matches(a, 'x')"] * 5), "too_slow"


@pytest.mark.covers("S2.20")
@pytest.mark.parametrize(("most", "more", "code"), list(limits()))
def test_limits_hold_from_their_own_figure_on(most: str, more: str, code: str) -> None:
    compile_selector(most)
    assert refusal(more).code == code


@pytest.mark.covers("S2.19")
@pytest.mark.parametrize(
    "text",
    [
        "a == 1 # a comment",
        "  a == 1  \n",
        "# first\na == 1 # second\n and b == 2",
        "a in ('GD',\n  'JS',  # one more\n)",
        "x in'abc'",
        r"matches(a, r'^\d+$')",
        "a == 'it\\'s' and b == \"\\u5e7f\"",
        "(((a)))",
        "省份 == '（广东）' and type == 'x'",
        "a == -1 and b == -2.5e3",
        "True",
    ],
)
def test_these_are_selectors(text: str) -> None:
    compile_selector(text)


def test_places_are_those_of_characters() -> None:
    text = "省份 == '广东' and (\r\n  甲['é'] or b < 3)"
    parsed = parse(text)
    found = []
    waiting = [parsed.root]
    while waiting:
        node = waiting.pop()
        start, end = parsed.span(node)
        found.append(text[start:end])
        waiting += getattr(node, "operands", [])
    assert found == [
        "省份 == '广东' and (\r\n  甲['é'] or b < 3)",
        "甲['é'] or b < 3",
        "b < 3",
        "3",
        "b",
        "甲['é']",
        "省份 == '广东'",
        "'广东'",
        "省份",
    ]


def test_a_refused_rule_set_says_which_rule_and_selector() -> None:
    with pytest.raises(SelectorError) as caught:
        compile_rules([("one", ["a == 1"]), ("two", ["a == 1", "a = 1"])])
    error = caught.value
    assert (error.rule, error.selector, error.code, error.offset) == (1, 1, "sign", 2)
    assert refusal("a = 1").rule is None
