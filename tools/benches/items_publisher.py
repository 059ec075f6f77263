"""One of the bench's publishers: an execution of a run, and a client that copies the same rows.

``python -m tools.benches.items_publisher`` reads a ``Plan`` as a line of JSON, makes its messages,
and answers. For each further line it works and answers again: "go" publishes the messages and waits
for every confirm; "rows" makes the peer's rows of the same items; "copy URL" copies them into the
peer's table. It ends with its input. What is made before is in nobody's time.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from concurrent.futures import Future
from typing import Any, Final

import msgspec
import psycopg

from tools.benches.items_goods import goods
from yardkit import topology
from yardkit.broker import Outgoing, connect
from yardkit.items.batches import encode_line, pack
from yardkit.protocol import ItemBatch, encode
from yardkit.protocol.items import BATCH_ITEMS
from yardkit.shared_queues import declare_shared

# Messages without a confirm; the SDK allows about as many bytes.
_MOST_UNCONFIRMED: Final = 16
_CONFIRM_SECONDS: Final = 120.0
_COPY_BYTES: Final = 1024 * 1024


class Plan(msgspec.Struct):
    """Items ``first`` to ``first + count - 1`` of the shop, sent by ``boot`` of ``run``."""

    broker: str
    run: int
    token: str
    boot: str
    first: int
    count: int


class Publisher:
    """The messages of one execution."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rows: list[bytes] = []
        self._bodies: list[bytes] = []
        self.raw_bytes = 0
        lines: list[bytes] = []
        for url, item in goods(plan.first, plan.first, plan.count):
            lines.append(encode_line(url, item))
            if len(lines) == BATCH_ITEMS:
                self._add(lines)
                lines = []
        if lines:
            self._add(lines)

    def _add(self, lines: list[bytes]) -> None:
        plan = self._plan
        packed, size = pack(lines)
        self.raw_bytes += sum(len(line) for line in lines)
        batch = ItemBatch(
            producer=f"run:{plan.run}",
            boot=plan.boot,
            first=len(self._bodies) * BATCH_ITEMS + 1,
            count=len(lines),
            lines=packed,
            raw_bytes=size,
            at=time.time(),
            token=plan.token,
        )
        self._bodies.append(encode(batch))

    def publish(self) -> None:
        """Publish all messages, a few ahead of their confirms."""
        broker = connect(self._plan.broker, name=f"crawlyard bench {self._plan.boot}")
        declare_shared(broker)
        waiting: deque[Future[None]] = deque()
        for body in self._bodies:
            waiting.append(broker.publish([Outgoing(body, key=topology.ITEMS.name)]))
            if len(waiting) >= _MOST_UNCONFIRMED:
                waiting.popleft().result(_CONFIRM_SECONDS)
        for future in waiting:
            future.result(_CONFIRM_SECONDS)
        broker.close(_CONFIRM_SECONDS)

    def make_rows(self) -> None:
        """Write the same items as the lines of PostgreSQL's COPY."""
        plan = self._plan
        block: list[bytes] = []
        size = 0
        items = goods(plan.first, plan.first, plan.count)
        for seq, (url, item) in enumerate(items, 1):
            text = msgspec.json.encode(item).replace(b"\\", b"\\\\")
            block.append(
                b"%d\t%s\t%d\t%s\t%s\n" % (plan.run, plan.boot.encode(), seq, url.encode(), text)
            )
            size += len(block[-1])
            if size >= _COPY_BYTES:
                self._rows.append(b"".join(block))
                block, size = [], 0
        self._rows.append(b"".join(block))

    def copy(self, url: str) -> None:
        """Copy the rows in one transaction, which costs the peer least."""
        with (
            psycopg.connect(url) as connection,
            connection.cursor() as cursor,
            cursor.copy("COPY items (run, boot, seq, url, item) FROM STDIN") as copy,
        ):
            for block in self._rows:
                copy.write(block)


def main() -> None:
    """Do what the lines of the input say."""
    publisher = Publisher(msgspec.json.decode(sys.stdin.readline(), type=Plan))
    _answer(json_bytes=publisher.raw_bytes)
    for line in sys.stdin:
        word, _, argument = line.strip().partition(" ")
        began = time.monotonic()
        if word == "go":
            publisher.publish()
        elif word == "rows":
            publisher.make_rows()
        else:
            publisher.copy(argument)
        _answer(seconds=time.monotonic() - began)


def _answer(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
