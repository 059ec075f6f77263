"""The processes of the installation: how they are, and what their absence means now."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext as _

from apps.dashboard.failures.counting import Counts, Life
from apps.dashboard.failures.part import Fact, Part, State
from yardkit import topology
from yardkit.broker import QueueSpec

# Messages in the broker's queues by name; None while nobody can say.
Waiting = Mapping[str, int] | None


def daemon_parts(counts: Counts, waiting: Waiting) -> list[Part]:
    """The processes. ``waiting``: messages in the broker's queues, None where it is away."""
    return [
        _center(counts, waiting),
        _agents(counts),
        _runner(counts),
        _router(counts),
        _seeds(counts, waiting),
        _fetcher(counts),
        _collector(counts),
        _logs(counts, waiting),
        _statistics(counts, waiting),
        _worker(counts),
        _beat(counts),
        _monitor(counts),
    ]


def _living(life: Life, *, needed: bool) -> tuple[State, str]:
    told = _("%(alive)d alive, %(silent)d silent") % {"alive": life.alive, "silent": life.silent}
    if life.alive == 0:
        return (State.AWAY if needed or life.silent else State.UNUSED), told
    if life.silent or life.trouble:
        return State.TROUBLE, f"{told}. {life.trouble}" if life.trouble else told
    return State.WELL, told


def _in(waiting: Waiting, queue: QueueSpec) -> int | None:
    # No queue, no messages: nobody has declared it yet.
    return None if waiting is None else waiting.get(queue.name, 0)


def _silent_after() -> str:
    return _("A process is called silent after 15 s.")


def _center(counts: Counts, waiting: Waiting) -> Part:
    life = counts.life("center")
    state, detail = _living(life, needed=True)
    return Part(
        "center",
        _("Download centers"),
        "hub",
        state,
        detail,
        [
            Fact("runs", _("active runs"), counts.runs),
            Fact("left", _("requests left in them"), counts.left),
            Fact("waiting", _("messages that wait"), _in(waiting, topology.CENTER_REQUESTS)),
        ],
        _(
            "Runs are given no agents and send nothing; they wait. Where another center is alive, "
            "it takes over at once."
        ),
        _("Nothing: what lay in the queue for over 60 s is void, and the run sends it again."),
        _("Runs go on as soon as one center is back."),
        since=life.since,
        noticed=_silent_after(),
        commands=["manage.py run_center --status", "manage.py run_center"],
        runbook="run_center",
    )


def _agents(counts: Counts) -> Part:
    life = Life(counts.agents_alive, counts.agents_silent, heard_at=counts.agents_heard_at)
    state, detail = _living(life, needed=counts.runs > 0)
    return Part(
        "agents",
        _("Agents"),
        "cloud_download",
        state,
        detail,
        [
            Fact("runs", _("active runs"), counts.runs),
            Fact("out", _("requests with agents now"), counts.out),
            Fact("left", _("requests left"), counts.left),
        ],
        _(
            "What a silent agent had is sent again to the other agents of the run. A run without "
            "any agent waits; a new run that finds none fails to start and says so."
        ),
        _("Nothing: requests are retried; each extra attempt is counted."),
        _("An agent that comes back goes on with its runs at once."),
        since=life.since,
        noticed=_("An agent is called silent after 11 s."),
        commands=["manage.py run_agent --id NAME"],
        runbook="run_agent",
    )


def _runner(counts: Counts) -> Part:
    life = counts.life("runner")
    state, detail = _living(life, needed=counts.runs > 0)
    return Part(
        "runner",
        _("Runners"),
        "storage",
        state,
        detail,
        [
            Fact("queued_runs", _("runs that wait for a place"), counts.queued_runs),
            Fact("runs_on_hosts", _("runs on hosts"), counts.runs_on_hosts),
            Fact("runs_on_silent", _("of these on silent hosts"), counts.runs_on_silent),
        ],
        _(
            "No run starts on its host. Containers there go on and are found again. After 30 s "
            "its runs are called lost, after 90 s where no other runner is alive."
        ),
        _("A lost run is tried again where its job says so; what it had stored stays."),
        _("A runner that comes back in time takes its runs over."),
        since=life.since,
        noticed=_silent_after(),
        commands=["manage.py run_runner --status", "manage.py run_runner"],
        runbook="run_runner",
    )


def _router(counts: Counts) -> Part:
    life = counts.life("router")
    state, detail = _living(life, needed=bool(counts.routed or counts.parked))
    return Part(
        "router",
        _("Routers"),
        "alt_route",
        state,
        detail,
        [
            Fact("routed", _("items in flight"), counts.routed),
            Fact("parked", _("parked items"), counts.parked),
        ],
        _("Items wait in their inbounds and in the ledger. Other routers take over within 30 s."),
        _("Nothing: items that were in hand are offered again under the same task_uuid."),
        _("It goes on where the others stopped, in the order of each outbound."),
        since=life.since,
        noticed=_silent_after(),
        commands=["manage.py run_router --status", "manage.py run_router"],
        runbook="run_router",
    )


def _seeds(counts: Counts, waiting: Waiting) -> Part:
    needed = bool(counts.seeds_pending or counts.seeds_leased)
    life = counts.life("seeds")
    state, detail = _living(life, needed=needed)
    return Part(
        "seeds",
        _("Seed service"),
        "park",
        state,
        detail,
        [
            Fact("seeds_pending", _("seeds pending"), counts.seeds_pending),
            Fact("seeds_leased", _("seeds leased"), counts.seeds_leased),
            Fact("waiting", _("calls that wait"), _in(waiting, topology.SEEDS)),
        ],
        _("Spiders and rules that ask for seeds wait, and ask again."),
        _("Nothing: seeds and leases are in its store; leases get a minute more."),
        _("It answers what waits first."),
        since=life.since,
        noticed=_silent_after(),
        commands=["manage.py run_seeds --status", "manage.py run_seeds"],
        runbook="run_seeds",
    )


