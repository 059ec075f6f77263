"""Gauges of daemons, the outbox, dead letters and the broker's queues."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from django.db.models import Count, Min

from apps.runtime.models import Daemon, DeadLetter, OutboxMessage
from apps.runtime.queries import database_now, is_live
from apps.runtime.services.depths import broker_answers, broker_readings
from apps.runtime.states import DAEMON_ACTIVE, DaemonState, DeadLetterState
from yardkit import metrics, queues
from yardkit.metrics import Reading


def _outbox() -> dict[str, Reading]:
    aggregates = OutboxMessage.objects.aggregate(count=Count("pk"), oldest=Min("created_at"))
    return {
        "outbox.waiting": aggregates["count"],
        "outbox.oldest_seconds": _age(aggregates["oldest"], database_now()),
    }


def _dead_letters() -> Reading:
    rows = DeadLetter.objects.filter(state=DeadLetterState.HELD).order_by()
    counts = rows.values_list("queue").annotate(count=Count("pk"))
    return {(queue or "?",): count for queue, count in counts}


def _daemons() -> dict[str, Reading]:
    now = database_now()
    names = ("alive", "failing", "silent")
    gauges: dict[str, Counter[tuple[str, ...]]] = {name: Counter() for name in names}
    for daemon in Daemon.objects.filter(state__in=DAEMON_ACTIVE).defer("detail"):
        live = is_live(daemon, now=now)
        gauges["alive" if live else "silent"][(daemon.kind,)] += 1
        if live and daemon.state == DaemonState.FAILING:
            gauges["failing"][(daemon.kind,)] += 1
    return {
        f"daemons.{name}": {key: float(count) for key, count in counts.items()}
        for name, counts in gauges.items()
    }


def _age(moment: datetime | None, now: datetime) -> float:
    return 0.0 if moment is None else max(0.0, (now - moment).total_seconds())


metrics.group(
    {
        "outbox.waiting": "Committed messages that are not published yet.",
        "outbox.oldest_seconds": "Age of the oldest unpublished message; 0 without any.",
    },
    _outbox,
)
metrics.gauge(
    "dead_letters.held",
    "Dead letters that wait for a decision, by original queue.",
    ("queue",),
    _dead_letters,
    absent_is_zero=True,
)
metrics.group(
    {
        "daemons.alive": "Alive processes.",
        "daemons.failing": "Alive processes whose last step failed.",
        "daemons.silent": "Processes without a heartbeat that did not end regularly.",
    },
    _daemons,
    ("kind",),
    absent_is_zero=True,
)
metrics.gauge(
    "broker.up", "1 while the broker answers, else 0.", read=lambda: float(broker_answers())
)
queues.register("broker", broker_readings)
