"""Status reports of a router's inbounds and outbounds, shown on pages and in REST."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from apps.routing.daemon.channels import InboundChannel, OutboundChannel
from apps.routing.daemon.failure_file import FailureFileWriter
from apps.routing.daemon.rule_sets import RuleSetRuntime, RunningRuleSet
from apps.routing.engine.inbounds import groups
from apps.routing.engine.inbounds.poll_scheduler import Key
from apps.routing.engine.inbounds.registry import check_running
from apps.routing.engine.reports import FileReport, InboundReport, OutboundReport, Reports
from apps.routing.services import delete_reports, report_router
from yardkit.clock import Clock
from yardkit.timers import Timers

REPORT_SECONDS: Final = 2.0
# Interval of queries to servers about queue depths and settings.
ASK_SECONDS: Final = 5.0


class RouterReporter:
    """Writes status reports to the database, and queries servers for their contents."""

    def __init__(self, rule_sets: RuleSetRuntime, clock: Clock, *, router: str) -> None:
        self._rule_sets = rule_sets
        self._clock = clock
        self._router = router
        self.timers = Timers(clock.monotonic)

    def write(self) -> None:
        """Write the reports when the interval is over."""
        if not self.timers.due("report", REPORT_SECONDS):
            return
        reports = {}
        for project in self._rule_sets.projects():
            with self._rule_sets.using(project) as running:
                if running is not None:
                    reports[project] = running.version, self._reports(running)
        report_router(router=self._router, reports=reports, now=self._clock.now())

    def query_servers(self) -> None:
        """Query servers when the interval is over. This may block."""
        if not self.timers.due("ask", ASK_SECONDS):
            return
        seats = self._seats()
        for project in self._rule_sets.projects():
            with self._rule_sets.using(project) as running:
                if running is None:
                    continue
                for name, channel in running.inbounds.items():
                    channel.depth = channel.inbound.depth()
                    rule = running.track.entrances[name].rule
                    channel.findings = (
                        *(
                            (finding.code, finding.text)
                            for finding in check_running(channel.inbound, rule)
                        ),
                        *_of_one_group(seats, (project, name)),
                    )
                for outbound in running.outbounds.values():
                    # Connecting only for a number is not worth it where nothing was sent yet.
                    if outbound.sent and not outbound.unreachable:
                        outbound.query_depth()

    def _seats(self) -> dict[Key, set[groups.Seat]]:
        """Return the consumer groups that each inbound takes part in."""
        seats = {}
        for project in self._rule_sets.projects():
            with self._rule_sets.using(project) as running:
                if running is None:
                    continue
                for name in running.inbounds:
                    seats[project, name] = groups.seats(running.track.entrances[name].rule)
        return seats

    def delete(self) -> None:
        """Delete the reports of this router, which is stopping."""
        delete_reports(router=self._router)

    def _reports(self, running: RunningRuleSet) -> dict[str, object]:
        now = self._clock.now()
        errors = zip(running.track.ways.names, running.track.ways.errors, strict=True)
        reports = Reports(
            inbounds={name: _inbound(channel, now) for name, channel in running.inbounds.items()},
            outbounds={name: _outbound(channel) for name, channel in running.outbounds.items()},
            selector_errors={name: count for name, count in errors if count},
            failure_file=_failure_file(running.failures),
        )
        data: dict[str, object] = msgspec.to_builtins(reports)
        return data


def _inbound(channel: InboundChannel, now: datetime) -> InboundReport:
    problem = channel.inbound.problem
    if problem != channel.problem:
        channel.problem_at = (
            now if not channel.problem or channel.problem_at is None else channel.problem_at
        )
        channel.problem = problem
    return InboundReport(
        problem=problem,
        problem_at_ms=_milliseconds(channel.problem_at) if problem else 0,
        depth=channel.depth,
        taken=channel.taken,
        filtered=channel.filtered,
        poison=channel.malformed,
        late=channel.inbound.late,
        findings=channel.findings,
    )


def _of_one_group(seats: dict[Key, set[groups.Seat]], mine: Key) -> list[tuple[str, str]]:
    """Return a warning for an inbound that shares a consumer group with another one.

    An inbound of another project is not named, because the reader may not see that project.
    """
    for other, theirs in seats.items() if seats.get(mine) else ():
        shared = theirs & seats[mine]
        if other != mine and shared:
            who = f"inbound {other[1]}" if other[0] == mine[0] else "an inbound of another project"
            return [(groups.CODE, groups.shared_group_text(shared, who))]
    return []


def _outbound(channel: OutboundChannel) -> OutboundReport:
    return OutboundReport(
        problem=channel.unreachable,
        problem_at_ms=_milliseconds(channel.unreachable_at),
        depth=channel.depth,
        full=channel.shows_full,
        sent=channel.sent,
        refused=channel.refused,
        limit_degraded=channel.tokens.degraded,
    )


def _failure_file(channel: FailureFileWriter | None) -> FileReport:
    if channel is None or not (problem := channel.problem):
        return FileReport()
    return FileReport(problem=problem, problem_at_ms=_milliseconds(channel.problem_at))


def _milliseconds(at: datetime | None) -> int:
    return 0 if at is None else round(at.timestamp() * 1000)
