"""Counting second by second, as bounded as it is complete."""

from __future__ import annotations

import random
import threading

import pytest

from yardkit.clock import ManualClock
from yardkit.protocol import SampleKind, Samples, decode, encode
from yardkit.rates import UNCONFIRMED, WAITING_HOURS, WAITING_MINUTES, WAITING_SECONDS, Rates

CREATED = "requests.created"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def rates(clock: ManualClock) -> Rates:
    return Rates("web 1", "b1", clock.time)


def total(messages: list[Samples]) -> float:
    return sum(note.value for message in messages for note in message.samples)


@pytest.mark.covers("S4.24", "S4.25")
def test_a_second_is_reported_once_it_is_over(rates: Rates, clock: ManualClock) -> None:
    first = int(clock.time())
    rates.add(CREATED, 7, "news", 3)
    rates.add(CREATED, 7, "news", 4)
    rates.add(CREATED, 7, "blogs")
    assert rates.reports() == []
    assert rates.waiting
    clock.advance(1)
    rates.add(CREATED, 7, "news", 5)
    (message,) = rates.reports()
    assert {(note.second, note.label, note.value) for note in message.samples} == {
        (first, "news", 7.0),
        (first, "blogs", 1.0),
    }
    assert decode(encode(message)) == message
    rates.sent([message])
    clock.advance(1)
    (later,) = rates.reports()
    assert [(note.second, note.value) for note in later.samples] == [(first + 1, 5.0)]
    assert later.seq == message.seq + 1
    rates.sent([later])
    assert not rates.waiting


def test_an_unconfirmed_report_comes_again_as_it_was(rates: Rates, clock: ManualClock) -> None:
    rates.add(CREATED, 7, "news", 3)
    clock.advance(1)
    (first,) = rates.reports()
    rates.add(CREATED, 7, "news", 5)
    clock.advance(1)
    again, second = rates.reports()
    assert (again.seq, again.samples) == (first.seq, first.samples)
    assert again.sent_at == first.sent_at + 1, "the receiver judges the clock by its last sending"
    assert total([second]) == 5


def test_the_end_reports_the_second_that_has_begun(rates: Rates) -> None:
    rates.add(CREATED, 7, "news", 3)
    assert total(rates.reports(ending=True)) == 3


def test_a_gauge_keeps_mean_and_peak(rates: Rates, clock: ManualClock) -> None:
    for value in (4, 9, 2):
        rates.gauge("queue.waiting", 7, "news", value)
    clock.advance(1)
    (message,) = rates.reports()
    (note,) = message.samples
    assert (note.kind, note.value, note.count, note.highest) == (SampleKind.GAUGE, 15.0, 3, 9.0)


@pytest.mark.fault
def test_memory_is_bounded_while_nobody_confirms_and_no_sum_is_lost(
    rates: Rates, clock: ManualClock
) -> None:
    added = 0
    seconds = WAITING_SECONDS + WAITING_MINUTES * 60 + 2 * 3600
    for second in range(seconds):
        rates.add(CREATED, 7, "news", second)
        added += second
        clock.advance(1)
        if second % 7 == 0:
            rates.reports()
    # A whole week, counted each hour.
    for hour in range(7 * 24):
        rates.add(CREATED, 7, "news", hour)
        added += hour
        clock.advance(3600)
    assert rates.coarsened > 0
    found: list[Samples] = []
    rounds = 0
    while rates.waiting:
        messages = rates.reports()
        assert len(messages) <= UNCONFIRMED
        found += messages
        rates.sent(messages)
        rounds += 1
        assert rounds < 20
    assert total(found) == added
    spreads = {note.spread for message in found for note in message.samples}
    assert spreads == {1, 60, 3600}
    notes = sum(len(message.samples) for message in found)
    assert notes <= UNCONFIRMED * 8 + WAITING_SECONDS + WAITING_MINUTES + WAITING_HOURS + 3
    assert all(n.second % n.spread == 0 for m in found for n in m.samples)


def test_a_clock_that_jumps_loses_nothing(rates: Rates, clock: ManualClock) -> None:
    chance = random.Random(4)
    added = 0
    found: list[Samples] = []
    for _ in range(300):
        rates.add(CREATED, 7, "news", 2)
        added += 2
        clock.jump(chance.choice([-3600, -1.5, 0.3, 1, 7200]))
        messages = rates.reports()
        found += messages
        rates.sent(messages)
    found += rates.reports(ending=True)
    assert total(found) == added


def test_threads_lose_nothing() -> None:
    rates = Rates("web 1", "b1")
    found: list[Samples] = []
    over = threading.Event()

    def count() -> None:
        for _ in range(20_000):
            rates.add(CREATED, 7, "news")

    def send() -> None:
        while not over.is_set():
            messages = rates.reports(ending=True)
            found.extend(messages)
            rates.sent(messages)

    sender = threading.Thread(target=send)
    sender.start()
    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    sender.join()
    found += rates.reports(ending=True)
    assert total(found) == 80_000
    assert len({message.seq for message in found}) == len(found)
