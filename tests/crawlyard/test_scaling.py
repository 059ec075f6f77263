"""Fetchers of one box come and go with the work, as real processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import pytest
from django.db import DatabaseError

from crawlyard import scale_events
from crawlyard.scale_events import FetcherDemand, FetcherScale
from crawlyard.supervisor import Supervisor, Unit
from crawlyard.units import fetcher, fetcher_name

# Ends half a second after it was told to, with a last word.
DRAINS = (
    "import signal, sys, time;"
    "end = lambda *_: (time.sleep(0.3), print('drained', flush=True), sys.exit());"
    "signal.signal(signal.SIGTERM, end); print('up', flush=True); time.sleep(60)"
)


def unit(number: int) -> Unit:
    """Like ``units.fetcher``, without a platform around it."""
    return Unit(fetcher(number).name, [sys.executable, "-c", DRAINS])


class Box:
    """A supervisor with one fetcher, and the answers it is given."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.supervisor = Supervisor([unit(1)], lambda name, line: self.lines.append((name, line)))
        self.answer = self.wanted(1)
        self.asked = 0
        self.scale = FetcherScale(
            self.supervisor, lambda line: self.lines.append(("up", line)), self.ask, every=0.01
        )
        self.supervisor.start()
        self.scale.start()

    def wanted(self, number: int, *elsewhere: str, most: int = 4) -> FetcherDemand:
        return FetcherDemand(frozenset(elsewhere), number, most, "news: never at this pace")

    def ask(self) -> FetcherDemand:
        self.asked += 1
        if self.asked == 1:
            raise DatabaseError("away")
        return self.answer

    def until(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not happened():
            assert time.monotonic() < deadline, (self.lines, self.scale.numbers)
            self.supervisor.step(0.02)
            self.scale.step()

    def running(self) -> set[str]:
        return set(self.supervisor.pids())

    def told(self, name: str) -> list[str]:
        return [line for each, line in self.lines if each == name]


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    monkeypatch.setattr(scale_events, "fetcher", unit)
    box = Box()
    yield box
    box.scale.stop()
    box.supervisor.stop()


@pytest.mark.slow("1 s")
@pytest.mark.covers("S4.28")
def test_fetchers_are_started_and_the_youngest_stopped_gently(box: Box) -> None:
    box.answer = box.wanted(3)
    box.until(lambda: box.told("fetcher-3") == ["up"] and box.told("fetcher-2") == ["up"])
    assert box.running() == {"fetcher", "fetcher-2", "fetcher-3"}
    assert "fetchers: 1 here, 3 wanted here (3 in all): news: never at this pace" in box.told("up")
    box.answer = box.wanted(2, fetcher_name(1), fetcher_name(2), fetcher_name(3))
    box.until(lambda: "fetcher-3" not in box.running())
    assert box.told("fetcher-3") == ["up", "drained"]
    assert box.scale.numbers == [1, 2]
    assert box.supervisor.restarts() == 0
    # And again: the number is free by now.
    box.answer = box.wanted(3)
    box.until(lambda: box.told("fetcher-3") == ["up", "drained", "up"])


def test_never_none_and_never_more_than_the_setting(box: Box) -> None:
    box.answer = box.wanted(9, most=2)
    box.until(lambda: box.scale.numbers == [1, 2])
    box.answer = box.wanted(0)
    box.until(lambda: box.scale.numbers == [1])
    box.until(lambda: box.running() == {"fetcher"})


def test_fetchers_elsewhere_count(box: Box) -> None:
    box.answer = box.wanted(4, "other-fetcher-1", "other-fetcher-2", fetcher_name(1))
    box.until(lambda: box.scale.numbers == [1, 2])
    box.until(lambda: box.asked > 20)
    assert box.scale.numbers == [1, 2]


@pytest.mark.fault
def test_one_that_is_wanted_again_while_it_ends_comes_back(box: Box) -> None:
    box.answer = box.wanted(2)
    box.until(lambda: box.told("fetcher-2") == ["up"])
    box.answer = box.wanted(1)
    box.until(lambda: box.scale.numbers == [1])
    box.answer = box.wanted(2)
    box.until(lambda: box.told("fetcher-2") == ["up", "drained", "up"])
    assert box.running() == {"fetcher", "fetcher-2"}


@pytest.mark.fault
def test_one_that_does_not_listen_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawlyard.supervisor.RETIRE_SECONDS", 0.2)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    deaf += "print('up', flush=True); time.sleep(60)"
    lines: list[str] = []
    supervisor = Supervisor([], lambda name, line: lines.append(line))
    supervisor.add(Unit("fetcher-2", [sys.executable, "-c", deaf]))
    try:
        deadline = time.monotonic() + 20
        while "up" not in lines:
            supervisor.step(0.02)
            assert time.monotonic() < deadline
        supervisor.retire("fetcher-2")
        while supervisor.pids():
            supervisor.step(0.02)
            assert time.monotonic() < deadline
        assert lines[-1] == "fetcher-2 did not end in time: killed"
    finally:
        supervisor.stop()
