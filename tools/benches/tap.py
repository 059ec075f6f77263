"""How long a request is at the center, seen from outside of it.

``TappedBroker`` stands between a center and its broker and writes down when which message came and
went; nothing of the center itself is changed or asked. What was written is read afterwards, by
another process: the center only pays for one ``write`` a batch.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from yardkit import topology
from yardkit.broker import Broker, Delivery, Outgoing, Subscription
from yardkit.protocol import DownloadBatch, DownloadCommand, decode

_AGENTS: Final = topology.agent_commands("").name
_LENGTH: Final = struct.Struct("!I")


class _Record(msgspec.Struct, array_like=True):
    """Messages that came (``kind`` "in") or went ("out"), and the Unix seconds of that.

    ``began``: taken from the queue, or given to the broker; ``ended``: confirmed by the broker.
    ``keys`` are the queues of the agents that the messages went to.
    """

    kind: str
    began: float
    ended: float
    keys: list[str]
    bodies: list[bytes]


class TappedBroker:
    """A broker whose traffic of download requests is written to ``path``."""

    def __init__(self, broker: Broker, path: Path) -> None:
        self._broker = broker
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def subscribe(
        self, queue: str, *, prefetch: int = 100, on_ready: Callable[[], None] | None = None
    ) -> Subscription:
        """That of the requests is written down too."""
        subscription = self._broker.subscribe(queue, prefetch=prefetch, on_ready=on_ready)
        if queue != topology.CENTER_REQUESTS.name:
            return subscription
        return _TappedSubscription(subscription, self._write)

    def publish(self, messages: Sequence[Outgoing]) -> Future[None]:
        """What goes to agents is written down once it is confirmed."""
        began = time.time()
        future = self._broker.publish(messages)
        commands = [one for one in messages if one.key.startswith(_AGENTS)]
        if commands:
            keys, bodies = [one.key for one in commands], [one.body for one in commands]
            future.add_done_callback(partial(self._confirmed, began, keys, bodies))
        return future

    def _confirmed(
        self, began: float, keys: list[str], bodies: list[bytes], done: Future[None]
    ) -> None:
        if done.exception() is None:
            self._write(_Record("out", began, time.time(), keys, bodies))

    def _write(self, record: _Record) -> None:
        body = msgspec.msgpack.encode(record)
        os.write(self._file, _LENGTH.pack(len(body)) + body)


class _TappedSubscription:
    def __init__(self, subscription: Subscription, write: Callable[[_Record], None]) -> None:
        self._subscription = subscription
        self._write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subscription, name)

    def take(self, limit: int = 100, timeout: float = 0.0) -> list[Delivery]:
        deliveries = self._subscription.take(limit, timeout=timeout)
        if deliveries:
            now = time.time()
            self._write(_Record("in", now, now, [], [one.body for one in deliveries]))
        return deliveries


@dataclass(slots=True)
class Passages:
    """What went through a center, in milliseconds a request.

    Args:
        total: from the run's ``sent_at`` until the broker has confirmed the agent's command.
        inside: from the center's hands to the broker's, the part that is the center's own.
    """

    requests: int = 0
    commands: int = 0
    astray: int = 0
    total: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)


def read(path: Path) -> Passages:
    """What a tap has written so far.

    ``astray`` did not go to the agent that their run named (chained).
    """
    passages = Passages()
    came: dict[tuple[int, int, int], tuple[float, float]] = {}
    for record in _records(path):
        for body, key in zip(record.bodies, record.keys or [""] * len(record.bodies), strict=True):
            message = decode(body)
            if isinstance(message, DownloadBatch):
                for item in message.items:
                    came[message.run, item.id, item.attempt] = (message.sent_at, record.began)
            elif isinstance(message, DownloadCommand):
                passages.commands += 1
                for item in message.items:
                    known = came.pop((message.run, item.id, item.attempt), None)
                    if known is None:
                        continue
                    sent, taken = known
                    passages.requests += 1
                    passages.total.append(1000 * (record.ended - sent))
                    passages.inside.append(1000 * (record.began - taken))
                    passages.astray += item.agent not in ("", key.removeprefix(_AGENTS))
    return passages


def _records(path: Path) -> Iterator[_Record]:
    data = path.read_bytes()
    records, position = [], 0
    while position + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if position + length > len(data):
            break  # being written just now
        records.append(msgspec.msgpack.decode(data[position : position + length], type=_Record))
        position += length
    # Confirms are written by another thread: what came is looked at before what went.
    return iter(sorted(records, key=lambda one: one.began))


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The median and the 99th of a hundred. Raises ``ValueError`` without any value."""
    if not values:
        raise ValueError("nothing was measured")
    ordered = sorted(values)
    return {
        "p50": round(ordered[len(ordered) // 2], 2),
        "p99": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 2),
    }
