"""Texts of the monitoring page for each kind of problem."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.requeststore.queries.health import Concern, ConcernCode, NodeState
from apps.requeststore.services.forecast_text import duration, sentence


@dataclass(frozen=True, slots=True)
class ShownConcern:
    """Problem to show at the top. ``detail``: the technical error text."""

    tone: str
    icon: str
    text: str
    since: datetime | None = None
    detail: str = ""


_ICONS: Final = {
    ConcernCode.NODE_PROBLEM: "cloud_off",
    ConcernCode.NODE_SILENT: "heart_broken",
    ConcernCode.NODE_SLOW: "speed",
    ConcernCode.QUEUE_PROBLEM: "cloud_off",
    ConcernCode.SHARD_PROBLEM: "database_off",
    ConcernCode.BIZ_LATE: "alarm",
    ConcernCode.BIZ_STALLED: "front_hand",
    ConcernCode.BIZ_GROWS: "trending_up",
    ConcernCode.BIZ_FULL: "block",
    ConcernCode.NOT_MEASURED: "heart_broken",
    ConcernCode.CLOCK_WRONG: "schedule",
    ConcernCode.WEBHOOK_UNACKNOWLEDGED: "webhook",
}
_TEXTS: Final = {
    ConcernCode.NODE_PROBLEM: gettext_lazy("Storage node %(subject)s has a problem."),
    ConcernCode.NODE_SILENT: gettext_lazy(
        "Storage node %(subject)s is not checked: no worker runs the upkeep task."
    ),
    ConcernCode.NODE_SLOW: gettext_lazy(
        "Storage node %(subject)s is slow: %(time)s for one operation."
    ),
    ConcernCode.QUEUE_PROBLEM: gettext_lazy("The queue of %(subject)s has a problem."),
    ConcernCode.SHARD_PROBLEM: gettext_lazy("A shard of %(subject)s has a problem."),
    ConcernCode.BIZ_LATE: gettext_lazy("%(subject)s will be late: %(forecast)s."),
    ConcernCode.BIZ_STALLED: gettext_lazy("%(subject)s is not being processed: %(forecast)s."),
    ConcernCode.BIZ_GROWS: gettext_lazy("The backlog of %(subject)s is growing: %(forecast)s."),
    ConcernCode.BIZ_FULL: gettext_lazy(
        "%(subject)s accepts no new requests: %(waiting)s queued, limit %(most)s."
    ),
    ConcernCode.NOT_MEASURED: gettext_lazy(
        "Rates are unknown: no run_statistics process is running."
    ),
    ConcernCode.WEBHOOK_UNACKNOWLEDGED: gettext_lazy(
        "SCALE_WEBHOOK_URL has not acknowledged the recommended number of fetchers; "
        "delivery is retried."
    ),
}
_NODES: Final = {
    NodeState.WELL: (gettext_lazy("healthy"), "good"),
    NodeState.SLOW: (gettext_lazy("slow"), "warn"),
    NodeState.PROBLEM: (gettext_lazy("problem"), "bad"),
    NodeState.SILENT: (gettext_lazy("not checked"), "bad"),
}


def trouble(concern: Concern, now: datetime) -> ShownConcern:
    """Return title, explanation and link of a concern."""
    return ShownConcern(
        "danger" if concern.severe else "warning",
        _ICONS[concern.code],
        _text(concern, now),
        concern.since,
        concern.detail,
    )


def node_label(state: NodeState) -> str:
    """Return the state of a node as a label."""
    return str(_NODES[state][0])


def node_tone(state: NodeState) -> str:
    """Return the badge colour of a node's state."""
    return _NODES[state][1]


def _text(concern: Concern, now: datetime) -> str:
    values = {"subject": concern.subject, "time": duration(abs(concern.value)), "forecast": ""}
    if concern.code is ConcernCode.CLOCK_WRONG:
        if concern.value > 0:
            return (
                _("The clock of %(subject)s is %(time)s behind; its counts are corrected.") % values
            )
        return _("The clock of %(subject)s is %(time)s ahead; its counts are corrected.") % values
    if concern.standing is not None:
        concern_facts = concern.standing
        values["forecast"] = sentence(concern_facts.forecast, concern_facts.facts, now=now)
        values["waiting"] = f"{0 if concern_facts.queue is None else concern_facts.queue.waiting:,}"
        values["most"] = f"{concern_facts.plan.max_waiting:,}"
    return str(_TEXTS[concern.code]) % values
