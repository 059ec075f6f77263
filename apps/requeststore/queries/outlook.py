"""Status of every biz: backlog, rates, forecast."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from django.db.models import BigIntegerField, Count, DateTimeField, JSONField, Subquery, Sum, Value
from django.db.models.functions import Cast, Coalesce

from apps.configcenter.models import Configuration, ConfigVersion
from apps.queuestats.queries import FoundRates, SeriesKey, rates_and_minutes
from apps.requeststore.engine.biz import Biz
from apps.requeststore.engine.flags import EXPIRED, NEW, TAKEN
from apps.requeststore.engine.forecast import STALE_SECONDS, BacklogMeasurements, Forecast, forecast
from apps.requeststore.models import ClosedSlice, QueueReport, ScaleState, ShardReport
from apps.runtime.queries import database_moment, database_now, live_daemons

KIND: Final = "biz"
CREATED: Final = "requests.created"
PROCESSED: Final = "requests.processed"
FAILED: Final = "requests.failed"
RATES: Final = (CREATED, PROCESSED, FAILED)
# Platform gauge: number of running fetchers.
FETCHERS: Final = SeriesKey("fetchers.running", None)
FETCHER_KIND: Final = "fetcher"
FORECAST_SECONDS: Final = 300
CURVES: Final = (CREATED, PROCESSED)
CURVE_MINUTES: Final = 60
MOST_READ: Final = 1000
_DEFAULTS: Final = Biz()

# (project, biz)
BizKey = tuple[int, str]


@dataclass(frozen=True, slots=True)
class BizSchedule:
    """Planned processing time of a biz. ``planned``: set explicitly."""

    enabled: bool = True
    planned_seconds: float = float(_DEFAULTS.ttl_seconds)
    planned: bool = False
    max_waiting: int = _DEFAULTS.max_waiting


@dataclass(slots=True)
class Stored:
    """Totals of a biz's shards; ``reported_at``: of the oldest report.

    ``expired``: all that ever expired unprocessed, deleted ones included.
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
        """Return the number of new and leased requests."""
        return self.new + self.taken


@dataclass(frozen=True, slots=True)
class BizStatus:
    """Status of one biz."""

    project_id: int
    project: str
    biz: str
    plan: BizSchedule
    stored: Stored
    queue: QueueReport | None
    rates: dict[str, dict[int, float | None]]
    facts: BacklogMeasurements
    forecast: Forecast


@dataclass(frozen=True, slots=True)
class BizStatuses:
    """Status of all visible bizzes.

    ``fetchers``: running ones. ``state``: of scaling. ``listening``: rates were collected in the
    last minute. ``curves``: rates of the last minutes, per second.
    """

    bizzes: list[BizStatus]
    fetchers: int
    state: ScaleState
    now: datetime
    listening: bool
    curves: dict[SeriesKey, list[float]]


def standings(*, now: datetime | None = None, curves_of: Collection[int] = ()) -> BizStatuses:
    """Return the status of all bizzes, with curves for some projects; a fixed number of queries.

    ``now=None`` asks the database for the time.
    """
    state, running, now = _fetchers(now)
    plans, names = _plans()
    stored, queues = reports()
    rates_by_key, curves = rates_and_minutes(
        [*RATES, FETCHERS.name], lines=CURVES, of=curves_of, count=CURVE_MINUTES, now=now
    )
    fetchers = rates_by_key.means.get(FETCHERS, float(running))
    bizzes = []
    for key in sorted(plans, key=lambda key: (names[key[0]], key[1])):
        plan = plans[key]
        own = stored.get(key, Stored())
        queue = queues.get(key)
        facts = _facts(key, plan, own, rates_by_key, state.capacities, now, running, fetchers)
        bizzes.append(
            BizStatus(
                project_id=key[0],
                project=names[key[0]],
                biz=key[1],
                plan=plan,
                stored=own,
                queue=queue,
                rates={name: rates_by_key.of(name, *key) for name in RATES},
                facts=facts,
                forecast=forecast(facts),
            )
        )
    return BizStatuses(bizzes, running, state, now, rates_by_key.nothing[60] is not None, curves)


def capacity_key(key: BizKey) -> str:
    """Return the key of ``ScaleState.capacities``."""
    return f"{key[0]}/{key[1]}"


def _fetchers(now: datetime | None) -> tuple[ScaleState, int, datetime]:
    """Return the scaling state, the running fetchers and the time. One query, two or three before
    the first decision.
    """
    moment = now or database_moment()
    living = live_daemons(kind=FETCHER_KIND, now=moment).order_by().values("kind")
    number = Subquery(living.annotate(number=Count("pk")).values("number"))
    at = Value(moment, DateTimeField()) if isinstance(moment, datetime) else moment
    state = ScaleState.objects.annotate(living=Coalesce(number, 0), at=at).filter(pk=1).first()
    if state is None:
        now = now or database_now()
        return ScaleState(pk=1), live_daemons(kind=FETCHER_KIND, now=now).count(), now
    return state, state.living, now or state.at


