"""Errors of one kind have one fingerprint, whatever differs from case to case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.joblogs.engine.fingerprints import SHAPE_CHARACTERS, fingerprint, shape


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("took 3.25 s, try 2 of 3", "took <n> s, try <n> of <n>"),
        ("1,204 of 2_000 left", "<n> of <n> left"),
        ("GET https://Shop.example/p/7?x=1#a: 503", "GET https://shop.example/… <n>"),
        ("redis://10.0.0.1:6379/0 is away", "redis://10.0.0.1:6379/… is away"),
        ("host 192.168.1.17:8080 refused", "host <address> refused"),
        ("KeyError: 'title'", "KeyError: <text>"),
        ("no \"Content-Type\" in 'x y'", "no <text> in <text>"),
        ("don't stop, can't go", "don't stop, can't go"),
        ("解析“价格”失败，第 12 页", "解析<text>失败，第 <n> 页"),
        ("job 123e4567-e89b-12d3-a456-426614174000 died", "job <id> died"),
        ("commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "commit <id>"),
        ("at 0x7f3a2c0 in deadbeef1", "at <id> in <id>"),
        ("a decade of facade", "a decade of facade"),
        ("2026-03-01 11:59:58,250 - CRITICAL - fire", "<time> - CRITICAL - fire"),
        ("at 2026-03-01T11:59:58.250Z or 11:59:58", "at <time> or <time>"),
        ("cannot open /var/lib/x/7.json", "cannot open <path>"),
        ("either/or", "either/or"),
        ("a   b\tc", "a b c"),
        ("item7 of page12x", "item<n> of page<n>x"),
    ],
)
def test_what_differs_is_named(text: str, expected: str) -> None:
    assert shape(text) == expected


def test_the_logger_tells_kinds_apart() -> None:
    assert fingerprint("a", "no 1") == fingerprint("a", "no 22")
    assert fingerprint("a", "no 1") != fingerprint("b", "no 1")
    assert len(fingerprint("", "")) == 16


@given(st.text(max_size=400))
def test_any_text_has_a_short_shape(text: str) -> None:
    assert len(shape(text)) <= SHAPE_CHARACTERS
    assert fingerprint("x", text) == fingerprint("x", text)


@pytest.mark.parametrize(
    "text",
    ["'" * 20_000, '"' + "\\" * 20_000, "a" * 20_000, "1" * 20_000, "0x" * 10_000, "/a" * 10_000],
)
def test_no_text_takes_long(text: str) -> None:
    # The limit of time is that of every test: a pattern that tries again and again never ends.
    assert shape(text) == shape(text)
