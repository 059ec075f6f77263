"""Reports of this router's inbounds and outbounds, for pages and REST."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from apps.routing.daemon.failing import FailureLine
from apps.routing.daemon.lines import InLine, Lane
from apps.routing.daemon.yard import Running, Yard
from apps.routing.engine.inbounds import groups
from apps.routing.engine.inbounds.polling import Key
from apps.routing.engine.inbounds.registry import check_running
from apps.routing.engine.reports import FileReport, InboundReport, OutboundReport, Reports
from apps.routing.services import forget_reports, report_lines
from yardkit.clock import Clock
from yardkit.timers import Timers

REPORT_SECONDS: Final = 2.0
# Seconds between two questions to a server: how much waits, and whether the threads suit it.
ASK_SECONDS: Final = 5.0


class Reporting:
    """Writes the reports, and asks servers what is to be said in them."""

    def __init__(self, yard: Yard, clock: Clock, *, router: str) -> None:
        self._yard = yard
        self._clock = clock
        self._router = router
        self.timers = Timers(clock.monotonic)

    def turn(self) -> None:
        """Write the reports where that is due."""
        if not self.timers.due("report", REPORT_SECONDS):
            return
        reports = {}
        for project in self._yard.projects():
            with self._yard.using(project) as running:
                if running is not None:
                    reports[project] = running.version, self._reports(running)
        report_lines(router=self._router, reports=reports, now=self._clock.now())

    def ask(self) -> None:
        """Ask servers, where that is due. This may wait for them."""
        if not self.timers.due("ask", ASK_SECONDS):
            return
        seats = self._seats()
        for project in self._yard.projects():
            with self._yard.using(project) as running:
                if running is None:
                    continue
                for name, line in running.lines.items():
                    line.depth = line.inbound.depth()
                    rule = running.track.entrances[name].rule
                    line.findings = (
                        *((each.code, each.text) for each in check_running(line.inbound, rule)),
                        *_of_one_group(seats, (project, name)),
                    )
                for lane in running.lanes.values():
                    # What was never sent to needs no connection for a number.
                    if lane.sent and not lane.away:
                        lane.ask_depth()

    def _seats(self) -> dict[Key, set[groups.Seat]]:
        """Where the inbounds of all projects take part."""
        found = {}
        for project in self._yard.projects():
            with self._yard.using(project) as running:
                if running is None:
                    continue
                for name in running.lines:
                    found[project, name] = groups.seats(running.track.entrances[name].rule)
        return found

    def end(self) -> None:
        """This router says no more."""
        forget_reports(router=self._router)

    def _reports(self, running: Running) -> dict[str, object]:
        now = self._clock.now()
        errors = zip(running.track.ways.names, running.track.ways.errors, strict=True)
        told = Reports(
            inbounds={name: _inbound(line, now) for name, line in running.lines.items()},
            outbounds={name: _outbound(lane) for name, lane in running.lanes.items()},
            selector_errors={name: count for name, count in errors if count},
            failure_file=_failure_file(running.failures),
        )
        found: dict[str, object] = msgspec.to_builtins(told)
        return found


def _inbound(line: InLine, now: datetime) -> InboundReport:
    problem = line.inbound.problem
    if problem != line.problem:
        line.problem_at = now if not line.problem or line.problem_at is None else line.problem_at
        line.problem = problem
    return InboundReport(
        problem=problem,
        problem_at_ms=_milliseconds(line.problem_at) if problem else 0,
        depth=line.depth,
        taken=line.taken,
        filtered=line.filtered,
        poison=line.poison,
        late=line.inbound.late,
        findings=line.findings,
    )


def _of_one_group(seats: dict[Key, set[groups.Seat]], mine: Key) -> list[tuple[str, str]]:
    """What is to be said of an inbound that shares its items with another one.

    Whose it is stays unsaid where it is another project's.
    """
    for other, theirs in seats.items() if seats.get(mine) else ():
        shared = theirs & seats[mine]
        if other != mine and shared:
            who = f"inbound {other[1]}" if other[0] == mine[0] else "an inbound of another project"
            return [(groups.CODE, groups.told(shared, who))]
    return []


def _outbound(lane: Lane) -> OutboundReport:
    return OutboundReport(
        problem=lane.away,
        problem_at_ms=_milliseconds(lane.away_at),
        depth=lane.depth,
        full=lane.shows_full,
        sent=lane.sent,
        refused=lane.refused,
        limit_degraded=lane.tokens.degraded,
    )


def _failure_file(line: FailureLine | None) -> FileReport:
    if line is None or not (problem := line.problem):
        return FileReport()
    return FileReport(problem=problem, problem_at_ms=_milliseconds(line.problem_at))


def _milliseconds(at: datetime | None) -> int:
    return 0 if at is None else round(at.timestamp() * 1000)