def _fetcher(counts: Counts) -> Part:
    needed = bool(counts.stored_new or counts.stored_taken)
    life = counts.life("fetcher")
    state, detail = _living(life, needed=needed)
    return Part(
        "fetcher",
        _("Fetchers"),
        "download",
        state,
        detail,
        [
            Fact("stored_new", _("new requests"), counts.stored_new),
            Fact("stored_taken", _("taken by fetchers"), counts.stored_taken),
        ],
        _("Stored requests wait, and expire when their time is over before a fetcher comes."),
        _("Nothing that is stored; what a dead fetcher had is taken again at its deadline."),
        _("It begins with what is most urgent."),
        since=life.since,
        noticed=_silent_after(),
        commands=["manage.py run_fetcher --status", "manage.py run_fetcher", "manage.py scale"],
        runbook="run_fetcher",
    )


def _collector(counts: Counts) -> Part:
    life = counts.life("collector")
    state, detail = _living(life, needed=counts.sources > 0)
    return Part(
        "collector",
        _("Collectors"),
        "agriculture",
        state,
        detail,
        [
            Fact("sources", _("sources in use"), counts.sources),
            Fact("harvesting", _("harvests at work"), counts.harvesting),
        ],
        _("Nothing new is read from record APIs. What was read lies in its queue."),
        _("Nothing: a harvest goes on at its checkpoint; one batch may stand twice, with one id."),
        _("It goes on where the harvests stood."),
        since=life.since,
        noticed=_silent_after(),
        commands=["manage.py run_collector --status", "manage.py run_collector"],
        runbook="run_collector",
    )


def _logs(counts: Counts, waiting: Waiting) -> Part:
    waits = _in(waiting, topology.LOGS)
    life = counts.life("log_ingester")
    state, detail = _living(life, needed=bool(counts.runs or waits))
    return Part(
        "logs",
        _("Log ingesters"),
        "notes",
        state,
        detail,
        [
            Fact("waiting", _("batches of lines that wait"), waits),
            Fact("runs", _("active runs"), counts.runs),
        ],
        _("Logs on pages stand still; lines wait in the broker, then on the hosts of the runs."),
        _("Lines beyond what a host keeps; they are counted and shown as dropped."),
        _("It stores what waits; every line comes once."),
        since=life.since,
        noticed=_silent_after(),
        commands=["manage.py run_log_ingester --status", "manage.py run_log_ingester"],
        runbook="run_log_ingester",
    )


def _statistics(counts: Counts, waiting: Waiting) -> Part:
    waits = _in(waiting, topology.STATISTICS)
    life = counts.life("statistics")
    state, detail = _living(life, needed=bool(counts.runs or waits))
    return Part(
        "statistics",
        _("Statistics"),
        "monitoring",
        state,
        detail,
        [
            Fact("waiting", _("reports that wait"), waits),
            Fact("runs", _("active runs"), counts.runs),
        ],
        _("Counters and charts stand still; the work itself goes on."),
        _("Nothing: reports are absolute, the next one says all."),
        _("The figures jump to where they belong."),
        since=life.since,
        noticed=_silent_after(),
        commands=["manage.py run_statistics --status", "manage.py run_statistics"],
        runbook="run_statistics",
    )


def _worker(counts: Counts) -> Part:
    needed = bool(counts.builds or counts.schedules or counts.notices)
    life = counts.life("worker")
    state, detail = _living(life, needed=needed)
    return Part(
        "worker",
        _("Workers"),
        "construction",
        state,
        detail,
        [
            Fact("builds", _("builds under way"), counts.builds),
            Fact("notices", _("notices to be sent"), counts.notices),
            Fact("schedules", _("jobs with a schedule"), counts.schedules),
        ],
        _("Nothing is built, planned, told or tidied up."),
        _("Nothing: rows wait in the database. A build whose worker died is tried again once."),
        _("It does what waits; what was due is caught up or called missed, as each job says."),
        since=life.since,
        noticed=_silent_after(),
        commands=["manage.py run_worker --status", "manage.py run_worker"],
        runbook="run_worker and run_beat",
    )


def _beat(counts: Counts) -> Part:
    life = counts.life("beat")
    state, detail = _living(life, needed=counts.schedules > 0)
    return Part(
        "beat",
        _("Beat"),
        "schedule",
        state,
        detail,
        [Fact("schedules", _("jobs with a schedule"), counts.schedules)],
        _("No schedule starts a run, and no sweep runs: what got stuck stays so."),
        _("Nothing: each planned time is decided later, as caught up or missed."),
        _("A second beat takes over within 15 s."),
        since=life.since,
        noticed=_silent_after(),
        commands=["manage.py run_beat --status", "manage.py run_beat"],
        runbook="run_worker and run_beat",
    )


def _monitor(counts: Counts) -> Part:
    life = counts.life("monitor")
    state, detail = _living(life, needed=True)
    return Part(
        "monitor",
        _("Monitor"),
        "notifications",
        state,
        detail,
        [
            Fact("incidents", _("open incidents"), counts.incidents),
            Fact("notices", _("notices to be sent"), counts.notices),
        ],
        _(
            "Nobody is told of anything: no rule is judged, no series is sampled. This page and "
            "the home page still tell the truth."
        ),
        _("Samples of that time; events are read again when it is back."),
        _("A second monitor takes over within 15 s."),
        since=life.since,
        noticed=_("Only by somebody who looks here, or at /metrics from outside."),
        commands=["manage.py run_monitor --status", "manage.py run_monitor"],
        runbook="run_monitor",
    )
