"""The engine: told to pause, to go on and to exit; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.yardspider.crawls import FAST, Follow, One, changed, check_books, check_counters
from yardkit.protocol import DownloadRequest, Lifecycle, RequestItem, RunAction
from yardspider import Request, Spider
from yardspider.lifecycle import CommandHandler
from yardspider.testing import (
    CrawlResult,
    FakeCenter,
    HeldBack,
    NoAnswer,
    Page,
    PageLike,
    Pages,
    Refusal,
    Skip,
    Slow,
    crawl,
)
from yardspider.transports.base import AgentAllocation

PAUSE, RESUME, EXIT = RunAction.PAUSE, RunAction.RESUME, RunAction.EXIT


class Told(FakeCenter):
    """Is told things at their times, in seconds since the beginning; notes when it sends what."""

    def __init__(self, pages: Pages, *commands: tuple[float, RunAction], **options: Any) -> None:
        super().__init__(pages, **options)
        self.begin = self.clock.now()
        self.sent: list[tuple[float, str]] = []
        for number, (seconds, action) in enumerate(commands, 1):
            self.at(seconds, action, number)

    def at(self, seconds: float, action: RunAction, number: int) -> None:
        self.clock.call_later(seconds, lambda: self.tell(action, number))

    @property
    def seconds(self) -> float:
        return self.clock.now() - self.begin

    def send(self, items: Sequence[RequestItem]) -> None:
        before = len(self.requests)
        super().send(items)
        self.sent += [(self.seconds, request.url) for request in self.requests[before:]]

    def sent_between(self, begin: float, end: float) -> list[str]:
        return [url for seconds, url in self.sent if begin < seconds < end]

    @property
    def said(self) -> list[tuple[int, bool, str]]:
        return [(one.command, one.accepted, one.reason) for one in self.commands]


class Steady(Spider):
    """A page a second."""

    settings = changed(speed=1.0)
    start_urls = [f"http://h/{number}" for number in range(20)]


async def play(spider: Any, center: FakeCenter) -> CrawlResult:
    result = await crawl(spider, center)
    check_books(result)
    return result


# --- pausing ------------------------------------------------------------------------------------


@pytest.mark.slow("2 s")
@pytest.mark.covers("S1.8", "S1.9", "S1.11")
async def test_nothing_is_sent_while_paused_and_the_run_goes_on_where_it_was() -> None:
    center = Told(lambda request: "", (5.5, PAUSE), (600, RESUME))
    result = await play(Steady, center)
    assert len(center.sent_between(0, 5.5)) == 5
    assert center.sent_between(5.5, 600) == []
    assert sorted(url for _, url in center.sent) == sorted(Steady.start_urls)
    assert (result.outcome.state, result.counters.success) == ("exited", 20)
    assert center.said == [(1, True, ""), (2, True, "")]
    # One a second again, not all that were missed at once.
    assert result.outcome.seconds == pytest.approx(613, abs=1.5)


@pytest.mark.covers("S1.11")
async def test_what_is_on_its_way_is_still_handled_while_paused() -> None:
    found: list[float] = []

    class Late(Follow):
        settings = FAST

        def parse(self, response: Any) -> Any:
            found.append(center.seconds)
            yield Request("http://h/next")

    center = Told(lambda request: Slow(10, ""), (1, PAUSE), (60, RESUME))
    result = await play(Late, center)
    assert found == pytest.approx([10, 70], abs=0.1)
    assert center.sent_between(1, 60) == []
    assert result.counters.success == 2


async def test_a_pause_is_answered_when_nothing_is_on_its_way_any_more() -> None:
    class Answered(Told):
        def answer_command(self, answer: Any) -> None:
            super().answer_command(answer)
            times.append(self.seconds)

    times: list[float] = []
    await play(One, Answered(lambda request: Slow(3, ""), (1, PAUSE), (60, RESUME)))
    assert times == pytest.approx([3, 60], abs=0.1)

    times.clear()
    center = Answered(lambda request: Slow(30, ""), (1, PAUSE), (60, RESUME))
    await play(changed_one(request_timeout_seconds=40), center)
    assert times == pytest.approx([6, 60], abs=0.1)
    assert center.said[0] == (1, True, "1 requests are still on their way")


def changed_one(**values: Any) -> type[One]:
    return type("Changed", (One,), {"settings": changed(**values)})


@pytest.mark.covers("S1.11", "S1.43")
async def test_time_outs_do_not_run_while_paused() -> None:
    """Sent at 0, paused from 5 to 105: of its 15 s 10 are left."""
    center = Told(lambda request: None if len(center.requests) == 1 else "", (5, PAUSE))
    center.at(105, RESUME, 2)
    result = await play(One, center)
    assert [seconds for seconds, _ in center.sent] == pytest.approx([0, 115], abs=0.1)
    assert (result.counters.timed_out, result.counters.retried) == (1, 1)


@pytest.mark.slow("10 s")
@pytest.mark.covers("S1.11", "S1.44")
async def test_the_silence_that_ends_a_run_does_not_count_a_pause() -> None:
    center = Told(lambda request: None, (10, PAUSE), (5000, RESUME))
    result = await play(One, center)
    assert result.outcome.state == "failed"
    assert "no answer for 300 s" in result.outcome.reason
    assert result.outcome.seconds == pytest.approx(4990 + 300, abs=1)


@pytest.mark.slow("8 s")
@pytest.mark.covers("S1.44")
async def test_an_answer_during_a_pause_puts_the_silence_off_by_no_more_than_itself() -> None:
    class Two(One):
        start_urls = ["http://h/answered", "http://h/lost"]

    def page(request: DownloadRequest) -> PageLike:
        return Slow(4000, "") if request.url.endswith("answered") else None

    center = Told(page, (10, PAUSE), (5000, RESUME))
    result = await play(Two, center)
    assert "no answer for 300 s" in result.outcome.reason
    assert result.outcome.seconds == pytest.approx(5000 + 300, abs=1)


async def test_retries_wait_for_the_end_of_a_pause() -> None:
    pages = iter([Page(503), NoAnswer(), Skip(), Page(200)])
    center = Told(lambda request: Slow(1, next(pages)), (0.5, PAUSE), (50, RESUME))
    result = await play(One, center)
    assert center.sent_between(0.5, 50) == []
    assert (result.counters.success, result.counters.retried) == (1, 3)


@pytest.mark.slow("2 s")
@pytest.mark.covers("S1.11", "S1.50")
async def test_a_run_with_nothing_left_to_do_stays_paused() -> None:
    center = Told(lambda request: "", (5, PAUSE), (900, RESUME))

    class Fed(One):
        settings = changed(fed_from_outside=True, empty_seconds=30)

    result = await play(Fed, center)
    assert result.outcome.seconds == pytest.approx(930, abs=1)
    center = Told(lambda request: Slow(2, ""), (1, PAUSE), (900, RESUME))
    assert (await play(One, center)).outcome.seconds == pytest.approx(900, abs=1)


async def test_counters_are_published_while_paused() -> None:
    center = Told(lambda request: Slow(10, ""), (1, PAUSE), (60, RESUME))
    await play(One, center)
    assert any(report.success == 1 for report in center.reports[:-1])
    for report in center.reports:
        check_counters(report)


async def test_a_pause_before_there_are_agents() -> None:
    class SlowToAllocate(Told):
        async def allocate(self) -> AgentAllocation:
            self.tell(PAUSE, 1)
            assert self.said == [(1, True, "")]
            self.at(30, RESUME, 2)
            return await super().allocate()

    center = SlowToAllocate(lambda request: "")
    result = await play(One, center)
    assert [seconds for seconds, _ in center.sent] == pytest.approx([30], abs=0.1)
    assert result.counters.success == 1


async def test_what_the_center_holds_comes_back_and_is_sent_after_the_pause() -> None:
    center = Told(lambda request: HeldBack(40, "fine"), (5, PAUSE), (100, RESUME))
    result = await play(One, center)
    assert [seconds for seconds, _ in center.sent] == pytest.approx([0, 100], abs=0.1)
    counters = result.counters
    assert (counters.success, counters.skipped, counters.retried) == (1, 1, 1)
    # Sent back on demand, it has used up none of its tries.
    assert center.said[0] == (1, True, "")


async def test_what_was_on_its_way_to_the_center_comes_back_too() -> None:
    """The center says only after the pause that it holds it."""

    class LateWord(Told):
        def answer(self, item: RequestItem, request: DownloadRequest) -> Any:
            said = super().answer(item, request)
            if item.attempt > 1:
                return said
            self.later(3, lambda: said)
            return []

        def withdraw(self) -> None:
            self.withdrawals.append(self.seconds)
            if self.seconds > 3:
                super().withdraw()

        withdrawals: list[float] = []

    center = LateWord(lambda request: HeldBack(40, "fine"), (1, PAUSE), (100, RESUME))
    result = await play(One, center)
    assert center.withdrawals == pytest.approx([1, 3], abs=0.1)
    assert center.sent_between(0.1, 100) == []
    assert result.counters.success == 1


async def test_withdrawn_requests_do_not_speak_against_a_chained_runs_agent() -> None:
    class Chained(One):
        settings = changed(agent_gone_seconds=0, request_timeout_retries=0)

    center = Told(lambda request: HeldBack(40, ""), (5, PAUSE), (100, RESUME), chained=True)
    assert (await play(Chained, center)).counters.success == 1


async def test_a_paused_run_whose_broker_comes_and_goes_stays_paused() -> None:
    center = Told(lambda request: "", (5.5, PAUSE), (300, RESUME))

    def away(now: bool) -> Callable[[], None]:
        return lambda: setattr(center, "away", now)

    center.clock.call_later(50, away(True))
    center.clock.call_later(200, away(False))
    result = await play(Steady, center)
    assert center.sent_between(5.5, 300) == []
    assert result.counters.success == 20


# --- commands -----------------------------------------------------------------------------------


async def test_a_command_that_comes_twice_is_carried_out_once_and_answered_twice() -> None:
    center = Told(lambda request: "", (2.5, PAUSE), (10, RESUME))
    center.at(11.5, PAUSE, 1)
    center.at(11.6, RESUME, 2)
    result = await play(Steady, center)
    assert center.said == [(1, True, ""), (2, True, ""), (1, True, ""), (2, True, "")]
    assert result.outcome.seconds == pytest.approx(27, abs=1.5)


async def test_a_command_that_comes_after_a_later_one_is_refused() -> None:
    center = Told(lambda request: "")
    center.at(2.5, RESUME, 8)
    center.at(3.5, PAUSE, 7)
    result = await play(Steady, center)
    assert center.said == [(8, True, ""), (7, False, "a later command came before it")]
    assert result.outcome.seconds < 25


async def test_a_resume_answers_the_pause_before_it() -> None:
    center = Told(lambda request: Slow(3, ""), (1, PAUSE), (2, RESUME))
    await play(One, center)
    assert center.said == [(1, True, "1 requests are still on their way"), (2, True, "")]


async def test_a_pause_is_answered_before_the_run_ends_by_an_exit() -> None:
    center = Told(lambda request: Slow(3, ""), (1, PAUSE), (2, EXIT))
    result = await play(Steady, center)
    assert [(number, accepted) for number, accepted, _ in center.said] == [(1, True), (2, True)]
    assert result.outcome.state == "stopped"


@pytest.mark.covers("S1.10")
async def test_an_exit_ends_the_run_like_a_signal() -> None:
    center = Told(lambda request: "")
    center.clock.call_later(3.5, lambda: center.tell(EXIT, 1, "asked by ann"))
    result = await play(Steady, center)
    assert (result.outcome.state, result.outcome.reason) == (
        "stopped",
        "exit message, asked by ann",
    )
    assert result.counters.final
    assert (result.counters.success, result.counters.queued) == (4, 16)
    assert center.closed


async def test_an_exit_of_a_paused_run() -> None:
    center = Told(lambda request: HeldBack(40, ""), (1, PAUSE), (50, EXIT))
    result = await play(One, center)
    assert result.outcome.state == "stopped"
    assert 50 <= result.outcome.seconds < 52


@pytest.mark.parametrize(
    ("run", "boot", "meant"),
    [(0, "", True), (1, "test", True), (1, "", True), (2, "test", False), (1, "old", False)],
)
def test_a_run_does_only_what_this_execution_of_it_is_told(
    run: int, boot: str, meant: bool
) -> None:
    class Carried:
        stopped = ""

        def pause(self) -> None: ...

        def resume(self) -> None: ...

        def stop(self, reason: str) -> None:
            self.stopped = reason

        def on_their_way(self) -> int:
            return 0

    async def take() -> FakeCenter:
        center = FakeCenter({})
        message = Lifecycle(action=EXIT, run=run, boot=boot, command=5)
        CommandHandler(center, carried).take(message, 0.0)
        return center

    carried = Carried()
    center = asyncio.run(take())
    assert carried.stopped == ("exit message" if meant else "")
    assert [answer.command for answer in center.commands] == ([5] if meant else [])


async def test_a_command_without_a_number_wants_no_answer() -> None:
    center = Told(lambda request: "")
    center.clock.call_later(2.5, lambda: center.tell(PAUSE))
    center.clock.call_later(9, lambda: center.tell(PAUSE))
    center.clock.call_later(20, lambda: center.tell(RESUME))
    await play(Steady, center)
    assert center.sent_between(2.5, 20) == []
    assert center.said == []


# --- the books ----------------------------------------------------------------------------------

PAGES = st.sampled_from(
    [
        "<a href=/a></a><a href=/b></a><a href=/c></a>",
        Page(503),
        NoAnswer(),
        None,
        Slow(4, "<a href=/d></a>"),
        Slow(30, "late"),
        HeldBack(8, "<a href=/e></a>"),
        HeldBack(200, "held"),
        Skip(),
        Refusal(),
    ]
)
COMMANDS = st.lists(
    st.tuples(st.floats(0, 120), st.sampled_from([PAUSE, RESUME, PAUSE, RESUME, EXIT])), max_size=8
)


# A deadline and the pauses after it add up to a moment that is rounded down.
ROUNDED = [(4.4, PAUSE), (15.0, RESUME), (26.55857301787427, RESUME), (58.327420004954554, PAUSE)]


@pytest.mark.slow("1 s")
@given(answers=st.lists(PAGES, min_size=1, max_size=30), commands=COMMANDS)
@example(
    answers=[Skip(), None, None, Slow(30, "late")], commands=[*ROUNDED, (70.17145330612533, PAUSE)]
)
@settings(max_examples=40, deadline=None)
def test_the_books_balance_through_any_commands_and_answers(
    answers: list[PageLike], commands: list[tuple[float, RunAction]]
) -> None:
    ready = iter(answers)
    center = Told(lambda request: next(ready, ""), *sorted(commands, key=lambda one: one[0]))
    # Whatever it was told before, the run is let go at last.
    center.at(130, RESUME, 1000)

    class Frequent(Follow):
        settings = changed(statistics_seconds=5, concurrency=4, request_timeout_retries=3)

    async def audited() -> CrawlResult:
        result = await play(Frequent, center)
        for report in center.reports:
            check_counters(report)
        return result

    result = asyncio.run(audited())
    if result.outcome.state == "exited":
        assert result.counters.total == result.counters.success + result.counters.failed
    pause: float | None = None
    for seconds, action in sorted(commands, key=lambda one: one[0]):
        if pause is not None:
            assert center.sent_between(pause + 1e-6, seconds - 1e-6) == []
        begun = seconds if pause is None else pause
        pause = begun if action is PAUSE else None
