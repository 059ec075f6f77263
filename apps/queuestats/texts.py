"""Display titles of queues."""

from __future__ import annotations

from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from yardkit import topology
from yardkit.broker.base import DEAD_QUEUE

TITLES: Final[dict[str, Promise]] = {
    topology.CENTER_REGISTER.name: _("Agent registrations"),
    topology.CENTER_CONTROL.name: _("Agent assignment requests"),
    topology.CENTER_REQUESTS.name: _("download requests"),
    topology.CENTER_ADDRESSES.name: _("questions for object addresses"),
    topology.RUNNERS.name: _("queued runs"),
    topology.STATISTICS.name: _("counters"),
    topology.LIFECYCLE_ANSWERS.name: _("run command replies"),
    topology.LOGS.name: _("log lines"),
    topology.ITEMS.name: _("items and files"),
    topology.SEEDS.name: _("seed service calls"),
    DEAD_QUEUE: _("dead letters"),
    topology.TASKS: _("short tasks"),
    topology.BUILDS: _("builds"),
}
# Titles of per-object queues, by name prefix.
_PREFIXES: Final[dict[str, Promise]] = {
    "agent.": _("commands for an Agent"),
    "runner.": _("wake-ups of a host"),
    "in:": _("input of an inbound"),
    "out:": _("output of an outbound"),
    "biz:": _("stored requests to fetch"),
}


def title_of(queue: str) -> Promise | str:
    """Return the title of a queue, or "" if it has none."""
    if queue in TITLES:
        return TITLES[queue]
    titles = (title for prefix, title in _PREFIXES.items() if queue.startswith(prefix))
    return next(titles, "")
