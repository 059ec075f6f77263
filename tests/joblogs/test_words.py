"""The words by which a line is found."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apps.joblogs.engine.words import LONGEST_WORD, Phrase, joined, phrases_of, spaced, words_of

# Much of what logs hold, and what is cut in more than one way.
TEXTS = st.text(
    st.one_of(
        st.sampled_from("ab Z9_-./:价格上涨，。カナー한글éßÄ🚀☀Ａ１ﷺ　\u0301"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=40,
)


def as_ascii_index(text: str) -> list[str]:
    """What FTS5's tokenizer ``ascii`` makes of it."""
    return re.findall(r"[0-9a-z\x80-\U0010ffff]+", text.lower() if text.isascii() else text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GET http://x.y/a_b?c=1", "get http x y a b c 1"),
        ("价格", "价格 格"),
        ("价格price上", "价格 格 price 上"),
        ("今天，价格上涨。", "今天 天 价格 格上 上涨 涨"),
        ("ＡＢＣ１２", "abc12"),
        ("🚀🚀 a☀b", "🚀 🚀 a ☀ b"),
        ("Straße ÉTÉ", "strasse été"),
        ("- * \0", ""),
    ],
)
def test_words(text: str, expected: str) -> None:
    assert words_of(text) == expected.split()


@given(TEXTS)
@example("é_x")
@example("a\u200bb价")
@example("x" * 501 + "价格" * 300)
@example("价格" * 300 + "é")
def test_every_index_gets_the_same_words(text: str) -> None:
    words = words_of(text)
    assert joined(text) == " ".join(word[:LONGEST_WORD] for word in words)
    assert as_ascii_index(spaced(text)) == words


@given(TEXTS, st.data())
def test_any_part_of_a_chinese_text_is_found_as_it_stands(text: str, data: st.DataObject) -> None:
    run = data.draw(st.text(st.sampled_from("价格上涨库存不足"), min_size=1, max_size=12))
    begin = data.draw(st.integers(0, len(run) - 1))
    part = run[begin : data.draw(st.integers(begin + 1, len(run)))]
    (phrase,) = phrases_of(part)
    there = f" {joined(f'{text} {run}')} "
    assert f" {' '.join(phrase.words)}{'' if phrase.prefix else ' '}" in there


def test_phrases() -> None:
    assert phrases_of('a "b c" a') == [Phrase(("a",)), Phrase(("b", "c"))]
    assert phrases_of("价") == [Phrase(("价",), prefix=True)]
    assert phrases_of("x价") == [Phrase(("x", "价"), prefix=True)]
    assert phrases_of("价x") == [Phrase(("价", "x"))]
    assert phrases_of('- "" *') == []
