"""JSON and MessagePack nested deeper than the platform's limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from apps.requeststore.engine.entity import Entity, decode_entity, encode_entity
from apps.requeststore.extraction.conversion import to_json
from apps.requeststore.extraction.page import Document
from apps.requeststore.queries.stories import result_of
from apps.requeststore.queues.entries import read_entry
from tests.requeststore.extraction.shortcuts import page
from yardkit.nesting import MAX_DEPTH

DEEP = b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1)
NESTED: Any = msgspec.json.decode(DEEP)


@pytest.mark.parametrize(
    "read",
    [
        lambda: encode_entity(Entity(url="http://a.test/", meta={"deep": NESTED})),
        lambda: decode_entity(b'{"url":"http://a.test/","deep":' + DEEP + b"}"),
        lambda: decode_entity(msgspec.msgpack.encode({"url": "http://a.test/", "deep": NESTED})),
        lambda: to_json(DEEP.decode(), Document(page(DEEP.decode()))),
        lambda: Document(page(DEEP.decode())).data,
        lambda: read_entry(b'{"id":1,"biz":"news","ts":1,"deep":' + DEEP + b"}"),
    ],
    ids=["encoded", "json", "msgpack", "rule", "page", "queue"],
)
def test_too_deep_is_refused_on_every_python(read: Callable[[], object]) -> None:
    with pytest.raises(Exception, match=f"nested deeper than {MAX_DEPTH} levels"):
        read()


def test_a_result_that_is_too_deep_is_text() -> None:
    assert result_of(DEEP) == DEEP.decode()
