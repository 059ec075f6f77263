"""Thread that holds requests until their host may be asked, and notifies the runs."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from random import Random

from apps.agents.center.assignment import Groups, assign, commands, skipped, to_run
from apps.agents.center.politeness.engine import (
    HELD_SECONDS,
    Actions,
    HostView,
    PolitenessEngine,
    PoliteRun,
    RobotsFetch,
)
from apps.agents.center.politeness.host import HeldRequest
from apps.agents.center.politeness.limits import HostRules
from apps.agents.center.politeness.shares import ShareGrant, ShareRequest
from apps.agents.center.runs import RunEntry, RunTable
from yardkit import failpoints, topology
from yardkit.broker import (
    Broker,
    BrokerClosed,
    BrokerError,
    Delivery,
    Outgoing,
    Subscription,
    Unroutable,
)
from yardkit.broker.gateway import open_gateway, sender_of, sender_problem
from yardkit.clock import Clock
from yardkit.errors import first_line
from yardkit.guard import settle
from yardkit.protocol import (
    Dispatched,
    DownloaderType,
    DownloadRequest,
    DownloadResults,
    DownloadsFinished,
    DownloadsHeld,
    DownloadsRefused,
    ProtocolError,
    RequestItem,
    Skipped,
    Withdraw,
    decode,
    encode,
    encode_request,
)

logger = logging.getLogger(__name__)

TAKE = 500
# Requests in one message to a run.
ITEMS_PER_NOTICE = 1000
MAX_HOSTS_PER_RUN = 10_000
STOPPING = "the center that held the request has stopped"
ENDED = "the run has ended"
WITHDRAWN = "the run has paused"

Notices = Mapping[tuple[int, str, str], Sequence[RequestItem]]


class PolitenessGate:
    """Owns the politeness engine. Other threads only append to its queue of calls.

    Args:
        ask: passes requests for shares to the share keeper; grants come back by ``granted``.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        runs: RunTable,
        name: str,
        rules: HostRules,
        ask: Callable[[list[ShareRequest]], None],
        clock: Clock,
    ) -> None:
        self.broker = broker
        self.runs = runs
        self.clock = clock
        self._ask = ask
        self._rules = rules
        self._engine = PolitenessEngine(rules)
        self._reports = topology.center_reports(name)
        self._subscription: Subscription | None = None
        self._calls: deque[Callable[[], None]] = deque()
        self._woken = threading.Event()
        self._random = Random()  # noqa: S311 - spreading load is no secret
        self._views: list[HostView] = []
        self._views_at = 0.0

    # --- from other threads ---------------------------------------------------------------------

    def open(self) -> None:
        """Subscribe to the agents' reports."""
        self.broker.declare(self._reports)
        open_gateway(self.broker, self._reports)
        self._subscription = self.broker.subscribe(
            self._reports.name, prefetch=TAKE, on_ready=self._woken.set
        )

    def close(self) -> None:
        """Unsubscribe, which ends the thread."""
        if self._subscription is not None:
            self._subscription.close()
        self._woken.set()

    def give_up(self) -> None:
        """Notify every run that its requests are not held any more; the thread has ended."""
        self._make_calls()
        self._engine.drop_all(STOPPING)
        try:
            self._carry_out(self._engine.step(self.clock.monotonic()))
        except BrokerClosed:
            # The runs' own timeouts repeat them.
            logger.warning("runs could not be notified of dropped requests")
        self._engine = PolitenessEngine(self._rules)
        self._views = []

    def passes(self, entry: RunEntry, hosts: Iterable[str]) -> bool:
        """Return whether requests of a run to all these hosts have no limits.

        One dictionary look-up per host: the answer is computed once per run.
        """
        if entry.passes_of is not self._rules:
            entry.passes, entry.passes_of = {}, self._rules
        known = entry.passes
        for host in hosts:
            answer = known.get(host)
            if answer is None:
                answer = self._passes(entry, host)
            if not answer:
                return False
        return True

    def _passes(self, entry: RunEntry, host: str) -> bool:
        settings = entry.settings
        if len(entry.passes) >= MAX_HOSTS_PER_RUN:
            entry.passes.clear()
        by_itself = settings.type in (DownloaderType.FILE, DownloaderType.REPLAY)
        answer = by_itself or self._rules.passes(host, settings.allowed_networks)
        entry.passes[host] = answer
        return answer

    def offer(self, entry: RunEntry, reply_to: str, items: Sequence[RequestItem]) -> None:
        """Pass on requests to limited hosts; the caller has counted them as held."""
        settings = entry.settings
        view = PoliteRun(
            run=entry.run,
            reply_to=reply_to,
            obey_robots=settings.obey_robots,
            user_agent=settings.user_agent,
            timeout_seconds=settings.timeout_seconds,
        )
        self._put(lambda: self._offer(view, items))

    def _offer(self, view: PoliteRun, items: Sequence[RequestItem]) -> None:
        now = self.clock.monotonic()

        def offer(item: Sequence[RequestItem]) -> None:
            self._engine.offer(view, item, now)

        def reject(item: RequestItem, error: Exception) -> None:
            self._count(view.run, refused=1)
            reason = f"the center failed on it: {_text(error)}"
            self.broker.publish(_notices((view.run, view.reply_to, reason), [item], _refused))

        # One by one: what the engine has taken of a failing batch must not be offered twice.
        for item in items:
            settle((item,), offer, reject, passing=(BrokerError,))

    def drop(self, run: int, keep_reply_to: str = "") -> None:
        """Drop held requests of a run that has ended, or restarted with another answer queue."""
        self._put(lambda: self._engine.drop(run, ENDED, keep_reply_to))

    def granted(self, answers: Mapping[str, ShareGrant]) -> None:
        """Pass on shares granted by the store."""
        self._put(lambda: self._engine.granted(answers, self.clock.monotonic()))

    def set_rules(self, rules: HostRules) -> None:
        """Replace the host rules."""
        self._rules = rules
        self._put(lambda: self._engine.set_rules(rules))

    def views(self) -> list[HostView]:
        """Return the busy hosts, at most a second old."""
        return self._views

    def _put(self, what: Callable[[], None]) -> None:
        self._calls.append(what)
        self._woken.set()

    # --- the thread -----------------------------------------------------------------------------

    def step(self, timeout: float) -> int:
        """Wait for an event or a due time and act; return the number of reports taken."""
        now = self.clock.monotonic()
        self._woken.wait(max(0.0, min(timeout, self._engine.due_at() - now)))
        self._woken.clear()
        assert self._subscription is not None  # noqa: S101 - open() comes first
        deliveries = self._subscription.take(TAKE)
        if len(deliveries) == TAKE:
            self._woken.set()
        done: list[Delivery] = []

        def read(deliveries: Sequence[Delivery]) -> None:
            done.extend(delivery for delivery in deliveries if self._read(delivery))

        # One by one: a report must not change the engine twice.
        for delivery in deliveries:
            settle((delivery,), read, self._reject, passing=(BrokerError,))
        # Before the step of the engine: if that fails, the reports are useless to the next engine.
        self._subscription.ack(done)
        self._make_calls()
        now = self.clock.monotonic()
        self._carry_out(self._engine.step(now))
        if now - self._views_at >= 1.0:
            self._views, self._views_at = self._engine.views(now), now
        return len(deliveries)

    def _make_calls(self) -> None:
        while self._calls:
            self._calls.popleft()()

    def _reject(self, delivery: Delivery, error: Exception) -> None:
        self._refuse(delivery, _text(error))

    def _read(self, delivery: Delivery) -> bool:
        """Pass a report to the engine; False when it was dead-lettered."""
        now = self.clock.monotonic()
        try:
            message = decode(delivery.body)
        except ProtocolError as error:
            return self._refuse(delivery, str(error))
        if sender_of(delivery) and not isinstance(message, Withdraw):
            return self._refuse(delivery, f"a run sends {type(message).__name__}, as agents do")
        if isinstance(message, DownloadsFinished):
            self._engine.finished(message.run, message.hosts, now)
        elif isinstance(message, DownloadResults):
            for result in message.items:
                self._engine.fetched(result, now, message.agent)
        elif isinstance(message, Withdraw):
            return self._withdraw(delivery, message)
        else:
            return self._refuse(delivery, f"{type(message).__name__} is no report of an agent")
        return True

    def _withdraw(self, delivery: Delivery, message: Withdraw) -> bool:
        """Return the held requests of a paused run."""
        flaw = sender_problem(delivery, run=message.run)
        if flaw:
            return self._refuse(delivery, flaw)
        entry = self.runs.get(message.run)
        if entry is not None and entry.token != message.token:
            return self._refuse(delivery, f"the token is not that of run {message.run}")
        # Requests offered before the pause may still be queued.
        self._make_calls()
        self._engine.drop(message.run, WITHDRAWN, withdrawn=True)
        return True

    def _refuse(self, delivery: Delivery, reason: str) -> bool:
        logger.warning("refused a message of %s: %s", delivery.queue, reason)
        assert self._subscription is not None  # noqa: S101 - a delivery came from it
        self._subscription.dead_letter(delivery, reason)
        return False

    def _carry_out(self, actions: Actions) -> None:
        outgoing: list[Outgoing] = []
        for key, items in actions.held.items():
            outgoing += _notices(key, items, self._held)
        for key, items in actions.refused.items():
            self._count(key[0], refused=len(items))
            outgoing += _notices(key, items, _refused)
        for key, items in actions.skipped.items():
            self._count(key[0], skipped=len(items))
            outgoing.append(skipped(*key, items))
        for key, items in actions.withdrawn.items():
            self._count(key[0], skipped=len(items))
            outgoing += _notices(key, items, _withdrawn)
        outgoing += self._go(actions.go)
        for fetch in actions.fetches:
            outgoing += self._fetch(fetch)
        if outgoing:
            failpoints.hit("center.before_release")
            self.broker.publish(outgoing).add_done_callback(partial(self._sent, outgoing))
        if actions.asks:
            self._ask(actions.asks)

    def _go(self, going: Sequence[HeldRequest]) -> list[Outgoing]:
        """Return the messages for requests that may go now, and for their runs."""
        groups: Groups = {}
        notices: list[Outgoing] = []
        lines: dict[tuple[int, str], list[HeldRequest]] = {}
        for one in going:
            lines.setdefault((one.run, one.reply_to), []).append(one)
        for (run, reply_to), line in lines.items():
            entry = self.runs.use(run)
            self.runs.alive(entry)
            rest = []
            for one in line:
                if one.connected in entry.alive_set and not one.item.agent:
                    groups.setdefault((one.connected, run, reply_to), []).append(one.item)
                else:
                    rest.append(one.item)
            lost = assign(groups, entry, reply_to, rest, self._random) if rest else {}
            gone = {id(item) for some in lost.values() for item in some}
            for reason, some in lost.items():
                notices.append(skipped(run, reply_to, reason, some))
            for one in line:
                if id(one.item) in gone:
                    self._engine.undo(one)
            self._count(run, skipped=len(gone), dispatched=len(line) - len(gone))
            notified = [one.item for one in line if one.notified and id(one.item) not in gone]
            notices += _notices((run, reply_to, ""), notified, _dispatched)
        return [*notices, *commands(groups, self.clock.time(), self._reports.name)]

    def _fetch(self, fetch: RobotsFetch) -> list[Outgoing]:
        """Return the command to fetch a robots.txt through an agent of a waiting run."""
        entry = self.runs.use(fetch.run)
        alive = self.runs.alive(entry)
        if not alive:
            reason = entry.why_nobody()
            self._put(
                lambda: self._engine.fetch_failed(fetch.number, reason, self.clock.monotonic())
            )
            self._put(lambda: self._engine.drop(fetch.run, reason))
            return []
        raw = encode_request(DownloadRequest(url=fetch.url))
        item = RequestItem(-fetch.number, 1, fetch.host, "", raw)
        groups: Groups = {(self._random.choice(alive), fetch.run, self._reports.name): [item]}
        # Without a report: it would be counted as the end of a page.
        return list(commands(groups, self.clock.time()))

    def _held(self, run: int, reason: str, items: list[tuple[int, int]]) -> bytes:
        return encode(
            DownloadsHeld(
                run=run,
                reason=reason,
                wait_seconds=HELD_SECONDS,
                items=items,
                center=self._reports.name,
            )
        )

    def _count(self, run: int, **changes: int) -> None:
        entry = self.runs.get(run)
        if entry is not None:
            self.runs.count(entry, held=-sum(changes.values()), **changes)

    def _sent(self, outgoing: Sequence[Outgoing], done: Future[None]) -> None:
        """Drop requests of runs whose queue is gone; other losses are repeated by the runs'
        timeouts.
        """
        error = done.exception()
        if error is None or isinstance(error, BrokerClosed):
            return
        logger.warning("held requests were not published: %s", error)
        if isinstance(error, Unroutable):
            gone = set(error.keys)
            self._put(lambda: self._engine.drop_queues(gone, ENDED))


def _notices(
    key: tuple[int, str, str],
    items: Sequence[RequestItem],
    make: Callable[[int, str, list[tuple[int, int]]], bytes],
) -> list[Outgoing]:
    """Return messages to one run about all of ``items``, as (id, attempt)."""
    run, reply_to, reason = key
    ids = [(item.id, item.attempt) for item in items]
    return [
        to_run(reply_to, make(run, reason, ids[start : start + ITEMS_PER_NOTICE]))
        for start in range(0, len(ids), ITEMS_PER_NOTICE)
    ]


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def _withdrawn(run: int, reason: str, items: list[tuple[int, int]]) -> bytes:
    return encode(Skipped(run=run, reason=reason, items=items, withdrawn=True))


def _refused(run: int, reason: str, items: list[tuple[int, int]]) -> bytes:
    return encode(DownloadsRefused(run=run, reason=reason, items=items))


def _dispatched(run: int, reason: str, items: list[tuple[int, int]]) -> bytes:
    return encode(Dispatched(run=run, items=items))
