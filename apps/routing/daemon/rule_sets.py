"""Rule sets that one router process runs, with their open inbounds and outbounds.

Each saved version is a ``RunningRuleSet`` with a count of users. When a version is replaced, an
inbound or outbound whose own rule is unchanged moves to the next version; the others are closed
when the last thread that uses the old version has finished.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from django.db.models import Sum

from apps.configcenter.services import ActiveVersion
from apps.projects.models import Project
from apps.routing.daemon.channels import InboundChannel, OutboundChannel
from apps.routing.daemon.failure_file import LOCK_SECONDS, FailureFileWriter
from apps.routing.engine import rules
from apps.routing.engine.failures import FailureFile, FailureFileError
from apps.routing.engine.inbounds import registry as inbound_classes
from apps.routing.engine.inbounds.base import BadInit, Context
from apps.routing.engine.inbounds.poll_scheduler import Key, PollScheduler
from apps.routing.engine.life import Life
from apps.routing.engine.outbounds import registry as outbound_classes
from apps.routing.engine.outbounds.base import Settings
from apps.routing.engine.rules import Problem, RuleSet
from apps.routing.engine.tokens import RateLimiter
from apps.routing.engine.track import InvalidRules, Track, compile_track
from apps.routing.models import CounterChange
from apps.routing.states import ItemState
from yardkit.clock import Clock

logger = logging.getLogger(__name__)

BATCH: Final = 500
# Longest pause before an idle inbound is polled again.
LONGEST_REST_SECONDS: Final = 0.25
_CLOSERS: Final = 16


@dataclass(frozen=True, slots=True)
class Environment:
    """Folders, stores and names that this process gives to the rule sets it runs."""

    # Name of this process, shown in the client lists of brokers.
    name: str
    # State of inbounds, such as read positions; one subfolder per project.
    state: Path
    # File inbounds may only read below this folder.
    files: Path
    # Failure files must be below one of these folders.
    failures: tuple[Path, ...]
    # Fills the placeholders of a version: (data, project slug) -> (rules, problems).
    fill: Callable[[Mapping[str, Any], str], tuple[RuleSet | None, list[Problem]]]
    # Store of rate limits shared by all routers; "": each process has its own limits.
    redis_url: str = ""
    redis_prefix: str = "crawlyard"
    # Private networks that HTTP outbounds may reach.
    allowed_networks: tuple[str, ...] = ()
    # Timeout of each call to a target; it also bounds the time that a stop takes.
    timeout_seconds: float = 2.5


@dataclass(eq=False, slots=True)
class RunningRuleSet:
    """One version of a project's rules, with its open inbounds and outbounds."""

    project: int
    slug: str
    version: int
    track: Track
    inbounds: dict[str, InboundChannel]
    # Without disabled outbounds.
    outbounds: dict[str, OutboundChannel]
    failures: FailureFileWriter | None
    life: Life = field(init=False)
    # Threads that work by this version; guarded by the lock of ``RuleSetRuntime``.
    users: int = 0

    def __post_init__(self) -> None:
        self.life = self.track.life(self._is_full)

    def _is_full(self, outbound: rules.Outbound) -> bool:
        channel = self.outbounds.get(outbound.name)
        return channel is not None and channel.is_full()


class _Closable(Protocol):
    def close(self) -> None: ...


