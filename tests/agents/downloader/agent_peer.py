"""The center's and the run's side of an agent, for tests: real queues, real messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from apps.agents.downloader.agent import DownloadAgent
from yardkit import topology
from yardkit.broker import Broker, BrokerUnavailable, Outgoing, Subscription
from yardkit.protocol import (
    AllocateDownloader,
    AnyMessage,
    DownloadCommand,
    DownloaderReady,
    DownloaderSettings,
    DownloadRequest,
    DownloadResult,
    DownloadResults,
    RequestItem,
    decode,
    encode,
    encode_request,
)

M = TypeVar("M")
PATIENCE_SECONDS = 30.0
LOOPBACK = ["127.0.0.0/8"]


class AgentPeer:
    """Sends commands to the agent ``agent`` and collects what comes back to run 7."""

    def __init__(
        self, broker: Broker, agent: str = "agent-1", run: int = 7, boot: str = "boot"
    ) -> None:
        self.broker = broker
        self.agent = agent
        self.run = run
        self.commands = topology.agent_commands(agent)
        self.answers = topology.run_answers(run, boot)
        center = topology.center_heartbeats("test")
        broker.declare(self.commands, self.answers, topology.CENTER_REGISTER, center)
        broker.declare_exchange(topology.HEARTBEATS, "fanout")
        broker.bind(center.name, topology.HEARTBEATS)
        self.from_run = broker.subscribe(self.answers.name)
        self.registrations = broker.subscribe(topology.CENTER_REGISTER.name)
        self.heartbeats = broker.subscribe(center.name)
        self.agents: list[DownloadAgent] = []
        self._unread: list[AnyMessage] = []

    def send(self, message: AnyMessage | bytes) -> None:
        """To the agent's queue; returns when the broker has it."""
        body = message if isinstance(message, bytes) else encode(message)
        self.broker.publish([Outgoing(body=body, key=self.commands.name)]).result(30)

    def ask(self, *, allocated_at: float = 0.0, **settings: Any) -> None:
        """Ask for a downloader."""
        settings.setdefault("allowed_networks", LOOPBACK)
        self.send(
            AllocateDownloader(
                run=self.run,
                reply_to=self.answers.name,
                settings=DownloaderSettings(**settings),
                allocated_at=allocated_at,
            )
        )

    async def allocate(self, **settings: Any) -> DownloaderReady:
        """Ask for a downloader and wait for the agent's word."""
        self.ask(**settings)
        return await self.receive(DownloaderReady)

    def download(
        self,
        urls: Sequence[str],
        *,
        dispatched_at: float | None = None,
        report_to: str = "",
        host: str = "host",
        attempt: int = 1,
        first: int = 0,
        **request: Any,
    ) -> None:
        """Ask for pages; the id of each is ``first`` and its place in ``urls``."""
        items = [
            item(number, DownloadRequest(url=url, **request), host, attempt)
            for number, url in enumerate(urls, first)
        ]
        self.send(
            DownloadCommand(
                run=self.run,
                reply_to=self.answers.name,
                items=items,
                dispatched_at=time.time() if dispatched_at is None else dispatched_at,
                report_to=report_to,
            )
        )

    async def results(self, count: int) -> dict[int, DownloadResult]:
        """So many answers by the id of their request."""
        found: dict[int, DownloadResult] = {}
        while len(found) < count:
            message = await self.receive(DownloadResults)
            assert (message.run, message.agent) == (self.run, self.agent)
            found |= {result.id: result for result in message.items}
        return found

    async def receive(self, kind: type[M]) -> M:
        """The next message of this kind that came to the run."""

        def look() -> M | None:
            self._unread += take(self.from_run)
            for message in self._unread:
                if isinstance(message, kind):
                    self._unread.remove(message)
                    return message
            return None

        return await until(look)

    def arrived(self, kind: type[M]) -> list[M]:
        """All messages of this kind that have come to the run by now."""
        self._unread += take(self.from_run)
        found = [message for message in self._unread if isinstance(message, kind)]
        self._unread = [message for message in self._unread if not isinstance(message, kind)]
        return found

    async def emptied(self) -> None:
        """Wait until every command is acknowledged."""
        # A broker may hide how many it has handed out, so the agents are asked as well.
        await until(lambda: self.depth() == 0 and not any(agent.held for agent in self.agents))

    def depth(self) -> int:
        """Commands in the queue, handed out or not as far as the broker tells."""
        depth = self.broker.depth(self.commands.name)
        return depth.ready + max(0, depth.unacked)


def item(
    number: int, request: DownloadRequest, host: str = "host", attempt: int = 1
) -> RequestItem:
    return RequestItem(number, attempt, host, "", encode_request(request))


def take(subscription: Subscription) -> list[AnyMessage]:
    """What waits, decoded and acknowledged."""
    deliveries = subscription.take(100)
    subscription.ack(deliveries)
    return [decode(delivery.body) for delivery in deliveries]


async def until(look: Callable[[], M | None]) -> M:
    """Poll until ``look`` gives something true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError("nothing came in time")


class Unreliable:
    """A real broker whose publishes fail, or are never confirmed, when a test says so."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.failures = 0
        self.silent = False
        self.published: list[Outgoing] = []

    def publish(self, messages: Sequence[Outgoing]) -> Future[None]:
        self.published += messages
        if self.failures or self.silent:
            future: Future[None] = Future()
            if self.failures:
                self.failures -= 1
                future.set_exception(BrokerUnavailable("connection lost"))
            return future
        return self._broker.publish(messages)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)
