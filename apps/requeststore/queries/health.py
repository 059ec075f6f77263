"""Health of the request store: problems and their durations."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from apps.queuestats.models import SampleSender
from apps.requeststore.engine.forecast import STALE_SECONDS, Lateness, Outlook
from apps.requeststore.models import NodeReport
from apps.requeststore.queries.outlook import BizStatus, BizStatuses

# An operation that takes longer is slow.
SLOW_SECONDS: Final = 1.0
# Clock differences of processes silent for longer are not reported.
CLOCKS_OF: Final = timedelta(hours=1)


class NodeState(enum.StrEnum):
    """State of a storage node."""

    WELL = "well"
    SLOW = "slow"
    # Unreachable, or answering with an error.
    PROBLEM = "problem"
    # Not checked by the upkeep task lately.
    SILENT = "silent"


class ConcernCode(enum.StrEnum):
    """Kind of problem."""

    NODE_PROBLEM = "node_problem"
    NODE_SILENT = "node_silent"
    NODE_SLOW = "node_slow"
    QUEUE_PROBLEM = "queue_problem"
    SHARD_PROBLEM = "shard_problem"
    BIZ_LATE = "biz_late"
    BIZ_STALLED = "biz_stands"
    BIZ_GROWS = "biz_grows"
    BIZ_FULL = "biz_full"
    NOT_MEASURED = "not_measured"
    CLOCK_WRONG = "clock_wrong"
    WEBHOOK_UNACKNOWLEDGED = "not_told"


@dataclass(frozen=True, slots=True)
class Concern:
    """Problem. ``subject``: node, biz or process. ``value``: seconds, where it has any."""

    code: ConcernCode
    subject: str
    severe: bool
    since: datetime | None = None
    detail: str = ""
    value: float = 0.0
    standing: BizStatus | None = None


@dataclass(frozen=True, slots=True)
class NodeLine:
    """Storage node with its state; ``slow``: seconds and text of slow operations, slowest
    first.
    """

    row: NodeReport
    state: NodeState
    slow: list[tuple[float, str]]


def nodes(now: datetime) -> list[NodeLine]:
    """Return every storage node that was ever reported. One query."""
    return [_node(row, now) for row in NodeReport.objects.order_by("name")]


def concerns(found: BizStatuses, lines: Sequence[NodeLine]) -> list[Concern]:
    """Return all problems, most severe first. One additional query."""
    seen = [*_of_nodes(lines), *_of_platform(found)]
    for biz in found.bizzes:
        seen += _of_biz(biz)
    return sorted(seen, key=lambda each: not each.severe)


def _node(row: NodeReport, now: datetime) -> NodeLine:
    slow = sorted(_slow(row.slow), reverse=True)
    if row.problem:
        state = NodeState.PROBLEM
    elif (now - row.reported_at).total_seconds() > STALE_SECONDS:
        state = NodeState.SILENT
    else:
        state = NodeState.SLOW if slow else NodeState.WELL
    return NodeLine(row, state, slow)


def _slow(rows: Any) -> list[tuple[float, str]]:
    operations = [(float(row["seconds"]), str(row["text"])) for row in rows or []]
    return [operation for operation in operations if operation[0] >= SLOW_SECONDS]


def _of_nodes(lines: Sequence[NodeLine]) -> list[Concern]:
    concerns = []
    for line in lines:
        name, row = line.row.name, line.row
        if line.state is NodeState.PROBLEM:
            concerns.append(
                Concern(ConcernCode.NODE_PROBLEM, name, True, row.since_at, row.problem)
            )
        elif line.state is NodeState.SILENT:
            concerns.append(Concern(ConcernCode.NODE_SILENT, name, True, row.reported_at))
        elif line.state is NodeState.SLOW:
            seconds, text = line.slow[0]
            concerns.append(Concern(ConcernCode.NODE_SLOW, name, False, None, text, seconds))
    return concerns


def _of_platform(found: BizStatuses) -> list[Concern]:
    seen = []
    if found.bizzes and not found.listening:
        seen.append(Concern(ConcernCode.NOT_MEASURED, "", True))
    if found.state.problem:
        seen.append(
            Concern(ConcernCode.WEBHOOK_UNACKNOWLEDGED, "", False, None, found.state.problem)
        )
    wrong = SampleSender.objects.exclude(behind_seconds=0).filter(
        heard_at__gte=found.now - CLOCKS_OF
    )
    seen += [
        Concern(ConcernCode.CLOCK_WRONG, row.sender, False, None, "", row.behind_seconds)
        for row in wrong.order_by("sender")[:20]
    ]
    return seen


def _of_biz(each: BizStatus) -> list[Concern]:
    name = f"{each.project}/{each.biz}"
    concerns = [
        Concern(ConcernCode.SHARD_PROBLEM, name, True, None, text) for text in each.stored.problems
    ]
    if each.queue is not None and each.queue.problem:
        concerns.append(Concern(ConcernCode.QUEUE_PROBLEM, name, True, None, each.queue.problem))
    most = each.plan.max_waiting
    if each.queue is not None and 0 < most <= each.queue.waiting:
        concerns.append(Concern(ConcernCode.BIZ_FULL, name, False, standing=each))
    forecast = each.forecast
    if forecast.outlook is Outlook.STANDS:
        concerns.append(Concern(ConcernCode.BIZ_STALLED, name, True, standing=each))
    elif forecast.lateness is not Lateness.NONE:
        concerns.append(Concern(ConcernCode.BIZ_LATE, name, True, standing=each))
    elif forecast.outlook is Outlook.NEVER:
        concerns.append(Concern(ConcernCode.BIZ_GROWS, name, False, standing=each))
    return concerns
