"""Built-in rules, which need no configuration; a rule of the same name modifies one.

They open incidents. Their recipients are the platform rules' ``defaults: {tell: [...]}``.
"""

from __future__ import annotations

from typing import Final

from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.rules import CRITICAL, INFO, WARNING, Condition, Recovery, Rule
from yardkit import topology


def _condition(name: str, event: str, title: object, seconds: float, severity: str) -> Rule:
    return Rule(
        name=name, event=event, title=title, when=Condition(for_seconds=seconds), severity=severity
    )


RULES: Final = (
    _condition("daemon silent", "daemon.silent", _("a process does not respond"), 15, CRITICAL),
    _condition("agent silent", "agent.silent", _("an agent does not respond"), 30, WARNING),
    _condition("host silent", "host.silent", _("a host for runs does not report"), 15, CRITICAL),
    _condition("queue without reader", "queue.unread", _("a queue has no consumer"), 60, CRITICAL),
    _condition("queue broken", "queue.broken", _("no message goes through a queue"), 20, CRITICAL),
    _condition("dead letters held", "dead_letters.held", _("there are dead letters"), 0, WARNING),
    _condition("outbox stuck", "outbox.stuck", _("outbox messages are stuck"), 0, CRITICAL),
    _condition(
        "books unbalanced",
        "books.unbalanced",
        _("requests are not all accounted for"),
        120,
        CRITICAL,
    ),
    _condition(
        "store node away", "store.node_away", _("a storage node is unreachable"), 30, CRITICAL
    ),
    _condition(
        "store node under pressure",
        "store.node_slow",
        _("a storage node is under pressure"),
        0,
        WARNING,
    ),
    _condition("shard problem", "store.shard", _("a shard has a problem"), 0, WARNING),
    _condition(
        "request queue problem", "store.queue", _("a request queue has a problem"), 0, CRITICAL
    ),
    _condition("requests late", "requests.late", _("stored requests will be late"), 0, WARNING),
    Rule(
        name="log lines waiting",
        series="queue.ready",
        label=topology.LOGS.name,
        title=_("log ingestion is behind"),
        when=Condition(above=10_000, for_seconds=60),
        recover=Recovery(below=8_000),
    ),
    # A message holds up to 1 MiB of items.
    Rule(
        name="items waiting",
        series="queue.ready",
        label=topology.ITEMS.name,
        title=_("storing items is behind"),
        when=Condition(above=1_000, for_seconds=60),
        recover=Recovery(below=800),
    ),
    Rule(
        name="items not moved",
        series="datasets.oldest_segment_seconds",
        title=_("fresh items are not moved into tables"),
        when=Condition(above=3600, for_seconds=60),
        recover=Recovery(below=1800),
    ),
    Rule(name="items rejected", event="items.rejected", title=_("items were rejected")),
    Rule(
        name="check failed", event="items.check_failed", title=_("the data of a run fails a check")
    ),
    _condition(
        "data not delivered", "data.delivery_failing", _("items are not delivered"), 60, WARNING
    ),
    Rule(
        name="data delivered late",
        series="deliveries.lag_seconds",
        title=_("delivering items is behind"),
        when=Condition(above=1800, for_seconds=60),
        recover=Recovery(below=60),
    ),
    Rule(name="run failed", event="run.failed", title=_("a run failed")),
    Rule(name="run lost", event="run.lost", title=_("a run was lost")),
    Rule(name="run missed", event="run.missed", title=_("a planned run was missed")),
    Rule(name="run late", event="run.late", title=_("a planned run started late"), severity=INFO),
    _condition("run waiting", "run.waiting", _("a run waits for a host"), 0, WARNING),
    Rule(name="build failed", event="build.failed", title=_("a build failed")),
    Rule(
        name="webhook refused",
        event="delivery.failed",
        title=_("a webhook was rejected"),
        # Anybody may send requests to a public webhook URL.
        when=Condition(times=3, in_seconds=600),
        severity=INFO,
    ),
    Rule(
        name="new error",
        event="log.new_error",
        title=_("a new error group in a log"),
        severity=INFO,
    ),
    Rule(name="harvest failed", event="harvest.failed", title=_("an import failed")),
    Rule(name="harvest gap", event="harvest.gap", title=_("records were skipped by an import")),
    _condition(
        "routing target away",
        "routing.target_away",
        _("a routing target is unreachable"),
        30,
        CRITICAL,
    ),
    _condition(
        "routing inbound away",
        "routing.inbound_away",
        _("a routing inbound is unreachable"),
        30,
        CRITICAL,
    ),
    _condition(
        "routing dead letters", "routing.dead_letters", _("the router has dead letters"), 0, WARNING
    ),
    _condition("pool empty", "pool.empty", _("a resource pool is empty"), 60, WARNING),
    _condition(
        "configuration not applied",
        "config.not_applied",
        _("a configuration cannot be applied"),
        15,
        WARNING,
    ),
    _condition(
        "monitor blind", "alerts.unasked", _("the monitor cannot read a source"), 60, CRITICAL
    ),
    _condition("nobody watches", "alerts.unwatched", _("no monitor is running"), 60, CRITICAL),
    _condition(
        "too much to watch", "alerts.cut", _("more problems than the monitor can read"), 15, WARNING
    ),
    _condition("rule full", "alerts.full", _("a rule has reached its incident limit"), 0, WARNING),
)
