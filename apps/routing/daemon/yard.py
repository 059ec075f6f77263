"""Which version of which project's rules runs here, with what is connected for it.

A version is a ``Running``; whoever works by one holds it. When rules change, inbounds and outbounds
whose own rule is the same go on in the next version; the others are closed as soon as nobody works
by a version that has them.
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

from apps.configcenter.services import Active
from apps.projects.models import Project
from apps.routing.daemon.failing import LOCK_SECONDS, FailureLine
from apps.routing.daemon.lines import InLine, Lane
from apps.routing.engine import rules
from apps.routing.engine.failures import FailureFile, FailureFileError
from apps.routing.engine.inbounds import registry as inbounds
from apps.routing.engine.inbounds.base import BadInit, Context
from apps.routing.engine.inbounds.polling import Key, Polling
from apps.routing.engine.life import Life
from apps.routing.engine.outbounds import registry as outbounds
from apps.routing.engine.outbounds.base import Settings
from apps.routing.engine.rules import Problem, RuleSet
from apps.routing.engine.tokens import Tokens
from apps.routing.engine.track import BadRules, Track, lay
from apps.routing.models import Tally
from apps.routing.states import ItemState
from yardkit.clock import Clock

logger = logging.getLogger(__name__)

BATCH: Final = 500
# Longest pause between two looks at an inbound without items.
LONGEST_REST_SECONDS: Final = 0.25
_CLOSERS: Final = 16


@dataclass(frozen=True, slots=True)
class Environment:
    """What surrounds the rules: folders, stores and names of this process."""

    # Of this process, for people who look at a server's list of clients.
    name: str
    # Where inbounds remember things, a folder for each project below it.
    state: Path
    # File inbounds read below this folder.
    files: Path
    # Failure files stand below one of these.
    failures: tuple[Path, ...]
    # The rules of a version with values for its placeholders, by data and slug of the project.
    fill: Callable[[Mapping[str, Any], str], tuple[RuleSet | None, list[Problem]]]
    # Shared rate limits; "" keeps them in this process.
    redis_url: str = ""
    redis_prefix: str = "crawlyard"
    # Networks that an HTTP outbound may reach though they are private.
    allowed_networks: tuple[str, ...] = ()
    # No call to a target waits longer; a stop must not either.
    timeout_seconds: float = 2.5


@dataclass(eq=False, slots=True)
class Running:
    """One version of one project's rules, with its lines."""

    project: int
    slug: str
    version: int
    track: Track
    lines: dict[str, InLine]
    # Of outbounds that are not disabled.
    lanes: dict[str, Lane]
    failures: FailureLine | None
    life: Life = field(init=False)
    users: int = 0

    def __post_init__(self) -> None:
        self.life = self.track.life(self._is_full)

    def _is_full(self, outbound: rules.Outbound) -> bool:
        lane = self.lanes.get(outbound.name)
        return lane is not None and lane.is_full()


class _Closable(Protocol):
    def close(self) -> None: ...