class RuleSetRuntime:
    """Rule sets of all projects that this router process runs. Thread-safe."""

    def __init__(self, environment: Environment, clock: Clock, *, workers: int) -> None:
        self._environment = environment
        self._clock = clock
        # Prefetch of brokers: each worker processes one batch while the next one is on its way.
        self._in_flight = BATCH * 2 * max(1, workers)
        self._lock = threading.Lock()
        self._current: dict[int, RunningRuleSet] = {}
        # Replaced versions that some thread still uses.
        self._leaving: list[RunningRuleSet] = []
        self._polling: PollScheduler = PollScheduler({})

    # --- use by threads ---------------------------------------------------------------------------

    @contextmanager
    def using(self, project: int) -> Iterator[RunningRuleSet | None]:
        """Hold the current version of a project, or None; its channels stay open meanwhile."""
        with self._lock:
            running = self._current.get(project)
            if running is not None:
                running.users += 1
        try:
            yield running
        finally:
            if running is not None:
                self._leave(running)

    def projects(self) -> list[int]:
        """Return the ids of the projects whose rules run."""
        with self._lock:
            return list(self._current)

    def turn(self) -> tuple[RunningRuleSet, InboundChannel] | None:
        """Return the inbound to poll now, held until ``done``; None when all are idle."""
        with self._lock:
            now = self._clock.monotonic()
            key = self._polling.turn(now, self._busy_since)
            if key is None:
                return None
            running = self._current[key[0]]
            channel = running.inbounds[key[1]]
            channel.in_work += 1
            channel.begun_at = now
            running.users += 1
            return running, channel

    def _busy_since(self, key: Key) -> float | None:
        running = self._current[key[0]]
        channel = running.inbounds[key[1]]
        # By the current rule: the channel may have been opened by an earlier version.
        is_busy = channel.in_work >= max(1, running.track.entrances[key[1]].rule.threads)
        return channel.begun_at if is_busy else None

    def polled(self, running: RunningRuleSet, channel: InboundChannel, count: int) -> None:
        """Record how many items a poll returned; an idle inbound is polled less often."""
        with self._lock:
            key = running.project, channel.rule.name
            if (
                self._current.get(running.project) is running
                and channel.rule.name in running.inbounds
            ):
                self._polling.found(key, count, self._clock.monotonic())

    def done(self, running: RunningRuleSet, channel: InboundChannel) -> None:
        """Release an inbound that ``turn`` returned."""
        with self._lock:
            channel.in_work -= 1
        self._leave(running)

    def pause(self) -> float:
        """Return the seconds until an inbound can be polled again."""
        with self._lock:
            return self._polling.wait(self._clock.monotonic())

    def _leave(self, running: RunningRuleSet) -> None:
        with self._lock:
            running.users -= 1
            gone = (
                self._unused_channels() if running.users == 0 and running in self._leaving else []
            )
        _close(gone)

    # --- versions ---------------------------------------------------------------------------------

    def use(self, project: int, active: ActiveVersion | None) -> None:
        """Switch a project to this version; None stops the project.

        Raises:
            InvalidRules: the version cannot be run here; the previous one stays in use.
        """
        made = None if active is None else self._make(project, active)
        with self._lock:
            before = self._current.pop(project, None)
            if made is not None:
                self._current[project] = made
            if before is not None:
                self._leaving.append(before)
            self._reset_polling()
            gone = self._unused_channels()
        _close(gone)

    def close(self) -> None:
        """Close all channels. Call it after the last thread has stopped."""
        with self._lock:
            self._leaving += self._current.values()
            self._current = {}
            for running in self._leaving:
                running.users = 0
            self._reset_polling()
            gone = self._unused_channels()
        _close(gone)

    def _make(self, project: int, active: ActiveVersion) -> RunningRuleSet:
        slug = Project.objects.values_list("slug", flat=True).get(pk=project)
        filled = self._filled(slug, active)
        track = compile_track(filled, active.number)
        with self._lock:
            before = self._current.get(project)
        made: list[_Closable] = []
        try:
            outbounds = {
                rule.name: self._outbound_channel(project, rule, before, made)
                for rule in filled.outbounds
                if not rule.disable
            }
            inbounds = {
                rule.name: self._inbound_channel(slug, rule, before, made)
                for rule in filled.inbounds
                if not rule.disable and inbound_classes.is_polled(rule.cls)
            }
            failures = self._failures(slug, filled)
            # New items must not overtake items that are parked already.
            for name in count_parked([project])[project].keys() & outbounds.keys():
                outbounds[name].has_parked = True
        except BaseException:
            _close(made)
            raise
        return RunningRuleSet(project, slug, active.number, track, inbounds, outbounds, failures)

    def _filled(self, slug: str, active: ActiveVersion) -> RuleSet:
        filled, problems = self._environment.fill(active.data, slug)
        errors = [problem for problem in problems if not problem.warning]
        if filled is None or errors:
            raise InvalidRules(errors)
        return filled

    def _outbound_channel(
        self,
        project: int,
        rule: rules.Outbound,
        before: RunningRuleSet | None,
        made: list[_Closable],
    ) -> OutboundChannel:
        kept = before and before.outbounds.get(rule.name)
        if kept and kept.can_serve(rule):
            return kept
        settings = Settings(
            client_name=f"crawlyard router {self._environment.name}",
            timeout_seconds=self._environment.timeout_seconds,
            allowed_networks=self._environment.allowed_networks,
            project=project,
        )
        try:
            outbound = outbound_classes.build(rule, settings)
        except (outbound_classes.UnknownOutbound, ValueError, ImportError) as error:
            raise InvalidRules([_problem("outbound", rule.name, error)]) from error
        tokens = RateLimiter(
            f"{project}:{rule.name}",
            rule.token_per_second,
            redis_url=self._environment.redis_url,
            prefix=self._environment.redis_prefix,
            clock=self._clock,
        )
        channel = OutboundChannel(rule, outbound, tokens, self._clock)
        made.append(channel)
        return channel

    def _inbound_channel(
        self, slug: str, rule: rules.Inbound, before: RunningRuleSet | None, made: list[_Closable]
    ) -> InboundChannel:
        kept = before and before.inbounds.get(rule.name)
        if kept and kept.can_serve(rule):
            return kept
        context = Context(
            name=rule.name,
            consumer=f"{slug} {self._environment.name}",
            state=self._environment.state / slug,
            files=self._environment.files,
            in_flight=self._in_flight,
        )
        try:
            inbound = inbound_classes.make(rule, context)
        except (BadInit, inbound_classes.UnknownClass, inbound_classes.BrokenClass) as error:
            raise InvalidRules([_problem("inbound", rule.name, error)]) from error
        made.append(inbound)
        return InboundChannel(rule, inbound)

    def _failures(self, slug: str, filled: RuleSet) -> FailureFileWriter | None:
        if filled.failure is None:
            return None
        try:
            file = FailureFile(
                filled.failure.path,
                folders=self._environment.failures,
                compress=filled.failure.compress,
                lock_seconds=LOCK_SECONDS,
            )
        except FailureFileError as error:
            raise InvalidRules([Problem("failure", error.code, str(error))]) from error
        return FailureFileWriter(slug, file, self._clock)

    # --- with the lock held -----------------------------------------------------------------------

    def _reset_polling(self) -> None:
        weights = {
            (project, name): running.track.entrances[name].rule.weight
            for project, running in self._current.items()
            for name in running.inbounds
        }
        self._polling = PollScheduler(weights, longest_rest=LONGEST_REST_SECONDS)

    def _unused_channels(self) -> list[_Closable]:
        """Forget unused versions; return their channels that no other version shares."""
        ended = [running for running in self._leaving if running.users == 0]
        self._leaving = [running for running in self._leaving if running.users]
        in_use = {
            id(part)
            for running in (*self._current.values(), *self._leaving)
            for part in _parts(running)
        }
        unused = {id(part): part for running in ended for part in _parts(running)}
        return [part for key, part in unused.items() if key not in in_use]


