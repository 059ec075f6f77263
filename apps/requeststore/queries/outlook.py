"""How every biz stands: what waits, what comes and goes, and what is to be expected of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from django.db.models import Sum

from apps.configcenter.models import Configuration, ConfigVersion
from apps.queuestats.queries import FoundRates, SeriesKey, gauge_means, rates
from apps.requeststore.engine.biz import Biz
from apps.requeststore.engine.flags import EXPIRED, NEW, TAKEN
from apps.requeststore.engine.forecasting import STALE_SECONDS, Facts, Forecast, forecast
from apps.requeststore.models import ClosedSlice, QueueReport, ScaleState, ShardReport
from apps.runtime.queries import database_now, live_daemons

KIND: Final = "biz"
CREATED: Final = "requests.created"
PROCESSED: Final = "requests.processed"
FAILED: Final = "requests.failed"
RATES: Final = (CREATED, PROCESSED, FAILED)
# A gauge of the platform: how many fetchers run.
FETCHERS: Final = SeriesKey("fetchers.running", None)
FETCHER_KIND: Final = "fetcher"
FORECAST_SECONDS: Final = 300
MOST_READ: Final = 1000
_DEFAULTS: Final = Biz()

# (project, biz)
BizKey = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the settings of a biz say. ``planned``: somebody has set a time."""

    enabled: bool = True
    planned_seconds: float = float(_DEFAULTS.ttl_seconds)
    planned: bool = False
    max_waiting: int = _DEFAULTS.max_waiting


@dataclass(slots=True)
class Stored:
    """What the shards of a biz said last; ``reported_at`` of the oldest report.

    ``expired``: all that ever expired unprocessed, those that are deleted by now included.
    """

    new: int = 0
    taken: int = 0
    expired: int = 0
    expiring_in_an_hour: int = 0
    size_bytes: int = 0
    oldest_new_at: datetime | None = None
    reported_at: datetime | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def backlog(self) -> int:
        """What nobody has finished."""
        return self.new + self.taken


@dataclass(frozen=True, slots=True)
class Standing:
    """One biz."""

    project_id: int
    project: str
    biz: str
    plan: Plan
    stored: Stored
    queue: QueueReport | None
    rates: dict[str, dict[int, float | None]]
    facts: Facts
    forecast: Forecast


@dataclass(frozen=True, slots=True)
class Standings:
    """All bizzes that somebody sees. ``fetchers``: how many live. ``state``: of the scaling.

    ``listening``: somebody has listened for counts in the last minute.
    """

    bizzes: list[Standing]
    fetchers: int
    state: ScaleState
    now: datetime
    listening: bool


def standings(*, projects: Collection[int] | None, now: datetime | None = None) -> Standings:
    """How the bizzes of these projects stand; None: of all. A fixed number of queries."""
    now = now or database_now()
    plans, names = _plans(projects)
    stored = stored_of(projects)
    queues = {
        (row.project_id, row.biz): row for row in _of_projects(QueueReport.objects.all(), projects)
    }
    found = rates(RATES, projects=projects, now=now)
    running = live_daemons(kind=FETCHER_KIND, now=now).count()
    state = ScaleState.objects.filter(pk=1).first() or ScaleState(pk=1)
    mean = gauge_means([FETCHERS.name], seconds=FORECAST_SECONDS, now=now).get(FETCHERS)
    fetchers = float(running) if mean is None else mean[0]
    bizzes = []
    for key in sorted(plans, key=lambda key: (names[key[0]], key[1])):
        plan = plans[key]
        own = stored.get(key, Stored())
        queue = queues.get(key)
        facts = _facts(key, plan, own, found, state.capacities, now, running, fetchers)
        bizzes.append(
            Standing(
                project_id=key[0],
                project=names[key[0]],
                biz=key[1],
                plan=plan,
                stored=own,
                queue=queue,
                rates={name: found.of(name, *key) for name in RATES},
                facts=facts,
                forecast=forecast(facts),
            )
        )
    return Standings(bizzes, running, state, now, found.nothing[60] is not None)


def capacity_key(key: BizKey) -> str:
    """Of ``ScaleState.capacities``."""
    return f"{key[0]}/{key[1]}"


