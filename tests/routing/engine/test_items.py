"""Valid items, and the error codes of invalid ones."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.routing.engine.items import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_KEY_CHARACTERS,
    MAX_VALUES,
    ItemError,
    check_item,
    read_item,
    read_json,
    write_item,
)


def refusal(raw: Any) -> str:
    """Return the error code of ``raw``."""
    with pytest.raises(ItemError) as caught:
        read_item(raw)
    assert str(caught.value)
    return caught.value.code


@pytest.mark.covers("S2.2")
def test_an_item_is_json_outside_and_a_dict_inside() -> None:
    raw = '{"company_name": "宁乡县老粮仓镇楚江冻库", "rt": true, "n": [1, 2.5, null]}'
    item = read_item(raw.encode())
    assert item == {"company_name": "宁乡县老粮仓镇楚江冻库", "rt": True, "n": [1, 2.5, None]}
    assert read_item(raw) == item
    assert "楚江冻库".encode() in write_item(item)
    assert read_item(write_item(item)) == item


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "not_json"),
        (b"   ", "not_json"),
        (b"{", "not_json"),
        (b'{"a": 1} x', "not_json"),
        (b"{'a': 1}", "not_json"),
        (b'{"a": "\x00"}', "not_json"),
        (b'\xef\xbb\xbf{"a": 1}', "not_json"),
        (b'{"a": "\xff"}', "not_utf8"),
        (b'{"a": "\xed\xa0\x80"}', "not_utf8"),
        (pickle.dumps({"a": 1}), "not_utf8"),
        (pickle.dumps({"a": 1}, protocol=0), "not_json"),
        (b'{"a": NaN}', "bad_number"),
        (b'{"a": -Infinity}', "bad_number"),
        (b'{"a": 1e400}', "bad_number"),
        (b'{"a": [{"b": -1e400}]}', "bad_number"),
        (b'{"a": 9223372036854775808}', "bad_number"),
        (b'{"a": -9223372036854775809}', "bad_number"),
        (b'{"a": ' + b"1" * 5000 + b"}", "bad_number"),
        (b'{"a": "\\u0000"}', "null_character"),
        (b'{"a": [{"b\\u0000": 1}]}', "null_character"),
        (b'{"a": "\\ud800"}', "lone_surrogate"),
        (b'{"\\udc00": 1}', "lone_surrogate"),
        ('{"a": "\ud800"}', "lone_surrogate"),
        (b'{"a": 1, "a": 2}', "duplicate_key"),
        (b'{"a": 1, "\\u0061": 1}', "duplicate_key"),
        (b'{"x": [{"a": {}, "a": {}}]}', "duplicate_key"),
        # The quotation mark that was written as an escape makes up for one that was lost.
        (b'{"a": "\\u0022\\u0022", "a": "\\u0022\\u0022"}', "duplicate_key"),
        (b"[" * 100_000 + b"]" * 100_000, "too_deep"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "too_deep"),
        (b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", "too_deep"),
        (b'{"a": [' + b"1," * MAX_VALUES + b"1]}", "too_many"),
        (b'{"' + b"k" * (MAX_KEY_CHARACTERS + 1) + b'": 1}', "bad_key"),
        (b"[]", "not_a_dict"),
        (b'[{"a": 1}]', "not_a_dict"),
        (b'"a"', "not_a_dict"),
        (b"1", "not_a_dict"),
        (b"null", "not_a_dict"),
        (b"true", "not_a_dict"),
        (b" " * (64 * 1024 * 1024), "too_large"),
        ("界" * (MAX_BYTES // 3 + 1), "too_large"),
        (bytearray(b"{}"), "not_json"),
        (None, "not_json"),
        (7, "not_json"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_item_is_refused_with_a_code(raw: Any, code: str) -> None:
    assert refusal(raw) == code


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b'{"": ""}',
        b'{"a": 9223372036854775807, "b": -9223372036854775808}',
        b'{"a": 1e308, "b": 1e-400, "c": -0}',
        b'{"a": "\\u0001\\ud83d\\ude00\\u2028"}',
        b'{"a": "\\\\u0000"}',
        b'{"a": "say \\u0022yes\\u0022", "b": "\\"\\\\"}',
        b'{"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 1}]}',
        b'{"a":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}",
        b'{"a": [' + b"1," * (MAX_VALUES - 2) + b"1]}",
        b'{"' + b"k" * MAX_KEY_CHARACTERS + b'": 1}',
        b'{"a": "' + b"x" * (MAX_BYTES - 9) + b'"}',
    ],
    ids=lambda value: repr(value)[:30],
)
def test_strange_items_are_read_as_they_are(raw: bytes) -> None:
    item = read_item(raw)
    assert item == json.loads(raw)
    check_item(item)
    assert read_item(write_item(item)) == item


@pytest.mark.parametrize(
    ("item", "code"),
    [
        ({"a": math.nan}, "bad_number"),
        ({"a": [math.inf]}, "bad_number"),
        ({"a": 2**63}, "bad_number"),
        ({"a": (1, 2)}, "bad_type"),
        ({"a": {1, 2}}, "bad_type"),
        ({"a": b"x"}, "bad_type"),
        ({"a": {1: 2}}, "bad_key"),
        ({None: 2}, "bad_key"),
        ({"a": "\x00"}, "null_character"),
        ({"\x00": [{"b": 1}]}, "null_character"),
        ({"a": "\ud800"}, "lone_surrogate"),
        ({"\udfff": 1}, "lone_surrogate"),
        ({"k" * 300: 1}, "bad_key"),
    ],
    ids=repr,
)
def test_what_code_has_made_is_checked_before_it_is_written(
    item: dict[Any, Any], code: str
) -> None:
    for check in (check_item, write_item):
        with pytest.raises(ItemError) as caught:
            check(item)
        assert caught.value.code == code


def test_an_item_that_holds_itself_is_too_deep() -> None:
    item: dict[str, Any] = {}
    item["me"] = item
    with pytest.raises(ItemError) as caught:
        check_item(item)
    assert caught.value.code == "too_deep"


def test_a_list_is_no_item_for_the_check_either() -> None:
    with pytest.raises(ItemError) as caught:
        check_item([])  # type: ignore[arg-type]
    assert caught.value.code == "not_a_dict"


def test_json_that_is_no_item_is_read_with_the_same_care() -> None:
    assert read_json(b'[{"a": 1}, {"a": 2}]') == [{"a": 1}, {"a": 2}]
    with pytest.raises(ItemError):
        read_json(b'[{"a": 1, "a": 2}]')


def test_the_message_says_where() -> None:
    with pytest.raises(ItemError, match="byte 7 is not UTF-8"):
        read_item(b'{"a": "\xff"}')
    with pytest.raises(ItemError, match="the key 'a' is there twice"):
        read_item(b'{"a": 1, "a": 2}')


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda part: st.lists(part, max_size=4) | st.dictionaries(TEXTS, part, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow("4 s")
@settings(deadline=None)
@given(st.dictionaries(TEXTS, VALUES, max_size=6), st.booleans())
def test_what_json_says_is_read_as_it_was(item: dict[str, Any], ascii_only: bool) -> None:
    assert read_item(json.dumps(item, ensure_ascii=ascii_only)) == item
    assert read_item(write_item(item)) == item
    check_item(item)


@pytest.mark.slow("1 s")
@settings(deadline=None)
@given(TEXTS, VALUES, VALUES, st.booleans(), st.integers(0, 3))
def test_a_key_that_is_there_twice_is_always_found(
    key: str, first: Any, second: Any, ascii_only: bool, depth: int
) -> None:
    name, one, two = (json.dumps(part, ensure_ascii=ascii_only) for part in (key, first, second))
    raw = f"{{{name}: {one}, {name}: {two}}}"
    for _ in range(depth):
        raw = f'{{"in": [{raw}]}}'
    assert refusal(raw) == "duplicate_key"


@settings(deadline=None)
@given(st.binary(max_size=60) | st.text("[]{}\",:\\u0012e-.ntf a'", max_size=60))
def test_anything_else_is_read_or_refused(raw: bytes | str) -> None:
    try:
        item = read_item(raw)
    except ItemError:
        return
    assert item == json.loads(raw)
