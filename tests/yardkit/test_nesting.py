"""The limit of depth, well below the interpreter's recursion limit, so it is not what is tested."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yardkit.nesting import MAX_DEPTH, NestedTooDeeply, check_json, check_msgpack
from yardkit.protocol import Event, ProtocolError, decode, encode

Check = Callable[[bytes], None]


def _refused(check: Check, body: bytes) -> bool:
    try:
        check(body)
    except NestedTooDeeply:
        return True
    return False


@pytest.mark.parametrize("depth", [1, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 300, 100_000])
@pytest.mark.parametrize(
    ("check", "opening", "closing", "beside"),
    [
        (check_json, b"[", b"]", 0),
        (check_json, b'{"a":', b"}", 0),
        (check_json, b' ["]]]", [], ', b" ]", 1),
        (check_json, b'[{"a":[1]}, ', b"]", 2),
        (check_msgpack, b"\x91", b"", 0),
        (check_msgpack, b"\x81\xa1a", b"", 0),
        (check_msgpack, b"\xde\x00\x01\x01", b"", 0),
        (check_msgpack, b"\xdc\x00\x02\x90", b"", 1),
        (check_msgpack, b"\x92\xd9\x20" + b"\xe7" * 32, b"", 0),
    ],
)
def test_depth_is_limited_wherever_it_is_hidden(
    check: Check, opening: bytes, closing: bytes, beside: int, depth: int
) -> None:
    """``beside``: levels of a value beside the innermost, in the same container."""
    body = opening * depth + (b"1" if check is check_json else b"\x01") + closing * depth
    assert _refused(check, body) is (depth + beside > MAX_DEPTH)


@pytest.mark.parametrize(
    ("check", "encoder"),
    [(check_json, msgspec.json.encode), (check_msgpack, msgspec.msgpack.encode)],
)
def test_wide_documents_pass(check: Check, encoder: Callable[[object], bytes]) -> None:
    check(encoder([{"id": n, "x": [{"y": [[]]}], "text": "[[{{网页" * 90} for n in range(3000)]))
    check(encoder({"bodies": [b"\x91" * 5000] * 9, "text": "[" * 5000}))
    check(encoder("[" * 5000))


@pytest.mark.parametrize("body", [b"", b" ", b"[" * 50, b"\xc1", b"[1,", b"nothing", b"\xdd\xff"])
def test_other_mistakes_are_left_to_the_decoder(body: bytes) -> None:
    check_json(body)
    check_msgpack(body)


@pytest.mark.parametrize("behind", [b"", b"]", b"oops", b'"', b',"\\'])
def test_a_malformed_document_is_refused_for_its_depth_first(behind: bytes) -> None:
    assert _refused(check_json, b'["]",' * (MAX_DEPTH + 1) + behind)
    assert not _refused(check_json, b'["[",' * MAX_DEPTH + behind)


def test_a_malformed_document_is_judged_in_linear_time() -> None:
    # Strings without an end: each quote would begin one anew.
    check_json(b"[" * (MAX_DEPTH - 1) + b'"' + b'\\"[' * 300_000)


values = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(alphabet='[{]}"\\\x91\x81é', max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=60,
)


def _depth(value: object) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


@given(values, st.integers(1, 6))
def test_the_depth_is_exact(value: object, limit: int) -> None:
    for check, encoder in (
        (check_json, msgspec.json.encode),
        (check_msgpack, msgspec.msgpack.encode),
    ):
        if _depth(value) > limit:
            with pytest.raises(NestedTooDeeply):
                check(encoder(value), limit)
        else:
            check(encoder(value), limit)


def _event(depth: int, field: str) -> bytes:
    """A message with so deep a value in a field of free form, or in one that it does not have."""
    whole = encode(Event(kind="x", payload={"at": "here"}))
    deep = b"\x91" * depth + b"\xc0"
    if field == "payload":
        return whole.replace(b"\xa4here", deep)
    return bytes([whole[0] + 1]) + whole[1:] + b"\xa7unknown" + deep


@pytest.mark.parametrize("field", ["payload", "unknown"])
def test_messages_nested_too_deeply_are_refused(field: str) -> None:
    decode(_event(MAX_DEPTH - 3, field))
    with pytest.raises(ProtocolError, match="nested deeper than 100 levels"):
        decode(_event(MAX_DEPTH + 1, field))
