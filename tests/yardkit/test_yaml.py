"""Reading YAML of strangers, and writing it for people."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yardkit.yaml_reader import (
    TEXTS,
    YamlDocument,
    YamlError,
    YamlLimits,
    decode,
    read_document,
    shown_path,
)
from yardkit.yaml_writer import write_value

SMALL = YamlLimits(bytes=1000, depth=4, values=50, aliases=3)


def refused(raw: str | bytes, limits: YamlLimits = SMALL) -> YamlError:
    with pytest.raises(YamlError) as caught:
        read_document(raw, limits, refuse_merge_keys=True)
    return caught.value


@pytest.mark.parametrize(
    ("raw", "line", "code", "path", "parameters"),
    [
        ("#" * 1001, 1, "too_large", "", {"limit": 1000}),
        (b"a\n\xff", 2, "not_utf8", "", {}),
        ("a\n\x07", 2, "control_character", "", {"character": "U+0007"}),
        ('a: "\\0"', 1, "bad_character", "a", {}),
        ("--- a\n--- b", 2, "second_document", "", {}),
        ("a:\n- [[[x]]]", 2, "too_deep", "a[0][0][0]", {"limit": 4}),
        ("a: &a 1\nb: [*a, *a, *a, *a]", 2, "too_many_aliases", "", {"limit": 3}),
        ("[" + "x, " * 50 + "]", 1, "too_many_values", "", {"limit": 50}),
        ("a: &a [" + "x, " * 20 + "]\nb: *a\nc: *a", 3, "too_many_values", "", {"limit": 50}),
        ("a:\n  b: *c", 2, "no_anchor", "a.b", {"name": "c"}),
        ("? [a]", 1, "bad_name", "", {}),
        ("a:\n  5: b", 2, "name_without_quotes", "a", {}),
        ("a: 1\na: 2", 2, "duplicate_key", "", {"name": "a"}),
        ("a:\n  <<: b", 2, "merge_key", "a", {}),
        ("a: !!set {}", 1, "tag", "a", {"tag": "tag:yaml.org,2002:set"}),
        ("9" * 31, 1, "too_many_digits", "", {}),
    ],
)
def test_what_is_refused_has_a_line_a_path_and_a_code(
    raw: str | bytes, line: int, code: str, path: str, parameters: dict[str, Any]
) -> None:
    error = refused(raw)
    assert (error.line, error.code, shown_path(error.path)) == (line, code, path)
    assert error.parameters == parameters
    assert str(error) == TEXTS[code].format(**parameters)


def test_what_is_no_yaml_says_why() -> None:
    error = refused("a: b: c")
    assert (error.line, error.code, error.parameters["column"]) == (1, "not_yaml", 5)
    assert "column 5" in str(error)
    assert refused("\ufffe").code in ("not_yaml", "not_yaml_at_all")


def test_names_of_strangers_are_cut() -> None:
    assert len(str(refused("a: *" + "x" * 500))) < 200
    assert shown_path(("a" * 500, 3, "b")) == "a" * 60 + "[3].b"


def test_merge_keys_are_names_where_nobody_refuses_them() -> None:
    assert read_document("<<: a").root == {"<<": "a"}
    assert read_document("'<<': a", refuse_merge_keys=True).root == {"<<": "a"}


def test_the_order_of_keys_and_the_lines_are_kept() -> None:
    document = read_document(
        "# why\nb: 1\na:\n- x:\n    y: 2\n\n- z\n", YamlLimits(depth_of_lines=3)
    )
    assert [*document.root] == ["b", "a"]
    assert document.values == 11, "names are values too"
    lines = {shown_path(path): document.line(path) for path in document.lines}
    assert lines == {"": 2, "b": 2, "a": 3, "a[0]": 4, "a[0].x": 4, "a[1]": 7}
    assert document.line(("a", 0, "x", "y")) == 4, "the nearest around it that is known"
    assert YamlDocument({}, {}, 1).line(("a",)) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("yes", "yes"),
        ("NO", "NO"),
        ("True", True),
        ("0x10", "0x10"),
        ("010", 10),
        ("1_000", "1_000"),
        ("1e3", 1000.0),
        (".nan", ".nan"),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("\ufeff'5'", "5"),
    ],
)
def test_plain_words_are_those_of_yaml_1_2(text: str, value: object) -> None:
    found = read_document(text).root
    assert (found, type(found)) == (value, type(value))


def test_a_byte_order_mark_is_no_part_of_a_text() -> None:
    assert decode("\ufeffa".encode(), 10) == "a"


CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
WORDS = st.text(CHARACTERS, max_size=20) | st.text(" \n\t\r\x85\u2028:#-'\"|>ab01.", max_size=12)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.slow("1 s")
@settings(deadline=None)
@given(value=VALUES, width=st.sampled_from([20, 100, 10_000]))
def test_whatever_is_written_is_read_again(value: Any, width: int) -> None:
    # At the top a text would be followed by the mark of an end.
    text = write_value({"x": value}, width=width)
    found = read_document(text.encode(), refuse_merge_keys=True).root["x"]
    assert found == value
    assert repr(found) == repr(value)


def test_what_is_written_is_for_people() -> None:
    value = {"b": "破码", "a": ["1", 1, "yes", "x: y"], "text": "one\ntwo\n", "end": "a\x85b"}
    assert write_value(value) == (
        "b: 破码\na:\n- '1'\n- 1\n- 'yes'\n- 'x: y'\ntext: |\n  one\n  two\nend: \"a\\Nb\"\n"
    )
