"""JSON and MessagePack nested deeper than the platform's limit."""

from __future__ import annotations

import msgspec
import pytest

from apps.seeds.engine.errors import BadCall
from apps.seeds.services.portable import BadLine, read_line
from apps.seeds.stores.operations import decode_operation
from yardkit.nesting import MAX_DEPTH

DEEP = b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1)


def test_a_line_that_is_too_deep_is_refused() -> None:
    with pytest.raises(BadLine, match=f"nested deeper than {MAX_DEPTH} levels"):
        read_line(b'{"data":"a","deep":' + DEEP + b"}", max_retry=1, now=0)


def test_an_operation_that_is_too_deep_is_refused() -> None:
    raw = msgspec.msgpack.encode({"type": "forget", "deep": msgspec.json.decode(DEEP)})
    with pytest.raises(BadCall, match=f"nested deeper than {MAX_DEPTH} levels"):
        decode_operation(raw)
