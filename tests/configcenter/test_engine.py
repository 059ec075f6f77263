"""Plain data, text formats, differences and the kind registry."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.configcenter.engine import kinds
from apps.configcenter.engine.diffs import MOST_CHANGES, ChangeKind, DataChange, changes
from apps.configcenter.engine.kinds import (
    ConfigKind,
    DataProblem,
    Unreadable,
    all_kinds,
    find_kind,
    register,
)
from apps.configcenter.engine.plain import MAX_BYTES, MAX_DEPTH, NotPlain, check_plain, digest_of
from tests.configcenter.factories import KIND, SampleKind

NAMES = st.text("abcname中", min_size=1, max_size=4)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
DATA = st.dictionaries(NAMES, PLAIN, max_size=4)


def deep(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (None, "a mapping"),
        ([], "a mapping"),
        ({"a": float("nan")}, "a: nan is no number"),
        ({"a": [1, float("inf")]}, r"a\[1\]: inf"),
        ({"a": 2**63}, "a: a whole number"),
        ({"a": {"b": "x\x00"}}, "a.b: a text has no character 0"),
        ({"a": "\ud800"}, "a: half a character"),
        ({"\udfff": 1}, "half a character"),
        ({1: 2}, "a name is a text"),
        ({"": 2}, "a name is a text"),
        ({"k" * 257: 2}, "a name is a text"),
        ({"a": b"x"}, "a: bytes is no plain value"),
        ({"a": (1,)}, "a: tuple is no plain value"),
        (deep(MAX_DEPTH + 1), "levels deep"),
        (deep(100_000), "levels deep"),
        ({"a": [0] * 100_001}, "at most 100000 values"),
        ({"a": "中" * (MAX_BYTES // 3)}, "bytes"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_place(data: Any, told: str) -> None:
    with pytest.raises(NotPlain, match=told):
        check_plain(data)


@pytest.mark.slow("3 s")
@given(DATA)
def test_what_can_be_kept_is_written_and_read_back(data: dict[str, Any]) -> None:
    kind = SampleKind()
    assert kind.read(kind.write(check_plain(data)).encode()) == data


@pytest.mark.slow("2 s")
@given(DATA)
def test_the_digest_minds_values_and_not_their_order(data: dict[str, Any]) -> None:
    turned = dict(reversed(list(data.items())))
    assert digest_of(turned) == digest_of(data)
    assert digest_of(data | {"another": 1}) != digest_of(data)


def test_true_is_not_one() -> None:
    assert digest_of({"a": True}) != digest_of({"a": 1}) != digest_of({"a": 1.0})
    assert [str(each) for each in changes({"a": True}, {"a": 1})] == ["~ a: true -> 1"]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"", "line 1, column 1: not JSON"),
        (b'{"a": 1,\n "b": }', "line 2, column 7: not JSON"),
        (b"[1]", "a mapping"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": 1e400}', "inf is no number"),
        (b'{"a": 1, "a": 2}', "duplicate name 'a'"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b"[" * 200_000, "nested too deep"),
        (b" " * (MAX_BYTES + 1), "at most"),
    ],
)
def test_a_bad_text_says_where(raw: bytes, told: str) -> None:
    with pytest.raises(Unreadable, match=told) as refused:
        SampleKind().read(raw, "a.json")
    assert refused.value.problems[0].place == "a.json"


def test_a_file_is_read_no_further_than_it_may_be_large(tmp_path: Any) -> None:
    file = tmp_path / "large.json"
    file.write_bytes(b"[" * (MAX_BYTES + 10))
    with pytest.raises(Unreadable, match="at most"):
        SampleKind().read_file(file)
    file.write_bytes('\ufeff{"name": "名"}'.encode())
    assert SampleKind().read_file(file) == {"name": "名"}


@pytest.mark.slow("3 s")
@given(DATA)
def test_equal_data_has_no_changes(data: dict[str, Any]) -> None:
    assert changes(data, data) == []


@pytest.mark.slow("4 s")
@given(DATA, DATA)
def test_different_data_has_changes(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert bool(changes(old, new)) == (digest_of(old) != digest_of(new))


def test_entries_are_told_apart_by_their_names() -> None:
    old = {"outbound": [{"name": "a", "retry": 3}, {"name": "b", "to": [1, 2]}, {"name": "c"}]}
    new = {
        "outbound": [
            {"name": "new"},
            {"name": "b", "to": [1, 5, 2]},
            {"name": "a", "retry": 5, "x": "中"},
        ],
        "limits": -1,
    }
    assert [str(each) for each in changes(old, new)] == [
        "~ outbound[a].retry: 3 -> 5",
        '+ outbound[a].x: "中"',
        "+ outbound[b].to[1]: 5",
        '- outbound[c]: {"name": "c"}',
        '+ outbound[new]: {"name": "new"}',
        '^ outbound: ["a", "b"] -> ["b", "a"]',
        "+ limits: -1",
    ]


def test_lists_without_names_are_compared_by_what_they_hold() -> None:
    old = {"codes": [1000, 1101, 7], "mixed": [{"name": "a"}, {"name": "a"}]}
    new = {"codes": [1101, 8], "mixed": [{"name": "a"}]}
    assert changes(old, new) == [
        DataChange("codes[0]", ChangeKind.REMOVED, before=1000),
        DataChange("codes[1]", ChangeKind.CHANGED, 7, 8),
        DataChange("mixed[1]", ChangeKind.REMOVED, before={"name": "a"}),
    ]


def test_huge_differences_end() -> None:
    old = {"long": list(range(5_000))}
    assert [c.place for c in changes(old, {"long": old["long"][1:]})] == ["long"]
    many = {f"k{n}": n for n in range(MOST_CHANGES + 5)}
    assert len(changes({}, many)) == MOST_CHANGES
    assert len(str(DataChange("a", ChangeKind.ADDED, after="x" * 9999))) < 300


def test_kinds_are_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_kinds", {})

    class Other(SampleKind):
        pass

    class Badly(SampleKind):
        name = "Not a name"

    register(SampleKind())
    register(SampleKind())
    with pytest.raises(ValueError, match="already"):
        register(Other())
    with pytest.raises(ValueError, match="cannot be the name"):
        register(Badly())
    assert [kind.name for kind in all_kinds()] == [KIND]
    assert find_kind(KIND).title == "Samples"
    with pytest.raises(kinds.UnknownKindName):
        find_kind("other")


def test_the_base_gives_all_but_the_check() -> None:
    class Least(ConfigKind):
        name = "least"
        title = "Least"

    kind = Least()
    assert kind.summary({"a": [1, 2], "b": "c"}) == "a: 2, b: c"
    assert str(DataProblem("", "x", "text")) == "text"
    with pytest.raises(NotImplementedError):
        kind.check({})
