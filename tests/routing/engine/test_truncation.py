"""Truncation of long values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.routing.engine.truncation import MARK, shortened

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=50)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=9), inner, max_size=5)
    ),
    max_leaves=60,
)


@pytest.mark.slow("2 s")
@given(VALUES, st.integers(1, 400))
def test_what_is_shown_is_the_value_or_says_that_it_is_not(value: Any, most: int) -> None:
    before = json.dumps(value)
    shown, cut = shortened(value, most, 30)
    assert json.dumps(value) == before
    assert cut is (json.dumps(shown) != before)
    # A mark for each level, and one for each text.
    assert not cut or MARK in json.dumps(shown, ensure_ascii=False)


def test_a_huge_item_is_cut_wherever_it_is_long() -> None:
    huge = {"text": "东" * 500_000, "list": list(range(19_000)), "last": 1}
    shown, cut = shortened(huge)
    assert cut
    assert shown["text"].endswith(f"{MARK} (498000 more characters)")
    assert "more" in shown["list"][-1]
    assert shown[MARK] == "1 more"
    assert len(json.dumps(shown, ensure_ascii=False)) < 50_000
