"""Whatever happens: received = dispatched + skipped + expired + refused + held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from apps.agents.center.dispatcher import BatchDispatcher
from apps.agents.center.gate import PolitenessGate
from apps.agents.center.liveness import Liveness
from apps.agents.center.politeness.limits import Defaults, HostRuleLimits, HostRules
from apps.agents.center.politeness.shares import MemoryShares, ShareRequest
from apps.agents.center.runs import OpenAllocation, RunTable
from tests.agents.politeness.engine_harness import items
from yardkit.broker import Delivery, Outgoing, Unroutable
from yardkit.clock import ManualClock
from yardkit.protocol import (
    Dispatched,
    DownloadBatch,
    DownloadCommand,
    DownloaderSettings,
    DownloadResult,
    DownloadResults,
    DownloadsFinished,
    DownloadsHeld,
    DownloadsRefused,
    HostResult,
    Policy,
    Skipped,
    decode,
    encode,
)
from yardkit.tokens import sign_run_token

SECRET = "only for tests"
HOSTS = ("127.0.0.1", "a.test", "b.a.test", "c.test")
AGENTS = ("x", "y")
RUNS = (1, 2, 3)
POLICIES = {1: Policy.RANDOM, 2: Policy.CHAINED, 3: Policy.FIXED}


class Wire:
    """A broker that keeps what is published and hands out what it is told to."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []
        self.waiting: dict[str, list[Delivery]] = {}
        self.gone: set[str] = set()

    def declare(self, *queues: object) -> None:
        """Every queue exists."""

    def declare_exchange(self, name: str, kind: str) -> None:
        """Every exchange as well."""

    def bind(self, queue: str, exchange: str, key: str = "#") -> None:
        """What is put into a queue here comes by no exchange."""

    def subscribe(
        self, queue: str, *, prefetch: int, on_ready: Callable[[], None] | None = None
    ) -> Consumer:
        return Consumer(self.waiting.setdefault(queue, []))

    def put(self, queue: str, body: bytes) -> None:
        delivery = Delivery(body, queue, "", queue, False, 0, "", "", "", {}, None)
        self.waiting.setdefault(queue, []).append(delivery)

    def publish(self, messages: Sequence[Outgoing]) -> Future[None]:
        future: Future[None] = Future()
        lost = [one.key for one in messages if one.key in self.gone]
        self.sent += [one for one in messages if one.key not in self.gone]
        if lost:
            future.set_exception(Unroutable(lost))
        else:
            future.set_result(None)
        return future


