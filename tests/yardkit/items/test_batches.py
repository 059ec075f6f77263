"""Batches of items: what is damaged is refused, what is no item has a reason."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.yardkit.items.test_segments import batch_of
from yardkit.items.batches import MAX_BATCH_BYTES, encode_line, pack, read_batch
from yardkit.protocol import MAX_ITEM_BYTES, ItemBatch, ProtocolError


def changed(batch: ItemBatch, **fields: Any) -> ItemBatch:
    return msgspec.structs.replace(batch, **fields)


def raw_batch(*lines: bytes) -> ItemBatch:
    packed, size = pack(list(lines))
    return changed(batch_of([{}]), count=len(lines), lines=packed, raw_bytes=size)


GOOD = batch_of([{"a": 1}, {"a": 2}], url="https://shop.example/")


def test_items_and_their_addresses_come_back() -> None:
    found = read_batch(GOOD)
    assert [(item.url, item.raw, item.data, item.reason) for item in found] == [
        ("https://shop.example/", b'{"a":1}', {"a": 1}, ""),
        ("https://shop.example/", b'{"a":2}', {"a": 2}, ""),
    ]


@pytest.mark.covers("DS.1")
@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (changed(GOOD, count=3), "a batch of 2 items that is said to have 3"),
        (changed(GOOD, raw_bytes=0), "a batch of 0 bytes"),
        (changed(GOOD, raw_bytes=-1), "a batch of -1 bytes"),
        (changed(GOOD, raw_bytes=MAX_BATCH_BYTES + 1), f"at most {MAX_BATCH_BYTES}"),
        (changed(GOOD, raw_bytes=GOOD.raw_bytes + 1), "that is said to have"),
        (changed(GOOD, lines=GOOD.lines[:-3]), "damaged batch"),
        (changed(GOOD, lines=b""), "damaged batch"),
        (changed(GOOD, lines=b"no zstd at all"), "damaged batch"),
    ],
)
def test_a_damaged_batch_is_refused(batch: ItemBatch, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        read_batch(batch)


@pytest.mark.covers("DS.1")
def test_a_frame_is_not_unpacked_beyond_its_announced_size() -> None:
    bomb = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(200_000_000))
    with pytest.raises(ProtocolError):
        read_batch(changed(GOOD, lines=bomb))
    honest = zstandard.ZstdCompressor().compress(bytes(200_000_000))
    with pytest.raises(ProtocolError, match="200000000 bytes"):
        read_batch(changed(GOOD, lines=honest))


@settings(deadline=None)
@given(lines=st.binary(max_size=200), raw_bytes=st.integers(-5, 500), count=st.integers(-5, 500))
def test_any_bytes_are_refused_or_read(lines: bytes, raw_bytes: int, count: int) -> None:
    for content in (lines, zstandard.ZstdCompressor().compress(lines)):
        batch = changed(GOOD, lines=content, raw_bytes=raw_bytes, count=count)
        try:
            assert len(read_batch(batch)) == count
        except ProtocolError:
            continue


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{}", "not JSON"),
        (b'["",1]', "not a JSON object"),
        (b'["",null]', "not a JSON object"),
        (b'["",[1]]', "not a JSON object"),
        (b'["",{"a":NaN}]', "not JSON"),
        (b'["",{"a":1e999}]', "not a JSON object"),
        (b'["",{"a":"\xff"}]', "not a JSON object"),
        (rb'["",{"a":"\ud800"}]', "not JSON"),
        (b'["",{"a":' + b"[" * 200 + b"]" * 200 + b"}]", "not a JSON object"),
        (b'["",{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}]", "not"),
        (b'["",{"a":"' + b"x" * MAX_ITEM_BYTES + b'"}]', f"larger than {MAX_ITEM_BYTES} bytes"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_no_item_has_a_reason_and_the_others_are_kept(line: bytes, reason: str) -> None:
    before, bad, after = read_batch(raw_batch(encode_line("", {"a": 1}), line, b'["",{"a":2}]'))
    assert (before.data, after.data) == ({"a": 1}, {"a": 2})
    assert bad.reason.startswith(reason)
    assert not bad.data


def test_what_json_has_no_form_for_is_replaced_or_raises() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    assert encode_line("", {"at": at}) == b'["",{"at":"2026-03-01T00:00:00Z"}]'
    assert encode_line("\ud800", {"a": "x\udfffy", "at": at}) == (
        b'["?",{"a":"x?y","at":"2026-03-01T00:00:00Z"}]'
    )
    assert encode_line("", {"n": float("nan")}) == b'["",{"n":null}]'
    with pytest.raises(TypeError):
        encode_line("", {"o": object()})
