"""The scheduler: order and once only."""

from __future__ import annotations

import pytest

from yardspider import Request
from yardspider.scheduler import Scheduler


def take_all(scheduler: Scheduler) -> list[str]:
    return [scheduler.pop().url.removeprefix("http://h/") for _ in range(len(scheduler))]


def test_higher_priority_first_then_first_in_first_out() -> None:
    scheduler = Scheduler("run:1", 100)
    for name, priority in [("a", 0), ("b", 5), ("c", -1), ("d", 0), ("e", 5)]:
        assert scheduler.add(Request(f"http://h/{name}", priority=priority))
    assert len(scheduler) == 5
    assert take_all(scheduler) == ["b", "e", "a", "d", "c"]
    with pytest.raises(IndexError):
        scheduler.pop()


def test_a_request_is_queued_once_unless_it_says_otherwise() -> None:
    scheduler = Scheduler("run:1", 100)
    assert scheduler.add(Request("http://h/a"))
    assert not scheduler.add(Request("http://h/a#b"))
    scheduler.pop()
    assert not scheduler.add(Request("http://h/a"))
    assert scheduler.add(Request("http://h/a", dont_filter=True))
    assert scheduler.add(Request("http://h/a", method="HEAD"))
    assert take_all(scheduler) == ["a", "a"]


def test_an_endless_spider_forgets_its_oldest_requests_and_leaves_none_out() -> None:
    scheduler = Scheduler("run:1", 100)

    def add(number: int) -> bool:
        return scheduler.add(Request(f"http://h/{number}"))

    assert all(add(number) for number in range(100))
    assert not any(add(number) for number in range(100))
    assert all(add(number) for number in range(100, 1000))
    # The latest half is known for sure; the oldest are fetched again.
    assert not any(add(number) for number in range(950, 1000))
    assert all(add(number) for number in range(50))
    kept = scheduler._seen
    assert len(kept._young | kept._old) <= 100
