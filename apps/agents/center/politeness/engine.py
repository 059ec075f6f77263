"""All hosts of one center: holds requests until their host may be asked."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from apps.agents.center.politeness.host import HeldRequest, PoliteHost
from apps.agents.center.politeness.limits import HostRules
from apps.agents.center.politeness.robots import RobotsDecision, RobotsOrigin, origin_of, read
from apps.agents.center.politeness.shares import ShareGrant, ShareRequest
from yardkit.protocol import DownloadResult, HostResult, ProtocolError, RequestItem, decode_request

# The run gives up on a request without a notice for this long; notices repeat after half of
# it.
HELD_SECONDS: Final = 30.0
NOTIFY_AGAIN_SECONDS: Final = 15.0
# Requests that go within this time need no notice.
NOTIFY_AFTER_SECONDS: Final = 0.1
# Margin beyond the run's timeout: queueing, redirects, a late report.
FLIGHT_MARGIN_SECONDS: Final = 30.0
TICK_SECONDS: Final = 1.0
# Interval of scanning all hosts and origins for idle ones.
FORGET_EVERY_SECONDS: Final = 10.0
FORGET_SECONDS: Final = 60.0
# Hosts that were too busy are remembered longer: their next pause is longer.
FORGET_BUSY_SECONDS: Final = 600.0
MAX_SHOWN: Final = 1000


@dataclass(frozen=True, slots=True)
class PoliteRun:
    """What the engine needs to know of a run."""

    run: int
    reply_to: str
    obey_robots: bool
    user_agent: str
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class RobotsFetch:
    """A robots.txt to fetch through an agent of ``run``."""

    number: int
    run: int
    host: str
    url: str


@dataclass(frozen=True, slots=True)
class HostView:
    """A host as pages show it. ``blocked_seconds``: 0 if it is not paused."""

    host: str
    held: int
    in_flight: int
    stopped: bool
    blocked_seconds: float
    reason: str
    robots: str


@dataclass(slots=True)
class Actions:
    """Results of a step. Notices to runs are keyed by (run, reply_to, reason)."""

    go: list[HeldRequest] = field(default_factory=list)
    held: dict[tuple[int, str, str], list[RequestItem]] = field(default_factory=dict)
    refused: dict[tuple[int, str, str], list[RequestItem]] = field(default_factory=dict)
    skipped: dict[tuple[int, str, str], list[RequestItem]] = field(default_factory=dict)
    # Skipped because their runs have withdrawn them.
    withdrawn: dict[tuple[int, str, str], list[RequestItem]] = field(default_factory=dict)
    fetches: list[RobotsFetch] = field(default_factory=list)
    asks: list[ShareRequest] = field(default_factory=list)


class PolitenessEngine:
    """Single-threaded. Times are seconds of one monotonic clock."""

    def __init__(self, rules: HostRules) -> None:
        self._rules = rules
        self._hosts: dict[str, PoliteHost] = {}
        self._origins: dict[str, RobotsOrigin] = {}
        self._of_runs: dict[int, set[HeldRequest]] = {}
        self._views: dict[int, PoliteRun] = {}
        self._unnotified: deque[tuple[float, HeldRequest]] = deque()
        self._notified: deque[tuple[float, HeldRequest]] = deque()
        self._touched: set[str] = set()
        # When to look at which host again; entries that differ from ``_scheduled`` are stale.
        self._due: list[tuple[float, str]] = []
        self._scheduled: dict[str, float] = {}
        self._pending: set[str] = set()
        self._fetching: dict[int, RobotsOrigin] = {}
        self._numbers = itertools.count(1)
        self._tick_at = 0.0
        self._forget_at = 0.0
        self._actions = Actions()

    # --- what happens ---------------------------------------------------------------------------

    def offer(self, view: PoliteRun, items: Sequence[RequestItem], now: float) -> None:
        """Take requests of a run; each goes, is held, refused or skipped."""
        self._views[view.run] = view
        of_run = self._of_runs.get(view.run, set())
        limit = self._rules.defaults.held_limit
        for item in items:
            if len(of_run) >= limit:
                reason = f"the center holds {limit} requests of the run already"
                _add(self._actions.skipped, view.run, view.reply_to, reason, item)
                continue
            waiting = self._waiting(view, item)
            if self._line_up(waiting, view, now):
                of_run.add(waiting)
                self._unnotified.append((now + NOTIFY_AFTER_SECONDS, waiting))
        if of_run:
            self._of_runs[view.run] = of_run

    def finished(self, run: int, results: Iterable[HostResult], now: float) -> None:
        """Process an agent's report of how hosts answered a run's requests."""
        for result in results:
            host = self._hosts.get(result.host)
            if host is not None:
                host.finished(run, result.finished)
                host.answered(result.finished, result.busy, result.retry_after_seconds, now)
                self._touched.add(result.host)

    def undo(self, waiting: HeldRequest) -> None:
        """Release the slot of a request that could not be sent."""
        host = self._hosts.get(waiting.item.host)
        if host is not None:
            host.finished(waiting.run, 1)
            self._touched.add(waiting.item.host)

    def fetched(self, result: DownloadResult, now: float, agent: str = "") -> None:
        """Process an agent's answer to a ``RobotsFetch``, whose number is the negative id."""
        origin = self._fetching.pop(-result.id, None)
        if origin is None:
            return
        origin.found(read(result, origin.redirects), now)
        if origin.waiting:
            origin.waiting[0].connected = agent
        self._settle(origin, now)

    def fetch_failed(self, number: int, problem: str, now: float) -> None:
        """Postpone a ``RobotsFetch`` that could not be sent."""
        origin = self._fetching.pop(number, None)
        if origin is not None:
            origin.fetch, origin.again_at, origin.problem = None, now + TICK_SECONDS, problem

    def granted(self, answers: Mapping[str, ShareGrant], now: float) -> None:
        """Process shares granted by the store."""
        for name, answer in answers.items():
            host = self._hosts.get(name)
            if host is not None:
                host.granted(answer, now)
                self._touched.add(name)

    def set_rules(self, rules: HostRules) -> None:
        """Replace the rules; they apply to held requests, too."""
        self._rules = rules
        for name, host in self._hosts.items():
            host.change(rules.limits(name))
            self._touched.add(name)

    def drop(
        self, run: int, reason: str, keep_reply_to: str = "", *, withdrawn: bool = False
    ) -> None:
        """Skip the held requests of a run that has ended or has no listener.

        Requests from the queue ``keep_reply_to`` stay. ``withdrawn``: the run has paused and gets
        them back.
        """
        notices = self._actions.withdrawn if withdrawn else self._actions.skipped
        waiting = self._of_runs.get(run, set())
        doomed = [one for one in waiting if not keep_reply_to or one.reply_to != keep_reply_to]
        for one in doomed:
            _add(notices, run, one.reply_to, reason, one.item)
            self._leave(one)
        for name in {one.item.host for one in doomed}:
            self._hosts[name].drop(run, keep_reply_to)
        for name in list(self._pending):
            origin = self._origins[name]
            origin.waiting = deque(one for one in origin.waiting if not one.gone)

    def drop_queues(self, queues: Collection[str], reason: str) -> None:
        """Drop the runs whose answer queues are gone."""
        for run, waiting in list(self._of_runs.items()):
            if any(one.reply_to in queues for one in waiting):
                rest = [one.reply_to for one in waiting if one.reply_to not in queues]
                self.drop(run, reason, rest[0] if rest else "")

    def drop_all(self, reason: str) -> None:
        """Drop every held request."""
        for run in list(self._of_runs):
            self.drop(run, reason)

    # --- what follows from it -------------------------------------------------------------------

    def step(self, now: float) -> Actions:
        """Return everything that is due now."""
        while self._due and self._due[0][0] <= now:
            at, name = heapq.heappop(self._due)
            if self._scheduled.get(name) == at:
                del self._scheduled[name]
                self._touched.add(name)
        self._look_after_origins(now)
        if now >= self._tick_at:
            self._tick_at = now + TICK_SECONDS
        if now >= self._forget_at:
            self._forget_at = now + FORGET_EVERY_SECONDS
            self._forget(now)
        touched, self._touched = self._touched, set()
        for name in touched:
            if name in self._hosts:
                self._advance(self._hosts[name], now)
        self._notify(now)
        actions, self._actions = self._actions, Actions()
        return actions

    def due_at(self) -> float:
        """Return when ``step`` is due again by itself."""
        moments = [self._tick_at if self._hosts else math.inf]
        if self._due:
            moments.append(self._due[0][0])
        if self._unnotified:
            moments.append(self._unnotified[0][0])
        return min(moments)

    def views(self, now: float) -> list[HostView]:
        """Return the busy hosts, the longest queues first."""
        held = {name: host.waiting for name, host in self._hosts.items() if host.waiting}
        for pending in self._pending:
            origin = self._origins[pending]
            held[origin.host] = held.get(origin.host, 0) + len(origin.waiting)
        busy = (
            host
            for name, host in self._hosts.items()
            if host.busy or held.get(name) or host.blocked_until > now
        )
        shown = heapq.nlargest(MAX_SHOWN, busy, key=lambda host: held.get(host.name, 0))
        robots = self._robots_of({host.name for host in shown}, now)
        return [
            HostView(
                host=host.name,
                held=held.get(host.name, 0),
                in_flight=host.in_flight,
                stopped=host.limits.stopped,
                blocked_seconds=max(0.0, host.blocked_until - now),
                reason=self._why(host, now) if held.get(host.name) else "",
                robots=robots.get(host.name, "unknown"),
            )
            for host in shown
        ]

    def _robots_of(self, hosts: Collection[str], now: float) -> dict[str, str]:
        robots: dict[str, str] = {}
        for origin in self._origins.values():
            if origin.host in hosts:
                state = origin.state(now)
                if state != "read" or origin.host not in robots:
                    robots[origin.host] = state
        return robots

    # --- inside ---------------------------------------------------------------------------------

    def _waiting(self, view: PoliteRun, item: RequestItem) -> HeldRequest:
        url, timeout, ignores_robots = "", view.timeout_seconds, False
        try:
            request = decode_request(item.request)
        except ProtocolError:
            # The agent reports it in its own notices.
            pass
        else:
            url, ignores_robots = request.url, request.ignore_robots
            timeout = request.timeout_seconds or timeout
        limit = timeout + FLIGHT_MARGIN_SECONDS
        return HeldRequest(view.run, view.reply_to, item, url, limit, ignores_robots)

    def _line_up(self, waiting: HeldRequest, view: PoliteRun, now: float) -> bool:
        """Queue a request at its host or its robots.txt; False when it is refused."""
        host = self._host(waiting.item.host, now)
        self._touched.add(host.name)
        override = host.limits.obey_robots
        obey = view.obey_robots and not waiting.ignores_robots if override is None else override
        name = origin_of(waiting.url) if obey else ""
        if not name:
            host.put(waiting)
            return True
        origin = self._origins.get(name)
        if origin is None:
            origin = self._origins[name] = RobotsOrigin(name, host.name)
        cache = self._rules.defaults.robots_cache_seconds
        verdict, reason = origin.judge(waiting.url, view.user_agent, now, cache)
        if verdict is RobotsDecision.FORBIDDEN:
            _add(self._actions.refused, view.run, waiting.reply_to, reason, waiting.item)
            return False
        if verdict is RobotsDecision.UNKNOWN:
            origin.waiting.append(waiting)
            self._pending.add(name)
            return True
        host.delays[name, view.user_agent] = origin.delay(view.user_agent)
        host.put(waiting)
        return True

    def _host(self, name: str, now: float) -> PoliteHost:
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = PoliteHost(name, self._rules.limits(name))
        host.used_at = now
        return host

    def _settle(self, origin: RobotsOrigin, now: float) -> None:
        """Queue requests that waited for robots.txt at their host, or refuse them."""
        waiting, origin.waiting = origin.waiting, deque()
        self._pending.discard(origin.name)
        for one in waiting:
            if not one.gone and not self._line_up(one, self._views[one.run], now):
                self._leave(one)

    def _leave(self, waiting: HeldRequest) -> None:
        waiting.gone = True
        of_run = self._of_runs.get(waiting.run)
        if of_run is not None:
            of_run.discard(waiting)
            if not of_run:
                del self._of_runs[waiting.run]

    def _look_after_origins(self, now: float) -> None:
        for name in list(self._pending):
            origin = self._origins[name]
            if origin.fetch is not None and now >= origin.lost_at:
                self._fetching.pop(origin.fetch, None)
                origin.found(read(_lost(origin), origin.redirects), now)
                self._settle(origin, now)
            if not origin.waiting:
                self._pending.discard(name)
            elif origin.fetch is None and now >= origin.again_at:
                self._fetch(origin, now)

    def _fetch(self, origin: RobotsOrigin, now: float) -> None:
        host = self._hosts[origin.host]
        if host.limits.stopped or now < host.blocked_until:
            return
        first = self._views[origin.waiting[0].run]
        number = next(self._numbers)
        origin.fetch, origin.lost_at = number, now + first.timeout_seconds + FLIGHT_MARGIN_SECONDS
        self._fetching[number] = origin
        url = origin.url or f"{origin.name}/robots.txt"
        self._actions.fetches.append(RobotsFetch(number, first.run, origin.host, url))

    def _advance(self, host: PoliteHost, now: float) -> None:
        while (waiting := host.take(now)) is not None:
            host.used_at = now
            self._leave(waiting)
            self._actions.go.append(waiting)
        ask = host.ask(now)
        if ask is not None:
            self._actions.asks.append(ask)
        due_at = min(host.due_at, host.ask_at())
        if due_at < self._scheduled.get(host.name, math.inf):
            self._scheduled[host.name] = due_at
            heapq.heappush(self._due, (due_at, host.name))

    def _notify(self, now: float) -> None:
        while self._unnotified and self._unnotified[0][0] <= now:
            self._notify_one(self._unnotified.popleft()[1], now)
        while self._notified and self._notified[0][0] <= now:
            self._notify_one(self._notified.popleft()[1], now)

    def _notify_one(self, waiting: HeldRequest, now: float) -> None:
        if waiting.gone:
            return
        waiting.notified = True
        self._notified.append((now + NOTIFY_AGAIN_SECONDS, waiting))
        host = self._hosts[waiting.item.host]
        reason = self._why(host, now, waiting)
        _add(self._actions.held, waiting.run, waiting.reply_to, reason, waiting.item)

    def _why(self, host: PoliteHost, now: float, waiting: HeldRequest | None = None) -> str:
        name = origin_of(waiting.url) if waiting is not None else ""
        if name in self._pending and not host.limits.stopped and now >= host.blocked_until:
            problem = self._origins[name].problem
            return f"robots.txt of {name} is not there yet" + (f" ({problem})" if problem else "")
        return host.why(now)

    def _forget(self, now: float) -> None:
        old = [
            name
            for name, host in self._hosts.items()
            if host.used_at < now - (FORGET_BUSY_SECONDS if host.strikes else FORGET_SECONDS)
            and not host.busy
        ]
        kept = {origin.host for name in self._pending if (origin := self._origins[name])}
        for name in old:
            if name not in kept and self._hosts[name].blocked_until <= now:
                del self._hosts[name]
                self._touched.discard(name)
        cache = self._rules.defaults.robots_cache_seconds
        for name in [
            name
            for name, origin in self._origins.items()
            if origin.host not in self._hosts and now - origin.read_at > cache
        ]:
            del self._origins[name]
        for run in self._views.keys() - self._of_runs.keys():
            del self._views[run]


def _lost(origin: RobotsOrigin) -> DownloadResult:
    return DownloadResult(
        0, 1, origin.url, status=0, headers=[], body=b"", error="no answer came in time"
    )


def _add(
    notices: dict[tuple[int, str, str], list[RequestItem]],
    run: int,
    reply_to: str,
    reason: str,
    item: RequestItem,
) -> None:
    notices.setdefault((run, reply_to, reason), []).append(item)