def _plans() -> tuple[dict[BizKey, BizSchedule], dict[int, str]]:
    """Return the planned times of the active versions."""
    rows = Configuration.objects.filter(
        kind=KIND, active__isnull=False, project__isnull=False
    ).values_list("project_id", "project__name", "active_id")
    names: dict[int, str] = {}
    versions: dict[int, int] = {}
    for project, name, version in rows:
        names[project], versions[project] = name, version
    unread = [version for version in versions.values() if version not in _read]
    if unread:
        if len(_read) > MOST_READ:
            _read.clear()
        for row in ConfigVersion.objects.filter(pk__in={*unread, *versions.values()}):
            bizzes = row.data.get("bizzes") or {}
            _read[row.pk] = {biz: _plan(values) for biz, values in bizzes.items()}
    plans = {
        (project, biz): plan
        for project, version in versions.items()
        for biz, plan in _read.get(version, {}).items()
    }
    return plans, names


# Settings by version ID; versions never change.
_read: dict[int, dict[str, BizSchedule]] = {}


def _plan(values: Mapping[str, Any]) -> BizSchedule:
    finish_by = values.get("finish_by_seconds", _DEFAULTS.finish_by_seconds)
    ttl = values.get("ttl_seconds", _DEFAULTS.ttl_seconds)
    most = values.get("max_waiting", _DEFAULTS.max_waiting)
    return BizSchedule(values.get("enabled", True), float(finish_by or ttl), bool(finish_by), most)


# Default values of rows without the setting.
_NOTHING: Final[dict[str, Any]] = {
    "by_flag": Value({}, JSONField()),
    "expiring": Value({}, JSONField()),
    "size_bytes": Value(0),
    "oldest_new_at": Cast(Value(None), DateTimeField()),
    "problem": Value(""),
    "reported_at": Cast(Value(None), DateTimeField()),
    "closed": Value(0),
    "name": Value(""),
    "waiting": Value(0),
    "taken": Cast(Value(None), BigIntegerField()),
    "memory_bytes": Cast(Value(None), BigIntegerField()),
}
_OF_SHARD: Final = (
    *("by_flag", "expiring", "size_bytes", "oldest_new_at", "problem", "reported_at"),
)
_OF_QUEUE: Final = ("name", "waiting", "taken", "memory_bytes", "problem", "reported_at")


def reports() -> tuple[dict[BizKey, Stored], dict[BizKey, QueueReport]]:
    """Return the latest totals and queue reports of each biz. One query."""
    slices = ClosedSlice.objects.order_by().values("project_id", "biz")
    rows = _rows(ShardReport.objects.order_by(), _OF_SHARD).union(
        _rows(slices.annotate(closed=Sum("expired")), ("closed",)),
        _rows(QueueReport.objects.order_by(), _OF_QUEUE),
        all=True,
    )
    stored: dict[BizKey, Stored] = {}
    queues: dict[BizKey, QueueReport] = {}
    for project, biz, *values in rows:
        row = dict(zip(_NOTHING, values, strict=True))
        if row["name"]:
            own = {name: row[name] for name in _OF_QUEUE}
            queues[project, biz] = QueueReport(project_id=project, biz=biz, **own)
        else:
            _add(stored.setdefault((project, biz), Stored()), row)
    return stored, queues


def _rows(rows: Any, names: Collection[str]) -> Any:
    columns = [name if name in names else nothing for name, nothing in _NOTHING.items()]
    return rows.values_list("project_id", "biz", *columns)


def _add(own: Stored, said: Mapping[str, Any]) -> None:
    flags, oldest, at = said["by_flag"] or {}, said["oldest_new_at"], said["reported_at"]
    own.new += int(flags.get(str(NEW), 0))
    own.taken += int(flags.get(str(TAKEN), 0))
    own.expired += int(flags.get(str(EXPIRED), 0)) + int(said["closed"])
    own.expiring_in_an_hour += int((said["expiring"] or {}).get("3600", 0))
    own.size_bytes += said["size_bytes"]
    if oldest is not None:
        own.oldest_new_at = min(own.oldest_new_at or oldest, oldest)
    if at is not None:
        own.reported_at = min(own.reported_at or at, at)
    if said["problem"]:
        own.problems.append(said["problem"])


def _age(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else max(0.0, (now - moment).total_seconds())


def _facts(
    key: BizKey,
    plan: BizSchedule,
    own: Stored,
    found: FoundRates,
    capacities: Mapping[str, float],
    now: datetime,
    running: int,
    fetchers: float,
) -> BacklogMeasurements:
    # The time before the first activity of a biz is not idle time. Counts wait in the broker until
    # they are stored, so the stored counts of a period are complete.
    begun = max(found.ages.get(SeriesKey(name, *key), 0) for name in (CREATED, PROCESSED))
    seconds = float(min(FORECAST_SECONDS, begun or found.heard_seconds))
    share = FORECAST_SECONDS / seconds if seconds else 0.0
    listening = found.nothing[60] is not None
    pace = {
        name: None if value is None or not listening else value * share
        for name in (CREATED, PROCESSED)
        for value in [found.of(name, *key)[FORECAST_SECONDS]]
    }
    # A burst some minutes ago is not a rate.
    lately = found.of(CREATED, *key)[60]
    if pace[CREATED] is not None and lately is not None and lately < pace[CREATED] / 2:
        pace[CREATED] = lately
    age, reported = _age(own.oldest_new_at, now), _age(own.reported_at, now)
    return BacklogMeasurements(
        backlog=own.backlog,
        created=pace[CREATED],
        processed=pace[PROCESSED],
        seconds=seconds,
        planned_seconds=plan.planned_seconds,
        oldest_age=age,
        # A biz without shards has no requests yet.
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
    "BizSchedule",
    "BizStatus",
    "BizStatuses",
    "Stored",
    "capacity_key",
    "standings",
]
