"""Contract of all inbounds, on real servers."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from apps.routing.engine.inbounds.base import Inbound, InboundClosed
from tests.routing.engine.inbounds.sources import Factory, KafkaSource, Source, take, wait_for

ROOT = Path(__file__).parents[4]


def values(count: int, first: int = 0) -> list[bytes]:
    return [json.dumps({"number": number}).encode() for number in range(first, first + count)]


def test_it_is_an_inbound(maker: Factory) -> None:
    assert isinstance(maker.make(), Inbound)


@pytest.mark.slow("1 s")
@pytest.mark.covers("S2.17")
def test_everything_that_is_put_in_comes_out_once_and_in_order(maker: Factory) -> None:
    wanted = [*values(40), b"\xff\xfe no item", *values(40, first=40)]
    maker.source.put(wanted)
    inbound = maker.make()
    taken = take(inbound, len(wanted), most=7)
    assert [each.raw for each in taken] == wanted
    assert len({each.where for each in taken}) == len(wanted)
    inbound.ack([each.handle for each in reversed(taken)])
    inbound.close()
    wait_for(lambda: maker.source.left() == 0, "the server to know of all acks")


@pytest.mark.slow("2 s")
def test_no_more_than_agreed_are_out_at_once(maker: Factory) -> None:
    maker.source.put(values(10))
    inbound = maker.make(in_flight=3)
    taken = take(inbound, 3)
    assert inbound.take(10, 0.3) == []
    inbound.ack([taken[1].handle])
    more = take(inbound, 1)
    assert inbound.take(10, 0.3) == []
    inbound.ack([each.handle for each in (taken[0], taken[2], more[0])])
    assert [each.raw for each in take(inbound, 3)] == values(3, first=4)


@pytest.mark.slow("9 s")
def test_what_a_killed_router_had_comes_again(maker: Factory) -> None:
    maker.source.hasten()
    maker.source.put(values(12))
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.routing.engine.inbounds.consumer_process",
            maker.order(5, acks=3),
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
    ) as router:
        assert router.stdout is not None
        taken = [value.encode() for value in json.loads(router.stdout.readline())]
        assert taken == values(8)
        if not maker.source.cls.startswith("rabbitmq."):  # there the taker itself has waited
            wait_for(lambda: maker.source.left() == 9, "the acks to arrive")
        router.kill()
    inbound = maker.make()
    again = take(inbound, 9)
    assert sorted(each.raw for each in again) == sorted(values(9, first=3))
    inbound.ack([each.handle for each in again])
    inbound.close()
    wait_for(lambda: maker.source.left() == 0, "nothing to be left")


@pytest.mark.slow("4 s")
def test_what_a_closed_inbound_had_comes_again(maker: Factory) -> None:
    maker.source.put(values(6))
    first = maker.make()
    taken = take(first, 4)
    first.ack([each.handle for each in taken[:2]])
    first.close()
    first.close()
    with pytest.raises(InboundClosed):
        first.take(1, 0)
    wait_for(lambda: maker.source.left() == 4, "the acks to arrive")
    assert [each.raw for each in take(maker.make(), 4)] == values(4, first=2)


@pytest.mark.slow("3 s")
def test_what_is_given_back_comes_again(maker: Factory) -> None:
    maker.source.put(values(3))
    first = maker.make()
    taken = take(first, 3)
    first.ack([taken[0].handle])
    first.back([taken[2].handle, taken[1].handle])
    again = take(first, 2)
    assert [each.raw for each in again] == values(2, first=1)
    first.back([each.handle for each in again])
    first.close()
    assert [each.raw for each in take(maker.make(), 2)] == values(2, first=1)


@pytest.mark.slow("2 s")
def test_two_share_without_doubles(maker: Factory) -> None:
    both = [maker.make(in_flight=4), maker.make(in_flight=4)]
    found: list[bytes] = []
    done = threading.Event()

    def work(inbound: Inbound) -> None:
        while not done.is_set():
            taken = inbound.take(3, 0.1)
            found.extend(each.raw for each in taken)
            inbound.ack([each.handle for each in taken])

    threads = [threading.Thread(target=work, args=(inbound,)) for inbound in both]
    for thread in threads:
        thread.start()
    try:
        if isinstance(maker.source, KafkaSource):
            # While partitions still change hands an item may come to both.
            wait_for(lambda: all(len(each._parts) == 2 for each in both), "both to have a share")  # type: ignore[attr-defined]
            for partition in range(4):
                maker.source.put(values(10, first=10 * partition), partition)
        else:
            maker.source.put(values(40))
        wait_for(lambda: len(found) >= 40, "all items to come")
    finally:
        done.set()
        for thread in threads:
            thread.join()
    for inbound in both:
        inbound.close()
    assert sorted(found) == sorted(values(40))
    wait_for(lambda: maker.source.left() == 0, "the server to know of all acks")
    assert [inbound.late for inbound in both] == [0, 0]


@pytest.mark.slow("2 s")
def test_depth_is_what_waits(maker: Factory) -> None:
    maker.source.put(values(10))
    inbound = maker.make(in_flight=2)
    take(inbound, 2)
    wait_for(lambda: inbound.depth() == 8, "the depth to be known")


@pytest.mark.slow("2 s")
def test_it_lives_through_the_loss_of_its_server(maker: Factory, source: Source) -> None:
    source.put(values(2))
    inbound = maker.make()
    taken = take(inbound, 2)
    with source.outage():
        inbound.ack([taken[0].handle])
        assert inbound.take(5, 0.5) == []
    source.put(values(1, first=2))
    found = [taken[1]]

    def has_come() -> bool:
        found.extend(inbound.take(5, 0.2))
        return found[-1].raw == values(1, first=2)[0]

    wait_for(has_come, "the new item")
    wait_for(lambda: inbound.take(1, 0.1) == [] and inbound.problem == "", "all to be well")
    inbound.ack([each.handle for each in found])
    inbound.close()
    wait_for(lambda: source.left() == 0, "the server to know of all acks")
