"""Deliveries read in one pass are what pika would have read, however the bytes come."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pika.adapters.select_connection import IOLoop
from pika.channel import Channel
from pika.exceptions import InvalidFrameError
from pika.frame import Body, Header, Heartbeat, Method

from yardkit.broker.rabbitmq_connection import Connection

NUMBER = 3
CONSUMER = "consumer 1"
PLAIN = pika.BasicProperties(delivery_mode=2, message_id="id", app_id="crawlyard 7")
FULL = pika.BasicProperties(
    content_type="application/json",
    content_encoding="utf-8",
    headers={"trace": "a", "deaths": [{"count": 1}]},
    delivery_mode=1,
    priority=4,
    correlation_id="c",
    reply_to="r",
    expiration="900",
    message_id="full",
    timestamp=1_700_000_000,
    type="t",
    user_id="guest",
    app_id="x",
    cluster_id="y",
)
TYPED = pika.BasicProperties(content_type="text/plain", content_encoding="gzip", message_id="typed")


class Reader:
    """A connection with one channel and one consumer, fed by hand."""

    def __init__(self, *, plainly: bool) -> None:
        loop = IOLoop()
        self.connection = Connection(custom_ioloop=loop, internal_connection_workflow=False)
        loop.close()
        self.read: list[tuple[Any, ...]] = []
        self.plain = 0
        for number in (NUMBER, NUMBER + 1):
            channel = Channel(self.connection, number, lambda _: None)
            channel._consumers[CONSUMER] = self._by_pika
            self.connection._channels[number] = channel
        if plainly:
            self.connection.read_plain(NUMBER, self._by_us)

    def feed(self, data: bytes, at_once: int) -> None:
        for start in range(0, len(data), at_once):
            self.connection._on_data_available(data[start : start + at_once])

    def _by_pika(self, channel: Channel, method: Any, properties: Any, body: bytes) -> None:
        way = method.delivery_tag, method.redelivered, method.exchange, method.routing_key
        told = properties.priority, properties.headers, properties.correlation_id
        self.read.append((*way, properties.message_id or "", *told, body))

    def _by_us(self, *read: Any) -> None:
        self.plain += 1
        *way, properties, message_id, body = read
        told = (None, None, None)
        if properties is not None:
            told = properties.priority, properties.headers, properties.correlation_id
        self.read.append((*way, message_id, *told, body))


def message(
    tag: int,
    properties: pika.BasicProperties = PLAIN,
    body: bytes = b"{}",
    *,
    pieces: int = 1,
    channel: int = NUMBER,
    key: str = "a queue",
    between: bytes = b"",
) -> bytes:
    """The frames of one delivery; ``between`` stands before each but the first."""
    method = pika.spec.Basic.Deliver(CONSUMER, tag, tag % 2 == 0, "", key)
    size = -(-len(body) // pieces)
    frames = [
        Method(channel, method).marshal(),
        Header(channel, len(body), properties).marshal(),
        *(Body(channel, body[at : at + size]).marshal() for at in range(0, len(body), size or 1)),
    ]
    return between.join(frames)


STREAM = b"".join(
    [
        message(1),
        message(2, FULL),
        message(3, TYPED, b"x" * 5000),
        message(4, PLAIN, b""),
        message(5, PLAIN, b"y" * 9000, pieces=3),
        message(6, channel=NUMBER + 1),
        Heartbeat().marshal(),
        message(7, pika.BasicProperties(), key="Schlüssel"),
        message(8, key="Schlüssel", between=Heartbeat().marshal()),
        message(9, body=b"z" * 300),
    ]
)


@pytest.mark.parametrize("at_once", [1, 5, 64, 1000, 65536])
def test_all_shapes_are_read_as_pika_reads_them(at_once: int) -> None:
    theirs, ours = Reader(plainly=False), Reader(plainly=True)

    theirs.feed(STREAM, at_once)
    ours.feed(STREAM, at_once)

    assert [read[0] for read in theirs.read] == list(range(1, 10))
    assert ours.read == theirs.read
    # All but those of three body frames, of the other channel, and with something in between.
    assert ours.plain == 6
    assert ours.connection.bytes_received == theirs.connection.bytes_received == len(STREAM)


def test_what_is_not_as_it_should_be_is_left_to_pika() -> None:
    ours = Reader(plainly=True)
    bad = message(2)[:-1] + b"\x00"

    with pytest.raises(InvalidFrameError):
        ours.feed(message(1) + bad, 65536)

    assert [read[0] for read in ours.read] == [1]


def test_a_name_in_no_known_letters_is_read_by_pika() -> None:
    theirs, ours = Reader(plainly=False), Reader(plainly=True)
    odd = message(1).replace(b"\x02id", b"\x02\xff\xfe") + message(2)

    theirs.feed(odd, 65536)
    ours.feed(odd, 65536)

    assert ours.read == theirs.read
    assert theirs.read[0][4] == b"\xff\xfe"
    assert ours.plain == 1


def test_a_channel_that_is_let_go_is_read_by_pika() -> None:
    ours = Reader(plainly=True)
    ours.feed(message(1), 65536)
    ours.connection.read_all(NUMBER)
    ours.feed(message(2), 65536)

    assert [read[0] for read in ours.read] == [1, 2]
    assert ours.plain == 1