def count_parked(projects: Sequence[int]) -> dict[int, dict[str, int]]:
    """Return how many items are parked for each outbound, by project and name of the outbound."""
    parked: dict[int, dict[str, int]] = {project: {} for project in projects}
    rows = (
        CounterChange.objects.filter(project__in=projects, what=ItemState.PARKED)
        .values_list("project_id", "outbound")
        .annotate(total=Sum("amount"))
        .filter(total__gt=0)
    )
    for project, outbound, total in rows if projects else ():
        parked[project][outbound] = total
    return parked


def _parts(running: RunningRuleSet) -> Iterator[_Closable]:
    yield from (channel.inbound for channel in running.inbounds.values())
    yield from running.outbounds.values()
    if running.failures is not None:
        yield running.failures


def _close(parts: Iterable[_Closable]) -> None:
    """Close channels in parallel, because many wait for an answer of their server."""
    parts = list(parts)
    if parts:
        with ThreadPoolExecutor(min(len(parts), _CLOSERS), "router closing") as pool:
            list(pool.map(_close_one, parts))


def _close_one(part: _Closable) -> None:
    try:
        part.close()
    except Exception:  # a plug-in may raise anything; the others are closed too
        logger.exception("close failed: class=%s", type(part).__name__)


def _problem(what: str, name: str, error: Exception) -> Problem:
    return Problem(f"{what} {name}", getattr(error, "code", "bad_parameter"), str(error))