def _plans(projects: Collection[int] | None) -> tuple[dict[BizKey, Plan], dict[int, str]]:
    """From the active versions, which were checked before they became that."""
    rows = _of_projects(
        Configuration.objects.filter(kind=KIND, active__isnull=False, project__isnull=False),
        projects,
    ).values_list("project_id", "project__name", "active_id")
    names: dict[int, str] = {}
    versions: dict[int, int] = {}
    for project, name, version in rows:
        names[project], versions[project] = name, version
    unread = [version for version in versions.values() if version not in _read]
    if unread:
        if len(_read) > MOST_READ:
            _read.clear()
        for version in ConfigVersion.objects.filter(pk__in={*unread, *versions.values()}):
            bizzes = version.data.get("bizzes") or {}
            _read[version.pk] = {biz: _plan(values) for biz, values in bizzes.items()}
    plans = {
        (project, biz): plan
        for project, version in versions.items()
        for biz, plan in _read.get(version, {}).items()
    }
    return plans, names


# What versions say, by their number: they never change.
_read: dict[int, dict[str, Plan]] = {}


def _plan(values: Mapping[str, Any]) -> Plan:
    finish_by = values.get("finish_by_seconds", _DEFAULTS.finish_by_seconds)
    ttl = values.get("ttl_seconds", _DEFAULTS.ttl_seconds)
    most = values.get("max_waiting", _DEFAULTS.max_waiting)
    return Plan(values.get("enabled", True), float(finish_by or ttl), bool(finish_by), most)


def stored_of(projects: Collection[int] | None) -> dict[BizKey, Stored]:
    """What the shards of each biz of these projects said last; None: of all. Two queries."""
    found: dict[BizKey, Stored] = {}
    for row in _of_projects(ShardReport.objects.all(), projects):
        own = found.setdefault((row.project_id, row.biz), Stored())
        own.new += _flag(row, NEW)
        own.taken += _flag(row, TAKEN)
        own.expired += _flag(row, EXPIRED)
        own.expiring_in_an_hour += int((row.expiring or {}).get("3600", 0))
        own.size_bytes += row.size_bytes
        if row.oldest_new_at is not None:
            own.oldest_new_at = min(own.oldest_new_at or row.oldest_new_at, row.oldest_new_at)
        own.reported_at = min(own.reported_at or row.reported_at, row.reported_at)
        if row.problem:
            own.problems.append(row.problem)
    closed = _of_projects(ClosedSlice.objects.order_by(), projects).values_list("project_id", "biz")
    for project, biz, expired in closed.annotate(Sum("expired")):
        found.setdefault((project, biz), Stored()).expired += expired
    return found


def _flag(row: ShardReport, flag: int) -> int:
    return int((row.by_flag or {}).get(str(flag), 0))


def _of_projects(rows: Any, projects: Collection[int] | None) -> Any:
    return rows if projects is None else rows.filter(project_id__in=projects)


def _age(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else max(0.0, (now - moment).total_seconds())


def _facts(
    key: BizKey,
    plan: Plan,
    own: Stored,
    found: FoundRates,
    capacities: Mapping[str, float],
    now: datetime,
    running: int,
    fetchers: float,
) -> Facts:
    # Of a biz that has begun to work lately, the time before is none of slow work. Counts wait in
    # the broker for whoever stores them, so what is there of a time is all of it.
    begun = max(found.ages.get(SeriesKey(name, *key), 0) for name in (CREATED, PROCESSED))
    seconds = float(min(FORECAST_SECONDS, begun or found.heard_seconds))
    share = FORECAST_SECONDS / seconds if seconds else 0.0
    listening = found.nothing[60] is not None
    pace = {
        name: None if value is None or not listening else value * share
        for name in (CREATED, PROCESSED)
        for value in [found.of(name, *key)[FORECAST_SECONDS]]
    }
    # Many that came at once, some minutes ago, are no pace.
    lately = found.of(CREATED, *key)[60]
    if pace[CREATED] is not None and lately is not None and lately < pace[CREATED] / 2:
        pace[CREATED] = lately
    age, reported = _age(own.oldest_new_at, now), _age(own.reported_at, now)
    return Facts(
        backlog=own.backlog,
        created=pace[CREATED],
        processed=pace[PROCESSED],
        seconds=seconds,
        planned_seconds=plan.planned_seconds,
        oldest_age=age,
        # A biz without any shard has stored nothing yet.
        report_age=0.0 if reported is None else reported,
        fetchers=fetchers,
        running=running,
        capacity=capacities.get(capacity_key(key)),
    )


__all__ = [
    "CREATED",
    "FAILED",
    "FETCHERS",
    "FORECAST_SECONDS",
    "PROCESSED",
    "RATES",
    "STALE_SECONDS",
    "Plan",
    "Standing",
    "Standings",
    "Stored",
    "capacity_key",
    "standings",
]
