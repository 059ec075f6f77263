"""Content encodings: decoded, capped, and refused when they are not what they say."""

from __future__ import annotations

import gzip
import threading
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yardkit import content
from yardkit.content import BadContent, decode, decode_content

PAGE = b"<html>" + b"crawl the yard " * 400


def packed(body: bytes) -> bytes:
    """Without the time, which would be in the names of the tests."""
    return gzip.compress(body, mtime=0)


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "raw"),
    [
        ("gzip", packed(PAGE)),
        ("X-GZIP", packed(PAGE)),
        ("deflate", zlib.compress(PAGE)),
        ("deflate", raw_deflate(PAGE)),
        ("identity", PAGE),
        ("", PAGE),
        ("gzip, identity", packed(PAGE)),
        ("deflate, gzip", packed(zlib.compress(PAGE))),
        ("gzip", packed(PAGE[:50]) + packed(PAGE[50:])),
        ("gzip", packed(PAGE) + b"\0" * 32),
    ],
)
def test_encodings(encoding: str, raw: bytes) -> None:
    assert decode(raw, encoding, len(PAGE), partial=False) == (PAGE, False)


def test_output_is_cut_at_the_limit() -> None:
    assert decode(packed(PAGE), "gzip", 100, partial=False) == (PAGE[:100], True)
    two = packed(PAGE) + packed(PAGE)
    assert decode(two, "gzip", len(PAGE), partial=False) == (PAGE, True)


def test_a_cut_body_gives_what_it_holds() -> None:
    body, truncated = decode(packed(PAGE)[:-20], "gzip", len(PAGE), partial=True)
    assert PAGE.startswith(body)
    assert not truncated


@pytest.mark.parametrize(
    ("encoding", "raw", "words"),
    [
        ("br", PAGE, "'br' was not asked for"),
        ("gzip", PAGE, "gzip is broken"),
        ("gzip", packed(PAGE)[:-20], "ends too early"),
        ("deflate", b"\xff" * 50, "deflate is broken"),
        ("gzip, gzip, gzip, gzip", PAGE, "4 layers"),
    ],
)
def test_bad_content_is_refused(encoding: str, raw: bytes, words: str) -> None:
    with pytest.raises(BadContent, match=words):
        decode(raw, encoding, 10_000, partial=False)


@pytest.mark.slow("2 s")
def test_a_bomb_stays_small_in_memory() -> None:
    packer = zlib.compressobj(9, wbits=31)
    piece = b"\0" * (1 << 20)
    bomb = b"".join(packer.compress(piece) for _ in range(256)) + packer.flush()
    limit = 1 << 20
    tracemalloc.start()
    body, truncated = decode(bomb, "gzip", limit, partial=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(body), truncated) == (limit, True)
    assert peak < 4 * limit


def test_members_without_end_are_refused() -> None:
    # A few hundred bytes that stand for 50,000 members: minutes of work, were they all looked at
    # with what is behind them.
    bomb = packed(packed(packed(b"") * 50_000))
    assert len(bomb) < 500
    with pytest.raises(BadContent, match="gzip of more than 20000 members"):
        decode(bomb, "gzip, gzip, gzip", 2_000_000, partial=False)


def test_a_member_may_begin_and_end_anywhere() -> None:
    pieces = [bytes(range(256)) * 20, b"", PAGE * 3, b"x"]
    raw = b"".join(gzip.compress(piece, 0, mtime=0) for piece in pieces)
    assert decode(raw, "gzip", 100_000, partial=False) == (b"".join(pieces), False)


async def test_layers_are_decoded_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []

    def noted(*given: Any, **more: Any) -> tuple[bytes, bool]:
        used.append(threading.current_thread().name)
        return decode(*given, **more)

    monkeypatch.setattr(content, "decode", noted)
    raw = packed(packed(PAGE))
    assert await decode_content(raw, "gzip, gzip", 10_000, partial=False) == (PAGE, False)
    assert used != [threading.main_thread().name]


async def test_large_bodies_are_decoded_beside_the_loop() -> None:
    page = bytes(range(256)) * 4096
    packed = gzip.compress(page, 0)
    assert await decode_content(packed, "gzip", len(page), partial=False) == (page, False)


@given(st.binary(max_size=400), st.sampled_from(["gzip", "deflate", "gzip, deflate"]))
def test_no_bytes_break_it(raw: bytes, encoding: str) -> None:
    try:
        body, _ = decode(raw, encoding, 1000, partial=False)
    except BadContent:
        return
    assert len(body) <= 1000
