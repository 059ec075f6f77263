"""What the tap between a center and its broker writes down, and how it is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.benches.tap import TappedBroker, percentiles, read
from yardkit import topology
from yardkit.broker import Broker, Outgoing, Subscription, connect
from yardkit.protocol import DownloadBatch, DownloadCommand, RequestItem, encode, encode_request
from yardkit.protocol.downloads import DownloadRequest

REQUEST = encode_request(DownloadRequest(url="https://site.example/"))


@pytest.fixture
def broker(sqlite_broker_url: str) -> Iterator[Broker]:
    broker = connect(sqlite_broker_url, name="test")
    broker.declare(topology.CENTER_REQUESTS, topology.agent_commands("a"))
    yield broker
    broker.close()


def items(*numbers: int, agent: str = "") -> list[RequestItem]:
    return [RequestItem(number, 1, "site.example", agent, REQUEST) for number in numbers]


def ask(broker: Broker, asked: list[RequestItem], sent_at: float) -> None:
    batch = DownloadBatch(run=7, token="t", reply_to="r", items=asked, sent_at=sent_at)
    key = topology.CENTER_REQUESTS.name
    broker.publish([Outgoing(body=encode(batch), key=key)]).result(10)


def dispatch(tapped: TappedBroker, subscription: Subscription, given: list[RequestItem]) -> None:
    deliveries = subscription.take(10, timeout=10)
    command = DownloadCommand(run=7, reply_to="r", items=given, dispatched_at=time.time())
    key = topology.agent_commands("a").name
    written = threading.Event()
    # Called after the tap's own callback, which was there first.
    future = tapped.publish([Outgoing(body=encode(command), key=key)])
    future.add_done_callback(lambda _: written.set())
    assert written.wait(10)
    subscription.ack(deliveries)


def test_each_request_is_timed_from_the_run_to_the_agent(broker: Broker, tmp_path: Path) -> None:
    tapped = TappedBroker(broker, tmp_path / "tap")
    subscription = tapped.subscribe(topology.CENTER_REQUESTS.name)
    ask(broker, items(1, 2), sent_at=time.time() - 2)
    dispatch(tapped, subscription, items(1, 2))
    passages = read(tmp_path / "tap")
    assert (passages.requests, passages.commands, passages.astray) == (2, 1, 0)
    assert all(2000 < one < 20_000 for one in passages.total)
    assert all(0 <= one < 2000 for one in passages.inside)


def test_what_does_not_go_to_the_agent_it_names_is_astray(broker: Broker, tmp_path: Path) -> None:
    tapped = TappedBroker(broker, tmp_path / "tap")
    subscription = tapped.subscribe(topology.CENTER_REQUESTS.name)
    asked = items(1, agent="a") + items(2, agent="b")
    ask(broker, asked, sent_at=time.time())
    dispatch(tapped, subscription, asked)
    assert read(tmp_path / "tap").astray == 1


def test_what_is_being_written_and_what_nobody_asked_for_is_left_out(
    broker: Broker, tmp_path: Path
) -> None:
    path = tmp_path / "tap"
    tapped = TappedBroker(broker, path)
    subscription = tapped.subscribe(topology.CENTER_REQUESTS.name)
    ask(broker, items(1), sent_at=time.time())
    dispatch(tapped, subscription, items(1, 99))
    whole = path.read_bytes()
    assert read(path).requests == 1
    path.write_bytes(whole[:-5])
    assert read(path).requests == 0


def test_percentiles_are_of_the_sorted_values() -> None:
    assert percentiles([float(value) for value in range(200, 0, -1)]) == {"p50": 101, "p99": 199}
    with pytest.raises(ValueError, match="nothing was measured"):
        percentiles([])
