"""Texts and figures of every part of the installation, one row each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from yardkit import topology
from yardkit.broker import QueueSpec

SILENT_AFTER: Final = _("A process counts as silent after 15 s without a heartbeat.")


@dataclass(frozen=True, slots=True)
class PartText:
    """Texts of one server, or of one kind of process.

    Args:
        figures: (field of ``ImpactCounts``, title) in the order of the page; ``waiting`` is the
            number of messages in ``queue``.
        happens, lost, back: what happens without the part, what is lost meanwhile, and what
            happens when it is back.
        commands: empty for the process's own command, with and without ``--status``.
        runbook: heading of its section in docs/runbook.md.
        needed_by: fields of ``ImpactCounts``; the process is needed while one of them is not zero.
        needed_by_queue: it is needed while its queue has messages, too.
        kind: kind of its daemons, or name of its probe, where that is not the key.
    """

    key: str
    title: Promise | str
    icon: str
    figures: Sequence[tuple[str, Promise]]
    happens: Promise
    lost: Promise
    back: Promise
    runbook: str
    noticed: Promise = SILENT_AFTER
    commands: Sequence[str] = ()
    queue: QueueSpec | None = None
    needed_by: Sequence[str] = ()
    needed_by_queue: bool = False
    kind: str = ""


PROCESSES: Final = (
    PartText(
        key="center",
        title=_("Download centers"),
        icon="hub",
        figures=(
            ("runs", _("active runs")),
            ("left", _("their pending requests")),
            ("waiting", _("waiting messages")),
        ),
        queue=topology.CENTER_REQUESTS,
        happens=_(
            "If another center runs, it takes over at once. If not, runs get no agents and wait."
        ),
        lost=_(
            "Nothing: requests older than 60 s in the queue are dropped, and the run sends them "
            "again."
        ),
        back=_("Runs continue as soon as one center is back."),
        runbook="run_center",
    ),
    PartText(
        key="agents",
        title=_("Agents"),
        icon="cloud_download",
        figures=(
            ("runs", _("active runs")),
            ("out", _("requests with Agents")),
            ("left", _("pending requests")),
        ),
        happens=_(
            "Requests of a silent Agent are sent again to the other Agents of the run. A run "
            "without Agents waits; a new run that finds none fails to start."
        ),
        lost=_("Nothing: requests are retried; each extra attempt is counted."),
        back=_("A returning Agent continues with its runs at once."),
        noticed=_("An Agent counts as silent after 11 s without a heartbeat."),
        commands=("manage.py run_agent --id NAME",),
        runbook="run_agent",
        needed_by=("runs",),
    ),
    PartText(
        key="runner",
        title=_("Runners"),
        icon="storage",
        figures=(
            ("queued_runs", _("queued runs")),
            ("runs_on_hosts", _("runs on hosts")),
            ("runs_on_silent", _("of these on silent hosts")),
        ),
        happens=_(
            "No run starts on its host. Containers keep running and are adopted later. Its "
            "runs are marked lost after 30 s, or after 90 s if no other runner is alive."
        ),
        lost=_("Nothing that is stored. A lost run is retried if its job allows retries."),
        back=_("A runner that returns in time adopts its runs."),
        runbook="run_runner",
        needed_by=("runs",),
    ),
    PartText(
        key="router",
        title=_("Routers"),
        icon="alt_route",
        figures=(("routed", _("routed tasks in progress")), ("parked", _("parked tasks"))),
        happens=_(
            "Routed tasks wait in their inbounds and in the ledger. Other routers take over "
            "within 30 s."
        ),
        lost=_("Nothing: tasks in progress are offered again under the same task_uuid."),
        back=_("It continues where the others stopped, in the order of each outbound."),
        runbook="run_router",
        needed_by=("routed", "parked"),
    ),
    PartText(
        key="seeds",
        title=_("Seed service"),
        icon="park",
        figures=(
            ("seeds_pending", _("seeds pending")),
            ("seeds_leased", _("seeds leased")),
            ("waiting", _("waiting calls")),
        ),
        queue=topology.SEEDS,
        happens=_("Spiders and rules that request seeds wait and retry."),
        lost=_("Nothing: seeds and leases are stored; leases are extended by one minute."),
        back=_("It answers the waiting calls first."),
        runbook="run_seeds",
        needed_by=("seeds_pending", "seeds_leased"),
    ),
    PartText(
        key="fetcher",
        title=_("Fetchers"),
        icon="download",
        figures=(("stored_new", _("new requests")), ("stored_taken", _("leased by fetchers"))),
        happens=_("Stored requests wait, and expire if no fetcher takes them in time."),
        lost=_("Nothing: requests of a dead fetcher are taken again at their deadline."),
        back=_("It starts with the most urgent requests."),
        commands=("manage.py run_fetcher --status", "manage.py run_fetcher", "manage.py scale"),
        runbook="run_fetcher",
        needed_by=("stored_new", "stored_taken"),
    ),
    PartText(
        key="collector",
        title=_("Collectors"),
        icon="agriculture",
        figures=(("sources", _("sources in use")), ("harvesting", _("active imports"))),
        happens=_("No new records are read from sources. Records read before stay in their queue."),
        lost=_(
            "Nothing: an import continues from its checkpoint; one batch may be queued twice "
            "under the same ID."
        ),
        back=_("Imports continue from their checkpoints."),
        runbook="run_collector",
        needed_by=("sources",),
    ),
    PartText(
        key="logs",
        title=_("Log ingesters"),
        icon="notes",
        figures=(("waiting", _("waiting batches of lines")), ("runs", _("active runs"))),
        queue=topology.LOGS,
        happens=_(
            "Logs on pages are not updated; lines wait in the broker, then on the hosts of "
            "the runs."
        ),
        lost=_("Lines beyond the buffer of a host; they are counted and shown as dropped."),
        back=_("It stores the waiting lines, each once."),
        runbook="run_log_ingester",
        needed_by=("runs",),
        needed_by_queue=True,
        kind="log_ingester",
    ),
    PartText(
        key="datasets",
        title=_("Dataset writers"),
        icon="dataset",
        figures=(("waiting", _("waiting batches of items")), ("runs", _("active runs"))),
        queue=topology.ITEMS,
        happens=_(
            "New items do not appear in datasets; they wait in the broker. Spiders slow down when "
            "too many wait."
        ),
        lost=_("Nothing: a request succeeds only after the broker has confirmed its items."),
        back=_("It stores the waiting items, each once."),
        runbook="run_dataset_writer",
        needed_by=("runs",),
        needed_by_queue=True,
        kind="dataset_writer",
    ),
    PartText(
        key="statistics",
        title=_("Statistics"),
        icon="monitoring",
        figures=(("waiting", _("waiting reports")), ("runs", _("active runs"))),
        queue=topology.STATISTICS,
        happens=_("Counters and charts are not updated; runs continue."),
        lost=_("Nothing: reports are cumulative; the next one includes the missed ones."),
        back=_("Counters catch up with the next report."),
        runbook="run_statistics",
        needed_by=("runs",),
        needed_by_queue=True,
    ),
    PartText(
        key="worker",
        title=_("Workers"),
        icon="construction",
        figures=(
            ("builds", _("active builds")),
            ("notices", _("unsent notifications")),
            ("schedules", _("jobs with a schedule")),
        ),
        happens=_("No builds, schedules, notifications or clean-up."),
        lost=_("Nothing: work waits in the database. A build whose worker died is retried once."),
        back=_(
            "It does the waiting work; planned runs are caught up or marked missed, as each job "
            "defines."
        ),
        commands=("manage.py run_worker --status", "manage.py run_worker"),
        runbook="run_worker and run_beat",
        needed_by=("builds", "schedules", "notices"),
    ),
    PartText(
        key="beat",
        title=_("Beat"),
        icon="schedule",
        figures=(("schedules", _("jobs with a schedule")),),
        happens=_("No schedule starts a run, and no periodic clean-up runs."),
        lost=_("Nothing: planned runs are caught up or marked missed later."),
        back=_("A second beat takes over within 15 s."),
        commands=("manage.py run_beat --status", "manage.py run_beat"),
        runbook="run_worker and run_beat",
        needed_by=("schedules",),
    ),
    PartText(
        key="monitor",
        title=_("Monitor"),
        icon="notifications",
        figures=(("incidents", _("open incidents")), ("notices", _("unsent notifications"))),
        happens=_(
            "No alert rules, no samples, no notifications. This page and the overview stay correct."
        ),
        lost=_("Samples of that time. Events are read when it is back."),
        back=_("A second monitor takes over within 15 s."),
        noticed=_("Only on this page, or by an external check of /metrics."),
        runbook="run_monitor",
    ),
)
SERVERS: Final = (
    PartText(
        key="database",
        title=_("Database"),
        icon="database",
        figures=(("runs", _("active runs")), ("outbox", _("unsent messages"))),
        happens=_(
            "Pages and REST answer 503. Nothing new is started, routed or counted. Runs that "
            "have Agents keep downloading; their reports wait in the broker."
        ),
        lost=_("Nothing: messages are acknowledged after the commit."),
        back=_("All processes reconnect within 30 s."),
        noticed=_("/readyz answers 503 at once."),
        runbook="When something is wrong",
    ),
    PartText(
        key="broker",
        title=_("Broker"),
        icon="swap_horiz",
        figures=(
            ("runs", _("active runs")),
            ("left", _("their pending requests")),
            ("out", _("of these with Agents")),
            ("outbox", _("unsent messages")),
        ),
        happens=_(
            "No requests, log lines or counters are delivered. Runs wait and send again; "
            "messages of other processes wait in the outbox."
        ),
        lost=_("Nothing: a lost request is sent again after its timeout."),
        back=_("All processes reconnect, with back-off of up to 30 s."),
        noticed=_("The overview shows it at once."),
        runbook="The broker",
    ),
    PartText(
        key="redis",
        title="Redis",
        icon="bolt",
        figures=(
            ("request_entries", _("queued stored requests")),
            ("parked", _("parked tasks")),
            ("runs", _("active runs")),
        ),
        happens=_(
            "Stored requests wait in their store. Routed tasks for Redis lists are parked. "
            "Each center applies the limits of hosts by itself."
        ),
        lost=_("Nothing: queues are refilled from the stores."),
        back=_("Reconnects within seconds. An emptied Redis is refilled."),
        noticed=_("/readyz answers 503 at once."),
        runbook="When something is wrong",
    ),
    PartText(
        key="requests",
        title=_("Request store %(name)s"),
        icon="inventory_2",
        figures=(
            ("stored_new", _("new requests, on all nodes")),
            ("stored_taken", _("leased by fetchers")),
        ),
        happens=_(
            "New requests of its request groups are rejected with 503, and their senders keep"
            " them. Fetchers keep fetched pages and take no new requests."
        ),
        lost=_("Nothing: requests not finished in time are taken again."),
        back=_("Reconnects with back-off of up to 30 s."),
        noticed=_("On the throughput page after a minute."),
        runbook="run_fetcher",
    ),
    PartText(
        key="log-store",
        kind="logs",
        title=_("Log store"),
        icon="notes",
        figures=(("runs", _("active runs")),),
        happens=_("Logs cannot be read or searched. New lines wait in the broker; runs continue."),
        lost=_("Lines beyond the buffer of a host; they are counted and shown as dropped."),
        back=_("Reconnects; waiting lines are stored, each once."),
        noticed=_("In the state of the log ingester."),
        runbook="run_log_ingester",
    ),
    PartText(
        key="object-store",
        kind="objects",
        title=_("Object store"),
        icon="inventory_2",
        figures=(("runs", _("active runs")),),
        happens=_(
            "Items and files cannot be read. New ones wait in the broker; spiders slow down when "
            "too many wait."
        ),
        lost=_("Nothing that was stored."),
        back=_("Retries after at most 10 s; waiting items are stored, each once."),
        noticed=_("In the state of the dataset writer."),
        runbook="run_dataset_writer",
    ),
)
