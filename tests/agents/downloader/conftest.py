"""A broker, a web server and an agent inside the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from apps.agents.downloader.agent import DownloadAgent
from apps.agents.downloader.options import AgentIdentity, AgentOptions
from tests.agents.downloader.agent_peer import AgentPeer
from tests.yardkit.web_server import WebServer, page, serve
from yardkit.broker import Broker


@pytest.fixture
def other(broker: Broker) -> AgentPeer:
    return AgentPeer(broker)


@pytest.fixture
async def site() -> AsyncIterator[WebServer]:
    async with serve({"/": page(b"hello")}) as server:
        yield server


@dataclass
class Running:
    """An agent at work."""

    agent: DownloadAgent
    stop: asyncio.Event
    task: asyncio.Task[None]


class Start:
    """Starts agents; the fixture stops them."""

    def __init__(self, broker: Broker, other: AgentPeer) -> None:
        self.broker = broker
        self.other = other
        self.running: list[Running] = []

    def __call__(
        self, *, broker: Any = None, clock: Any = None, agent: str = "agent-1", **options: Any
    ) -> Running:
        defaults = {"first_delay_seconds": 0.01, "longest_delay_seconds": 0.02, "stop_seconds": 0.1}
        made = DownloadAgent(
            identity=AgentIdentity(
                agent=agent, name="test agent", labels={"zone": "a"}, version="1"
            ),
            broker=broker or self.broker,
            options=AgentOptions(**(defaults | options)),
            clock=clock,
        )
        self.other.agents.append(made)
        stop = asyncio.Event()
        running = Running(made, stop, asyncio.ensure_future(made.run(stop)))
        self.running.append(running)
        return running


@pytest.fixture
async def start(broker: Broker, other: AgentPeer, site: WebServer) -> AsyncIterator[Start]:
    start = Start(broker, other)
    yield start
    for running in start.running:
        running.stop.set()
    async with asyncio.timeout(30):
        await asyncio.gather(*(running.task for running in start.running))
