"""What can be measured of routers, their lines and the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec
from django.db.models import Sum
from django.utils import timezone

from apps.routing.engine.rules import Inbound, Outbound
from apps.routing.engine.track import BadRules, Track
from apps.routing.models import RouterReport, Tally
from apps.routing.queries import Standing, active_track, standing
from apps.routing.queries.books import Counted
from apps.routing.querysets import IN_FLIGHT
from apps.routing.states import FINAL, ItemState
from yardkit import metrics, queues
from yardkit.metrics import Reading
from yardkit.queues import QueueReading, Way

# What a class of inbound or outbound has at its other end, by the first word of its name.
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


def _books() -> dict[str, Reading]:
    """From counters that never lag; one query."""
    totals: dict[str, dict[str, int]] = {}
    rows = Tally.objects.values_list("project", "what").annotate(total=Sum("amount"))
    for project, what, total in rows:
        totals.setdefault(str(project), {})[what] = total
    found: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in (*GAUGES, *COUNTERS)}
    for project, own in totals.items():
        key = (project,)
        in_flight = sum(own.get(state, 0) for state in IN_FLIGHT)
        parked = own.get(ItemState.PARKED, 0)
        ended = sum(own.get(state, 0) for state in FINAL)
        received = own.get(Counted.ARRIVED, 0)
        found["routing.in_flight"][key] = in_flight
        found["routing.parked"][key] = parked
        found["routing.unaccounted"][key] = received - ended - in_flight - parked
        found["routing.received"][key] = received
        for state in FINAL:
            found[f"routing.{state.value}"][key] = own.get(state, 0)
    return dict(found)


def _lines() -> dict[str, Reading]:
    now = timezone.now()
    routers: dict[tuple[str, ...], float] = {}
    troubled: dict[tuple[str, ...], float] = {}
    for project, found in _standings(now):
        routers[(str(project),)] = len(found.routers)
        problems = [each.problem for each in found.inbounds.values()]
        problems += [each.problem for each in found.outbounds.values()]
        troubled[(str(project),)] = sum(map(bool, problems))
    return {"routing.routers": routers, "routing.troubled_lines": troubled}


def _standings(now: datetime) -> Iterator[tuple[int, Standing]]:
    ids = RouterReport.objects.order_by("project").values_list("project", flat=True).distinct()
    for project in ids:
        yield project, standing(project, now)


def _queues() -> list[QueueReading]:
    """The other end of each inbound and outbound, as living routers see it."""
    readings = []
    for project, found in _standings(timezone.now()):
        try:
            track = active_track(project)
        except (BadRules, msgspec.ValidationError):
            track = None
        routers = " ".join(router.name for router in found.routers)
        for name, line in found.inbounds.items():
            entrance = None if track is None else track.entrances.get(name)
            readings.append(
                QueueReading(
                    name=f"in:{name}",
                    project=project,
                    engine=_engine(None if entrance is None else entrance.rule),
                    address=_address(None if entrance is None else entrance.rule),
                    way=Way.IN,
                    waiting=line.depth,
                    readers=len(found.routers),
                    out_total=line.taken,
                    epoch=routers,
                    problem=line.problem,
                )
            )
        for name, lane in found.outbounds.items():
            rule = _outbound(track, name)
            readings.append(
                QueueReading(
                    name=f"out:{name}",
                    project=project,
                    engine=_engine(rule),
                    address=_address(rule),
                    way=Way.OUT,
                    waiting=lane.depth,
                    in_total=lane.sent,
                    epoch=routers,
                    problem=lane.problem,
                )
            )
    return readings


def _outbound(track: Track | None, name: str) -> Outbound | None:
    return None if track is None else track.outbounds.get(name)


def _engine(rule: Inbound | Outbound | None) -> str:
    """Of the class that a rule names: ``redis_queue.RedisListInbound`` is redis."""
    first = "" if rule is None else rule.cls.partition(".")[0]
    return _ENGINES.get(first, first)


def _address(rule: Inbound | Outbound | None) -> str:
    """The name of its queue, list or topic; never an address, which may hold a password."""
    if rule is None:
        return ""
    named = (rule.init.get(each) for each in ("topic", "queue", "key", "name"))
    return next((each for each in named if isinstance(each, str) and "://" not in each), "")[:200]


GAUGES: Final = {
    "routing.in_flight": "Items that are neither ended nor parked.",
    "routing.parked": "Items that wait for a person.",
    "routing.unaccounted": "Items that stand nowhere, or twice; anything but 0 is a fault.",
}
COUNTERS: Final = {
    "routing.received": "Items that ever arrived.",
    **{
        f"routing.{state.value}": f"Items that ever ended as {state.value}."
        for state in ItemState
        if state in FINAL
    },
}
metrics.group(GAUGES, _books, ("project",), COUNTERS)
metrics.group(
    {
        "routing.routers": "Living routers.",
        "routing.troubled_lines": "Inbounds and outbounds with a problem.",
    },
    _lines,
    ("project",),
)
queues.register("routing", _queues)