class Consumer:
    """One subscription of the wire."""

    queue = ""

    def __init__(self, waiting: list[Delivery]) -> None:
        self._waiting = waiting

    def take(self, limit: int = 100, timeout: float = 0.0) -> list[Delivery]:
        taken = self._waiting[:limit]
        del self._waiting[:limit]
        return taken

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is kept."""


class Books(RuleBasedStateMachine):
    """One center whose threads are steps of this machine."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.wire = Wire()
        self.liveness = Liveness(self.clock.monotonic)
        self.runs = RunTable(
            liveness=self.liveness, load=self.allocation, incarnation="b", clock=self.clock
        )
        self.shares = MemoryShares(self.clock.time)
        self.asks: list[ShareRequest] = []
        self.defaults = Defaults(requests_per_second=3, concurrency=4, held_limit=25)
        self.gate = PolitenessGate(
            broker=self.wire,  # type: ignore[arg-type]
            runs=self.runs,
            name="c1",
            rules=HostRules(self.defaults),
            ask=self.asks.extend,
            clock=self.clock,
        )
        self.gate.open()
        self.dispatcher = BatchDispatcher(
            broker=self.wire,  # type: ignore[arg-type]
            runs=self.runs,
            gate=self.gate,
            secret=SECRET,
            clock=self.clock,
        )
        self.dispatcher.open()
        self.asked: Counter[int] = Counter()
        for agent in AGENTS:
            self.liveness.seen(agent)

    def allocation(self, run: int) -> OpenAllocation:
        opened = DownloaderSettings(allowed_networks=["127.0.0.0/8"], obey_robots=run != 3)
        return OpenAllocation(run=run, policy=POLICIES[run], agents=AGENTS, settings=opened)

    @rule(
        run=st.sampled_from(RUNS),
        host=st.sampled_from(HOSTS),
        count=st.integers(0, 12),
        agent=st.sampled_from(("", "x", "stranger")),
        age=st.sampled_from((0.0, 0.0, 0.0, 61.0)),
    )
    def ask_for_pages(self, run: int, host: str, count: int, agent: str, age: float) -> None:
        self.asked[run] += count
        some = [type(one)(*one_with(one, agent)) for one in items(count, host)]
        batch = DownloadBatch(
            run=run,
            token=sign_run_token(SECRET, run),
            reply_to=f"run.{run}",
            items=some,
            sent_at=self.clock.time() - age,
        )
        self.wire.put("center.requests", encode(batch))
        self.dispatcher.step(0.0)

    @rule()
    def gate_works(self) -> None:
        self.gate.step(0.0)
        asks, self.asks[:] = list({ask.host: ask for ask in self.asks}.values()), []
        self.gate.granted(self.shares.exchange("c1", asks))

    @rule(seconds=st.sampled_from((0.05, 0.4, 2.0, 2.0, 50.0)), beat=st.sampled_from((0, 1, 1)))
    def time_passes(self, seconds: float, beat: int) -> None:
        self.clock.advance(seconds)
        if beat:
            for agent in AGENTS:
                self.liveness.seen(agent)

    @rule(
        run=st.sampled_from(RUNS),
        host=st.sampled_from(HOSTS),
        count=st.integers(1, 5),
        busy=st.integers(0, 1),
    )
    def an_agent_reports(self, run: int, host: str, count: int, busy: int) -> None:
        report = DownloadsFinished(run=run, agent="x", hosts=[HostResult(host, count, busy)])
        self.wire.put("center.reports.c1", encode(report))

    @rule(
        status=st.sampled_from((200, 200, 404, 503)),
        text=st.sampled_from(("", "User-agent: *\nDisallow: /3")),
    )
    def robots_txt_comes(self, status: int, text: str) -> None:
        """The answer to the latest request for one; sometimes it was answered already."""
        commands = [decode(one.body) for one in self.wire.sent if one.key.startswith("agent.")]
        for command in reversed(commands):
            if isinstance(command, DownloadCommand) and command.items[0].id < 0:
                number = command.items[0].id
                result = DownloadResult(number, 1, "http://x/r", status, [], text.encode())
                report = DownloadResults(run=1, agent="x", items=[result])
                self.wire.put("center.reports.c1", encode(report))
                return

    @rule(run=st.sampled_from(RUNS), host=st.sampled_from(HOSTS))
    def some_pages_are_forbidden(self, run: int, host: str) -> None:
        """The usual course of it, which chance alone takes seldom."""
        self.ask_for_pages(run, host, 5, "", 0.0)
        self.gate_works()
        self.robots_txt_comes(200, "User-agent: *\nDisallow: /3")
        self.gate_works()

    @rule(host=st.sampled_from((*HOSTS, "*.a.test")), stopped=st.booleans())
    def people_decide(self, host: str, stopped: bool) -> None:
        ruled = [HostRuleLimits(host, requests_per_second=0, concurrency=0, stopped=stopped)]
        self.gate.set_rules(HostRules.of(self.defaults, ruled))

    @rule(run=st.sampled_from(RUNS))
    def a_run_ends(self, run: int) -> None:
        self.gate.drop(run)

    @rule(run=st.sampled_from(RUNS), gone=st.booleans())
    def a_runs_queue_goes(self, run: int, gone: bool) -> None:
        (self.wire.gone.add if gone else self.wire.gone.discard)(f"run.{run}")

    @rule()
    def the_gate_is_replaced(self) -> None:
        self.gate.give_up()

    @invariant()
    def the_books_balance(self) -> None:
        for run in RUNS:
            entry = self.runs.get(run)
            if entry is None:
                assert not self.asked[run]
                continue
            counters = dict(entry.counters)
            received = counters.pop("received")
            assert received == sum(counters.values()) == self.asked[run], counters
            assert min(counters.values()) >= 0, counters

    def teardown(self) -> None:
        """In the end nothing is held, and everybody was told what became of everything."""
        self.gate.give_up()
        self.the_books_balance()
        told: Counter[tuple[int, type]] = Counter()
        for one in self.wire.sent:
            message = decode(one.body)
            if isinstance(message, DownloadCommand):
                told[message.run, DownloadCommand] += sum(each.id > 0 for each in message.items)
            elif isinstance(message, Skipped | DownloadsRefused | DownloadsHeld | Dispatched):
                told[message.run, type(message)] += len(message.items)
        for run in RUNS:
            entry = self.runs.get(run)
            if entry is None:
                continue
            assert entry.counters["held"] == 0
            assert told[run, DownloadCommand] == entry.counters["dispatched"]
            assert told[run, Skipped] <= entry.counters["skipped"]
            assert told[run, DownloadsRefused] <= entry.counters["refused"]
            assert told[run, Dispatched] <= entry.counters["dispatched"]


def one_with(item: object, agent: str) -> tuple[object, ...]:
    """The fields of a request that carries this agent's id."""
    return (item.id, item.attempt, item.host, agent, item.request)  # type: ignore[attr-defined]


TestBooks = pytest.mark.slow("15 s")(Books.TestCase)
TestBooks.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
