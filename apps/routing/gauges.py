"""Metrics and queue readings of routers, their inbounds and outbounds, and the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec
from django.db.models import Sum
from django.utils import timezone

from apps.routing.engine.rules import Inbound, Outbound
from apps.routing.engine.track import InvalidRules, Track
from apps.routing.models import CounterChange, RouterReport
from apps.routing.queries import RoutingStatus, active_track, routing_status
from apps.routing.queries.accounting import CountedEvent
from apps.routing.querysets import IN_FLIGHT
from apps.routing.states import FINAL, ItemState
from yardkit import metrics, queues
from yardkit.metrics import Reading
from yardkit.queues import QueueDirection, QueueReading

# Engine of the external system of an inbound or outbound, by the first part of its class name.
_ENGINES: Final = {
    "redis_queue": "redis",
    "rabbitmq": "rabbitmq",
    "kafka": "kafka",
    "file": "files",
    "http": "http",
    "http_post": "http",
    "seeds": "seeds",
    "requests": "requests",
    "jobs": "runs",
}


def _accounting() -> dict[str, Reading]:
    """Return the numbers of items by state and project, from the counters. One query."""
    totals: dict[str, dict[str, int]] = {}
    rows = CounterChange.objects.values_list("project", "what").annotate(total=Sum("amount"))
    for project, counter, total in rows:
        totals.setdefault(str(project), {})[counter] = total
    readings: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in (*GAUGES, *COUNTERS)}
    for project, own in totals.items():
        key = (project,)
        in_flight = sum(own.get(state, 0) for state in IN_FLIGHT)
        parked = own.get(ItemState.PARKED, 0)
        ended = sum(own.get(state, 0) for state in FINAL)
        received = own.get(CountedEvent.ARRIVED, 0)
        readings["routing.in_flight"][key] = in_flight
        readings["routing.parked"][key] = parked
        readings["routing.unaccounted"][key] = received - ended - in_flight - parked
        readings["routing.received"][key] = received
        for state in FINAL:
            readings[f"routing.{state.value}"][key] = own.get(state, 0)
    return dict(readings)


def _routers() -> dict[str, Reading]:
    now = timezone.now()
    routers: dict[tuple[str, ...], float] = {}
    troubled: dict[tuple[str, ...], float] = {}
    for project, status in _statuses(now):
        routers[(str(project),)] = len(status.routers)
        problems = [inbound.problem for inbound in status.inbounds.values()]
        problems += [outbound.problem for outbound in status.outbounds.values()]
        troubled[(str(project),)] = sum(map(bool, problems))
    return {"routing.routers": routers, "routing.troubled_lines": troubled}


def _statuses(now: datetime) -> Iterator[tuple[int, RoutingStatus]]:
    ids = RouterReport.objects.order_by("project").values_list("project", flat=True).distinct()
    for project in ids:
        yield project, routing_status(project, now)


def _queues() -> list[QueueReading]:
    """Return a reading of each inbound's and outbound's queue, as live routers report it."""
    readings = []
    for project, status in _statuses(timezone.now()):
        try:
            track = active_track(project)
        except (InvalidRules, msgspec.ValidationError):
            track = None
        routers = " ".join(router.name for router in status.routers)
        for name, inbound in status.inbounds.items():
            entrance = None if track is None else track.entrances.get(name)
            readings.append(
                QueueReading(
                    name=f"in:{name}",
                    project=project,
                    engine=_engine(None if entrance is None else entrance.rule),
                    address=_address(None if entrance is None else entrance.rule),
                    way=QueueDirection.IN,
                    waiting=inbound.depth,
                    readers=len(status.routers),
                    out_total=inbound.taken,
                    epoch=routers,
                    problem=inbound.problem,
                )
            )
        for name, outbound in status.outbounds.items():
            rule = _outbound(track, name)
            readings.append(
                QueueReading(
                    name=f"out:{name}",
                    project=project,
                    engine=_engine(rule),
                    address=_address(rule),
                    way=QueueDirection.OUT,
                    waiting=outbound.depth,
                    in_total=outbound.sent,
                    epoch=routers,
                    problem=outbound.problem,
                )
            )
    return readings


def _outbound(track: Track | None, name: str) -> Outbound | None:
    return None if track is None else track.outbounds.get(name)


def _engine(rule: Inbound | Outbound | None) -> str:
    """Return the engine of a rule's class: ``redis_queue.RedisListInbound`` -> ``redis``."""
    first = "" if rule is None else rule.cls.partition(".")[0]
    return _ENGINES.get(first, first)


def _address(rule: Inbound | Outbound | None) -> str:
    """Return the name of the queue, list or topic; never a URL, which may hold a password."""
    if rule is None:
        return ""
    names = (rule.init.get(key) for key in ("topic", "queue", "key", "name"))
    return next((name for name in names if isinstance(name, str) and "://" not in name), "")[:200]


GAUGES: Final = {
    "routing.in_flight": "Tasks in progress: not ended and not parked.",
    "routing.parked": "Tasks that wait for room, tokens or a reachable target.",
    "routing.unaccounted": "Tasks without exactly one state; anything but 0 is an error.",
}
COUNTERS: Final = {
    "routing.received": "Received tasks.",
    **{
        f"routing.{state.value}": f"Tasks that ended as {state.value}."
        for state in ItemState
        if state in FINAL
    },
}
metrics.group(GAUGES, _accounting, ("project",), COUNTERS)
metrics.group(
    {
        "routing.routers": "Routers with a recent report.",
        "routing.troubled_lines": "Inbounds and outbounds with a problem.",
    },
    _routers,
    ("project",),
)
queues.register("routing", _queues)