class Yard:
    """All projects that this router runs. Every method may be called from any thread."""

    def __init__(self, environment: Environment, clock: Clock, *, workers: int) -> None:
        self._environment = environment
        self._clock = clock
        # Each worker has a batch in its hands, and the next one is on its way.
        self._in_flight = BATCH * 2 * max(1, workers)
        self._lock = threading.Lock()
        self._current: dict[int, Running] = {}
        # Versions that were replaced and are still worked by.
        self._leaving: list[Running] = []
        self._polling: Polling = Polling({})

    # --- who works --------------------------------------------------------------------------------

    @contextmanager
    def using(self, project: int) -> Iterator[Running | None]:
        """The version that runs now; its lines stay open meanwhile. None: there is none."""
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
        """Those with rules that run."""
        with self._lock:
            return list(self._current)

    def turn(self) -> tuple[Running, InLine] | None:
        """The inbound to take from now, held for the caller until ``done``; None: all rest."""
        with self._lock:
            now = self._clock.monotonic()
            key = self._polling.turn(now, self._busy_since)
            if key is None:
                return None
            running = self._current[key[0]]
            line = running.lines[key[1]]
            line.in_work += 1
            line.begun_at = now
            running.users += 1
            return running, line

    def _busy_since(self, key: Key) -> float | None:
        running = self._current[key[0]]
        line = running.lines[key[1]]
        # The rule that runs now says how many, not the one it was made by.
        is_busy = line.in_work >= max(1, running.track.entrances[key[1]].rule.threads)
        return line.begun_at if is_busy else None

    def found(self, running: Running, line: InLine, count: int) -> None:
        """Note what the turn has found; after nothing the inbound rests a little."""
        with self._lock:
            key = running.project, line.rule.name
            if self._current.get(running.project) is running and line.rule.name in running.lines:
                self._polling.found(key, count, self._clock.monotonic())

    def done(self, running: Running, line: InLine) -> None:
        """The turn is over."""
        with self._lock:
            line.in_work -= 1
        self._leave(running)

    def pause(self) -> float:
        """Seconds until an inbound can be asked again."""
        with self._lock:
            return self._polling.wait(self._clock.monotonic())

    def _leave(self, running: Running) -> None:
        with self._lock:
            running.users -= 1
            gone = self._gone() if running.users == 0 and running in self._leaving else []
        _close(gone)

    # --- which version ----------------------------------------------------------------------------

    def use(self, project: int, active: Active | None) -> None:
        """Run this version from now on, or none.

        Raises:
            BadRules: it cannot be run here, and the version before goes on.
        """
        made = None if active is None else self._make(project, active)
        with self._lock:
            before = self._current.pop(project, None)
            if made is not None:
                self._current[project] = made
            if before is not None:
                self._leaving.append(before)
            self._poll_anew()
            gone = self._gone()
        _close(gone)

    def close(self) -> None:
        """Close everything, once no thread works any more."""
        with self._lock:
            self._leaving += self._current.values()
            self._current = {}
            for each in self._leaving:
                each.users = 0
            self._poll_anew()
            gone = self._gone()
        _close(gone)

    def _make(self, project: int, active: Active) -> Running:
        slug = Project.objects.values_list("slug", flat=True).get(pk=project)
        filled = self._filled(slug, active)
        track = lay(filled, active.number)
        with self._lock:
            before = self._current.get(project)
        made: list[_Closable] = []
        try:
            lanes = {
                rule.name: self._lane(project, rule, before, made)
                for rule in filled.outbounds
                if not rule.disable
            }
            lines = {
                rule.name: self._line(slug, rule, before, made)
                for rule in filled.inbounds
                if not rule.disable and inbounds.is_polled(rule.cls)
            }
            failures = self._failures(slug, filled)
            # What comes now must not go before what waits already.
            for name in parked_of([project])[project].keys() & lanes.keys():
                lanes[name].has_parked = True
        except BaseException:
            _close(made)
            raise
        return Running(project, slug, active.number, track, lines, lanes, failures)

    def _filled(self, slug: str, active: Active) -> RuleSet:
        filled, problems = self._environment.fill(active.data, slug)
        errors = [each for each in problems if not each.warning]
        if filled is None or errors:
            raise BadRules(errors)
        return filled

    def _lane(
        self, project: int, rule: rules.Outbound, before: Running | None, made: list[_Closable]
    ) -> Lane:
        kept = before and before.lanes.get(rule.name)
        if kept and kept.is_for(rule):
            return kept
        settings = Settings(
            client_name=f"crawlyard router {self._environment.name}",
            timeout_seconds=self._environment.timeout_seconds,
            allowed_networks=self._environment.allowed_networks,
            project=project,
        )
        try:
            outbound = outbounds.build(rule, settings)
        except (outbounds.UnknownOutbound, ValueError, ImportError) as error:
            raise BadRules([_problem("outbound", rule.name, error)]) from error
        tokens = Tokens(
            f"{project}:{rule.name}",
            rule.token_per_second,
            redis_url=self._environment.redis_url,
            prefix=self._environment.redis_prefix,
            clock=self._clock,
        )
        lane = Lane(rule, outbound, tokens, self._clock)
        made.append(lane)
        return lane

    def _line(
        self, slug: str, rule: rules.Inbound, before: Running | None, made: list[_Closable]
    ) -> InLine:
        kept = before and before.lines.get(rule.name)
        if kept and kept.is_for(rule):
            return kept
        context = Context(
            name=rule.name,
            consumer=f"{slug} {self._environment.name}",
            state=self._environment.state / slug,
            files=self._environment.files,
            in_flight=self._in_flight,
        )
        try:
            inbound = inbounds.make(rule, context)
        except (BadInit, inbounds.UnknownClass, inbounds.BrokenClass) as error:
            raise BadRules([_problem("inbound", rule.name, error)]) from error
        made.append(inbound)
        return InLine(rule, inbound)

    def _failures(self, slug: str, filled: RuleSet) -> FailureLine | None:
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
            raise BadRules([Problem("failure", error.code, str(error))]) from error
        return FailureLine(slug, file, self._clock)

    # --- with the lock held -----------------------------------------------------------------------

    def _poll_anew(self) -> None:
        weights = {
            (project, name): running.track.entrances[name].rule.weight
            for project, running in self._current.items()
            for name in running.lines
        }
        self._polling = Polling(weights, longest_rest=LONGEST_REST_SECONDS)

    def _gone(self) -> list[_Closable]:
        """What no version has any more by which anybody works."""
        ended = [each for each in self._leaving if each.users == 0]
        self._leaving = [each for each in self._leaving if each.users]
        still = {
            id(each)
            for running in (*self._current.values(), *self._leaving)
            for each in _parts(running)
        }
        found = {id(each): each for running in ended for each in _parts(running)}
        return [each for key, each in found.items() if key not in still]


def parked_of(projects: Sequence[int]) -> dict[int, dict[str, int]]:
    """How many items of all routers are parked for each outbound, by project."""
    found: dict[int, dict[str, int]] = {project: {} for project in projects}
    rows = (
        Tally.objects.filter(project__in=projects, what=ItemState.PARKED)
        .values_list("project_id", "outbound")
        .annotate(total=Sum("amount"))
        .filter(total__gt=0)
    )
    for project, outbound, total in rows if projects else ():
        found[project][outbound] = total
    return found


def _parts(running: Running) -> Iterator[_Closable]:
    yield from (line.inbound for line in running.lines.values())
    yield from running.lanes.values()
    if running.failures is not None:
        yield running.failures


def _close(parts: Iterable[_Closable]) -> None:
    """Many of them wait for their servers to say goodbye, so all of them at once."""
    parts = list(parts)
    if parts:
        with ThreadPoolExecutor(min(len(parts), _CLOSERS), "router closing") as pool:
            list(pool.map(_close_one, parts))


def _close_one(part: _Closable) -> None:
    try:
        part.close()
    except Exception:  # a plug-in may raise anything; the others are closed too
        logger.exception("%s cannot be closed", type(part).__name__)


def _problem(what: str, name: str, error: Exception) -> Problem:
    return Problem(f"{what} {name}", getattr(error, "code", "bad_parameter"), str(error))
