"""Requests: what is refused, what makes two of them the same."""

from __future__ import annotations

import hashlib

import pytest

from yardkit.protocol import (
    MAX_CONTENT_BYTES,
    MAX_MESSAGE_BYTES,
    DownloadBatch,
    RequestItem,
    batches,
    decode_request,
    encode,
    encode_request,
)
from yardspider import Request


@pytest.mark.covers("S1.41")
def test_the_fingerprint_is_of_owner_url_method_body_and_cookie() -> None:
    def mark(owner: str = "run:1", url: str = "http://h/", **options: object) -> bytes:
        return Request(url, **options).fingerprint(owner)  # type: ignore[arg-type]

    same = mark()
    assert len(same) == hashlib.md5(usedforsecurity=False).digest_size
    assert mark(url="http://h/#part") == same
    assert mark(depth=7) == same
    assert mark(priority=3, meta={"a": 1}, headers={"X-Other": "1"}) == same
    different = [
        mark(owner="run:2"),
        mark(url="http://h/?"),
        mark(method="POST"),
        mark(body="x"),
        mark(headers={"cookie": "a=1"}),
        mark(headers={"Cookie": "a=2"}),
    ]
    assert len({same, *different}) == len(different) + 1


def test_parts_of_a_fingerprint_do_not_run_together() -> None:
    one = Request("http://h/a", headers={"Cookie": "x\ty"}).fingerprint("o")
    two = Request("http://h/a", headers={"Cookie": "x"}, body="y").fingerprint("o")
    assert one != two


@pytest.mark.parametrize(
    "options",
    [
        {"method": "GE T"},
        {"method": ""},
        {"headers": {"X": "a\r\nEvil: 1"}},
        {"headers": {"X Y": "a"}},
        {"headers": {"X": 3}},
        {"body": b"x" * (MAX_CONTENT_BYTES + 1)},
    ],
)
def test_what_cannot_be_sent_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"method|header|body"):
        Request("http://h/", **options)  # type: ignore[arg-type]


def test_what_the_agent_gets() -> None:
    request = Request(
        "http://Bücher.example/a b#x",
        method="post",
        headers={"X-A": "é"},
        body="ü",
        timeout_seconds=2.5,
    )
    sent = decode_request(encode_request(request.download()))
    assert (sent.url, sent.method, sent.body) == ("http://Bücher.example/a b", "POST", b"\xc3\xbc")
    assert (sent.headers, sent.timeout_seconds) == ({"X-A": "é"}, 2.5)
    assert request.host == "bücher.example"


def test_requests_are_split_into_messages_that_fit() -> None:
    def item(number: int, size: int) -> RequestItem:
        raw = encode_request(Request("http://h/", body=b"x" * size).download())
        return RequestItem(number, 1, "h", "", raw)

    assert [len(batch) for batch in batches([item(n, 0) for n in range(120)], 50)] == [50, 50, 20]
    large = [item(0, MAX_CONTENT_BYTES), *(item(n, MAX_CONTENT_BYTES // 3) for n in range(1, 8))]
    split = list(batches(large, 50))
    assert [one.id for batch in split for one in batch] == list(range(8))
    for batch in split:
        message = DownloadBatch(run=1, token="t", reply_to="q", items=batch, sent_at=0.0)
        assert len(encode(message)) < MAX_MESSAGE_BYTES
    assert list(batches([], 50)) == []
