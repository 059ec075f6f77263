"""A center in the test's own thread, and everybody it talks to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from django.conf import settings

from apps.agents.center.politeness.shares import MemoryShares
from apps.agents.daemon import CenterDaemon
from apps.agents.models import Agent
from apps.jobs.models import Run
from yardkit import topology
from yardkit.broker import Broker, Delivery, Outgoing, Subscription
from yardkit.broker.base import DEAD_QUEUE, HEADER_REASON
from yardkit.clock import SystemClock
from yardkit.protocol import (
    Allocate,
    Allocated,
    AnyMessage,
    DownloadBatch,
    DownloaderSettings,
    DownloaderType,
    DownloadRequest,
    Policy,
    Register,
    RequestItem,
    decode,
    encode,
    encode_request,
)
from yardkit.tokens import sign_run_token

REPLY = "run.answers"


class CenterHarness:
    """A center in this thread, and the queues of everybody it talks to."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        # SQLite in memory refuses a second writer, and the shares have a thread of their own.
        self.shares = MemoryShares(time.time)
        self.center = self._start("c1", "boot1")
        self.others: list[CenterDaemon] = []
        self._taken: dict[str, Subscription] = {}
        broker.declare(topology.QueueSpec(REPLY))

    def _start(self, name: str, boot: str) -> CenterDaemon:
        center = CenterDaemon(
            broker=self.broker, name=name, incarnation=boot, clock=SystemClock(), shares=self.shares
        )
        center.setup()
        return center

    def send(self, queue: str, message: AnyMessage) -> None:
        self.broker.publish([Outgoing(body=encode(message), key=queue)]).result(10)

    def until(self, happened: Callable[[], bool], seconds: float = 15.0) -> None:
        """Let the center work until something has happened."""
        deadline = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < deadline, "it did not happen"
            for center in (self.center, *self.others):
                center.step()

    def receive(self, queue: str) -> AnyMessage:
        """The next message of a queue."""
        if queue not in self._taken:
            self._taken[queue] = self.broker.subscribe(queue, prefetch=1)
        return decode(self._take(self._taken[queue]).body)

    def waits(self, queue: str) -> bool:
        """Whether a message waits, though ``receive`` has taken no other from there yet."""
        depth = self.broker.depth(queue)
        return depth.ready + max(0, depth.unacked) > 0

    def refused(self) -> str:
        """Why the next dead letter is one."""
        subscription = self.broker.subscribe(DEAD_QUEUE, prefetch=1)
        reason = self._take(subscription).headers[HEADER_REASON]
        subscription.close()
        return str(reason)

    def _take(self, subscription: Subscription) -> Delivery:
        taken: list[Delivery] = []

        def look() -> bool:
            taken.extend(subscription.take(1, timeout=0.02))
            return bool(taken)

        self.until(look)
        subscription.ack(taken)
        return taken[0]

    def agent(
        self,
        name: str,
        boot: str = "1",
        seal_key: bytes = b"",
        types: Sequence[DownloaderType] = (DownloaderType.HTTP,),
    ) -> str:
        """Register an agent and wait until the center knows it."""
        queue = topology.agent_commands(name)
        self.broker.declare(queue)
        self.send(
            topology.CENTER_REGISTER.name,
            Register(
                agent=name,
                name=name,
                boot=boot,
                processors=2,
                total_memory_bytes=1,
                seal_key=seal_key,
                types=tuple(types),
            ),
        )
        self.until(Agent.objects.filter(agent_id=name, boot=boot).exists)
        return queue.name

    def silence(self, name: str) -> None:
        """An agent has not been heard of for 11 s."""
        liveness = self.center.liveness
        with liveness._lock:
            liveness._seen[name] -= topology.AGENT_ALIVE_SECONDS
            liveness._look_at = 0.0

    def restart(self, name: str = "c1") -> None:
        """The center is gone as after SIGKILL, and another one has started."""
        self.center.teardown()
        self.center = self._start(name, "b2")

    def second(self) -> CenterDaemon:
        """Another center beside the first; ``until`` lets both work."""
        center = self._start("c2", "boot2")
        self.others.append(center)
        return center

    def close(self) -> None:
        """Every center stops."""
        for center in (self.center, *self.others):
            center.teardown()

    def allocate(
        self, run: Run, *, policy: Policy = Policy.RANDOM, agents: int = 0, **settings_: Any
    ) -> Allocated:
        """What the run is answered."""
        message = Allocate(
            run=run.pk,
            token=sign_run_token(settings.SECRET_KEY, run.pk),
            reply_to=REPLY,
            policy=policy,
            agents=agents,
            settings=DownloaderSettings(**settings_),
        )
        self.send(topology.CENTER_CONTROL.name, message)
        answer = self.receive(REPLY)
        assert isinstance(answer, Allocated)
        return answer

    def download(
        self,
        run: Run,
        *,
        token: str | None = None,
        reply_to: str = REPLY,
        sent_at: float = 0.0,
        agent: str = "",
        host: str = "127.0.0.1",
        count: int = 20,
    ) -> None:
        """The run asks for ``count`` pages of ``host``, all of them carrying that agent's id."""
        items = [
            RequestItem(
                n, 1, host, agent, encode_request(DownloadRequest(url=f"http://{host}/{n}"))
            )
            for n in range(count)
        ]
        self.send(
            topology.CENTER_REQUESTS.name,
            DownloadBatch(
                run=run.pk,
                token=sign_run_token(settings.SECRET_KEY, run.pk) if token is None else token,
                reply_to=reply_to,
                items=items,
                sent_at=sent_at or time.time(),
            ),
        )
