"""The engine: runs whose pages come from the agent that began, and agents that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.yardspider.crawls import Follow, changed, check_books
from yardkit.protocol import DownloadRequest, DownloadsHeld, RequestItem, Skipped
from yardspider import Request, Response, Spider
from yardspider.testing import CrawlResult, FakeCenter, crawl, page_answer
from yardspider.transports.base import AgentAllocation, Answer


@pytest.mark.covers("S1.36")
def test_chained_requests_go_back_to_the_agent_of_their_page() -> None:
    class Agents(FakeCenter):
        sent: list[str]

        def answer(self, item: RequestItem, request: DownloadRequest) -> Sequence[Answer]:
            self.sent.append(item.agent)
            html = "<a href=a>" if request.url == "http://h/" else ""
            return [page_answer(item, request, html, agent="agent-7")]

    async def agents(*, chained: bool) -> list[str]:
        center = Agents({}, chained=chained)
        center.sent = []
        await crawl(Follow, center)
        return center.sent

    assert asyncio.run(agents(chained=True)) == ["", "agent-7"]
    assert asyncio.run(agents(chained=False)) == ["", ""]


class Agents(FakeCenter):
    """Agents that die and come back at given times; requests go as the center sends them.

    ``alive(agent, seconds)`` says whether one lives so long after the begin.
    """

    def __init__(self, names: list[str], alive: Any, *, chained: bool = True) -> None:
        super().__init__({}, chained=chained)
        self.names = names
        self.alive = alive
        self.begin = self.clock.now()
        self.served: list[tuple[str, str]] = []

    async def allocate(self) -> AgentAllocation:
        return AgentAllocation(self.names)

    def answer(self, item: RequestItem, request: DownloadRequest) -> Sequence[Answer]:
        seconds = self.clock.now() - self.begin
        able = [name for name in self.names if self.alive(name, seconds)]
        if item.agent:
            able = [item.agent] if item.agent in able else []
        if not able:
            reason = f"agent {item.agent} is not alive" if item.agent else "no agent is alive"
            return [Skipped(run=1, reason=reason, items=[(item.id, item.attempt)])]
        # Start pages begin one chain on each agent.
        agent = able[len(self.served) % len(able)]
        self.served.append((request.url, agent))
        return [page_answer(item, request, "fine", agent=agent)]


class Chains(Spider):
    """Two start pages, each followed by a chain of pages."""

    settings = changed(speed=1)
    start_urls = ["http://one/", "http://two/"]
    pages = 30

    def parse(self, response: Response) -> Iterator[Any]:
        number = response.meta.get("number", 0) + 1
        if number <= self.pages:
            yield Request(
                f"http://{response.request.host}/{number}", self.parse, meta={"number": number}
            )


def dies_at(**times: float) -> Any:
    return lambda agent, seconds: seconds < times.get(agent, 1e9)


async def run_chained(center: Agents, **options: Any) -> CrawlResult:
    class Chosen(Chains):
        settings = changed(**{"speed": 1, **options})

    result = await crawl(Chosen, center)
    check_books(result)
    return result


@pytest.mark.covers("S1.49")
async def test_a_chained_run_ends_when_its_only_agent_is_gone() -> None:
    result = await run_chained(Agents(["a"], dies_at(a=10)))
    assert result.outcome.state == "failed"
    assert result.outcome.reason == (
        "no agent of this chained run has been alive for 60 s (a); "
        "its pages cannot be fetched by other agents"
    )
    # The skip that says so is the first one after those 60 s; retries are 15 s apart by then.
    assert 70 <= result.outcome.seconds < 86


@pytest.mark.covers("S1.49")
async def test_an_agent_that_comes_back_in_time_is_waited_for() -> None:
    center = Agents(["a"], lambda agent, seconds: not 10 <= seconds < 55)
    result = await run_chained(center)
    assert (result.outcome.state, result.counters.failed) == ("exited", 0)
    assert result.counters.skipped > 0


@pytest.mark.covers("S1.49")
async def test_what_is_bound_to_a_dead_agent_fails_and_the_rest_goes_on() -> None:
    result = await run_chained(Agents(["a", "b"], dies_at(a=10)), request_timeout_retries=8)
    assert result.outcome.state == "exited"
    # Only the one page that was next in the chain of the dead agent was lost.
    assert result.counters.failed == 1
    assert result.failures[0].reason == "not dispatched: agent a is not alive, tried 9 times"
    # More than 60 s of "a is dead" changed nothing for the other chain.
    assert result.outcome.seconds > 75
    assert "http://two/30" in {request.url for request in result.requests}


@pytest.mark.covers("S1.49")
async def test_a_chained_run_ends_when_all_of_its_agents_are_gone() -> None:
    result = await run_chained(Agents(["a", "b"], dies_at(a=10, b=20)))
    assert result.outcome.state == "failed"
    assert "no agent of this chained run has been alive for 60 s (a, b)" in result.outcome.reason
    assert result.outcome.seconds >= 80


@pytest.mark.covers("S1.49")
async def test_the_word_that_no_agent_lives_is_said_of_all() -> None:
    result = await run_chained(Agents(["a", "b"], lambda agent, seconds: False))
    assert result.outcome.state == "failed"
    assert "(a, b)" in result.outcome.reason


@pytest.mark.covers("S1.49")
async def test_requests_of_a_random_run_go_to_the_agents_that_live() -> None:
    center = Agents(["a", "b"], dies_at(a=10), chained=False)
    result = await run_chained(center)
    assert (result.outcome.state, result.counters.failed) == ("exited", 0)
    assert {agent for _, agent in center.served[-20:]} == {"b"}


async def test_a_held_request_says_nothing_about_its_agent() -> None:
    """Skipped once and then held for long, its agent may well be alive."""

    class Spared(Agents):
        def answer(self, item: RequestItem, request: DownloadRequest) -> Sequence[Answer]:
            if item.attempt != 2:
                return super().answer(item, request)
            which = [(item.id, item.attempt)]
            self.later(200, lambda: [page_answer(item, request, "fine", agent="a")])
            return [DownloadsHeld(run=1, reason="slow", wait_seconds=210, items=which)]

    result = await run_chained(Spared(["a"], lambda agent, seconds: seconds >= 3))
    assert (result.outcome.state, result.counters.failed) == ("exited", 0)
