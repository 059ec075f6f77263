"""Calendar of runs, timeline of runs by host or job, and picture of jobs that follow jobs."""

from __future__ import annotations

from calendar import Calendar
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from django.utils.translation import gettext as _

from apps.access.models import User
from apps.jobs.engine.cron import Cron, parse_cron, times_between
from apps.jobs.models import Job, JobLink, Run, Schedule
from apps.queuestats.models import JobDay

# Limits of what one page computes and shows.
MAX_SCHEDULES: Final = 200
MAX_JOB_DAYS: Final = 3_000
SHOWN_A_DAY: Final = 6
MAX_RUNS: Final = 500
MAX_ROWS: Final = 40
MAX_LANES: Final = 4
MAX_LINKS: Final = 200
# Schedules with more times a day are counted instead of listed.
_MOST_LISTED: Final = 4
_DAY: Final = timedelta(days=1)


# --- calendar -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CalendarEntry:
    """Runs of one job on one day: past ones by outcome, or planned ones from ``at``."""

    job: int
    name: str
    count: int
    at: datetime | None = None
    failed: int = 0
    with_errors: int = 0

    @property
    def tone(self) -> str:
        """Kind of the entry, for its colour."""
        if self.at is not None:
            return "planned"
        return "failed" if self.failed else "warning" if self.with_errors else "success"


@dataclass(slots=True)
class CalendarDay:
    """A day in UTC with its first entries, and the number of further ones."""

    day: date
    in_month: bool
    is_today: bool
    entries: list[CalendarEntry] = field(default_factory=list)
    more: int = 0

    def add(self, entry: CalendarEntry) -> None:
        """Add an entry, or count it if the day is full."""
        if len(self.entries) < SHOWN_A_DAY:
            self.entries.append(entry)
        else:
            self.more += 1


@dataclass(frozen=True, slots=True)
class CalendarMonth:
    """A month in weeks from Monday; ``is_cut``: there are more schedules than were read."""

    first: date
    weeks: list[list[CalendarDay]]
    is_cut: bool = False

    @property
    def before(self) -> date:
        """First day of the month before."""
        return (self.first - _DAY).replace(day=1)

    @property
    def after(self) -> date:
        """First day of the next month."""
        return (self.first + 31 * _DAY).replace(day=1)


def calendar_of(user: User, first: date, now: datetime) -> CalendarMonth:
    """Return the month that begins on ``first``: ended runs by day and job, then planned runs.

    Two queries, for any number of runs.
    """
    today = now.astimezone(UTC).date()
    weeks = [
        [CalendarDay(day, day.month == first.month, day == today) for day in week]
        for week in Calendar().monthdatescalendar(first.year, first.month)
    ]
    days = {day.day: day for week in weeks for day in week}
    for row in _past(user, min(days), max(days)):
        runs = (row["runs_succeeded"], row["runs_with_errors"], row["runs_failed"])
        entry = CalendarEntry(
            row["job"], row["job__name"], sum(runs), failed=runs[2], with_errors=runs[1]
        )
        if entry.count:
            days[row["day"]].add(entry)
    until = datetime.combine(max(days) + _DAY, time(), UTC)
    if until <= now:
        return CalendarMonth(first, weeks)
    schedules = list(_schedules(user)[: MAX_SCHEDULES + 1])
    start = max(now, datetime.combine(min(days), time(), UTC))
    planned = [e for s in schedules[:MAX_SCHEDULES] for e in _planned(s, start, until)]
    for day, entry in sorted(planned, key=lambda pair: (pair[0], pair[1].at or start)):
        if day in days:
            days[day].add(entry)
    return CalendarMonth(first, weeks, is_cut=len(schedules) > MAX_SCHEDULES)


def _past(user: User, first: date, last: date) -> Any:
    rows = JobDay.objects.visible_to(user).filter(day__range=(first, last))
    worst_first = rows.order_by("day", "-runs_failed", "-runs_with_errors", "job__name", "job")
    names = ("day", "job", "job__name", "runs_succeeded", "runs_with_errors", "runs_failed")
    return worst_first.values(*names)[:MAX_JOB_DAYS]


def _schedules(user: User) -> Any:
    jobs = Job.objects.visible_to(user).filter(enabled=True)
    rows = Schedule.objects.filter(job__in=jobs.order_by().values("pk"), next_at__isnull=False)
    return rows.select_related("job").order_by("next_at", "pk")


def _planned(
    schedule: Schedule, start: datetime, until: datetime
) -> list[tuple[date, CalendarEntry]]:
    job, cron = schedule.job, parse_cron(schedule.cron)
    a_day = len(cron.minutes) * len(cron.hours)
    if a_day > _MOST_LISTED:
        return list(_counted(job, cron, a_day, start, until))
    limit = _MOST_LISTED * ((until - start).days + 1)
    by_day: dict[date, list[datetime]] = {}
    for moment in times_between(
        cron, schedule.time_zone, start, until - timedelta(seconds=1), limit
    ):
        by_day.setdefault(moment.date(), []).append(moment)
    return [
        (day, CalendarEntry(job.pk, job.name, len(times), at=times[0]))
        for day, times in by_day.items()
    ]


def _counted(
    job: Job, cron: Cron, a_day: int, start: datetime, until: datetime
) -> Iterable[tuple[date, CalendarEntry]]:
    """Yield the days of a frequent schedule without computing each of its times."""
    first = time(cron.hours[0], cron.minutes[0])
    day = start.date()
    while day < until.date():
        if cron.fits_day(day):
            at = datetime.combine(day, first, UTC)
            yield day, CalendarEntry(job.pk, job.name, a_day, at=max(at, start))
        day += _DAY


# --- timeline -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A run in a row: percent of the window from the left, and its lane."""

    run: Run
    x: str
    width: str
    y: int


@dataclass(slots=True)
class TimelineRow:
    """A host or a job with its runs, in lanes if they overlap; ``planned``: places in percent."""

    name: str
    job: int | None
    bars: list[TimelineBar] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)
    lanes: int = 1
    # Runs that no lane was free for.
    hidden: int = 0
    _ends: list[datetime] = field(default_factory=list)

    def add(self, run: Run, since: datetime, until: datetime, now: datetime) -> None:
        """Add a run to the first free lane."""
        start = max(run.started_at or since, since)
        end = min(max(run.ended_at or now, start), until)
        lane = next((n for n, busy in enumerate(self._ends) if busy <= start), len(self._ends))
        if lane >= MAX_LANES:
            self.hidden += 1
            return
        self._ends[lane : lane + 1] = [end]
        self.lanes = max(self.lanes, lane + 1)
        x = _share(start, since, until)
        width = max(_share(end, since, until) - x, 0.3)
        self.bars.append(TimelineBar(run, f"{x:.3f}", f"{width:.3f}", lane))


@dataclass(frozen=True, slots=True)
class Timeline:
    """Runs of a window, by host or job; ``is_cut``: there are more than were read."""

    since: datetime
    until: datetime
    now_x: str
    marks: list[datetime]
    rows: list[TimelineRow]
    is_cut: bool


def timeline_of(user: User, *, hours: int, by_host: bool, now: datetime) -> Timeline:
    """Return the runs of the last ``hours``, and by job the planned ones of a quarter of it.

    Two queries, three by job.
    """
    since = now - timedelta(hours=hours)
    until = now if by_host else now + timedelta(hours=hours / 4)
    runs = _runs_since(user, since)
    rows: dict[Any, TimelineRow] = {}
    for run in sorted(runs[:MAX_RUNS], key=lambda run: (run.started_at or since, run.pk)):
        key = run.host if by_host else run.job_id
        name = (run.host or _("no host")) if by_host else run.job.name
        row = rows.setdefault(key, TimelineRow(name, None if by_host else run.job_id))
        row.add(run, since, until, now)
    if not by_host:
        _add_planned(user, rows, since, now, until)
    listed = sorted(rows.values(), key=lambda row: row.name)
    return Timeline(
        since=since,
        until=until,
        now_x=f"{_share(now, since, until):.3f}",
        marks=[since + (until - since) * part / 6 for part in range(7)],
        rows=listed[:MAX_ROWS],
        is_cut=len(runs) >= MAX_RUNS or len(listed) > MAX_ROWS,
    )


def _runs_since(user: User, since: datetime) -> list[Run]:
    """Return active runs and those that have ended since, newest first: one index for each."""
    runs = Run.objects.visible_to(user).filter(started_at__isnull=False).select_related("job")
    ended = runs.filter(ended_at__gte=since).order_by("-ended_at", "-id")
    return [*runs.active().order_by("-id")[:MAX_RUNS], *ended[:MAX_RUNS]]


def _add_planned(
    user: User, rows: dict[Any, TimelineRow], since: datetime, now: datetime, until: datetime
) -> None:
    for schedule in _schedules(user).filter(next_at__lte=until)[:MAX_SCHEDULES]:
        job = schedule.job
        row = rows.setdefault(job.pk, TimelineRow(job.name, job.pk))
        times = times_between(parse_cron(schedule.cron), schedule.time_zone, now, until, 50)
        row.planned += [f"{_share(moment, since, until):.3f}" for moment in times]


def _share(moment: datetime, since: datetime, until: datetime) -> float:
    return 100.0 * (moment - since) / (until - since)


# --- jobs that follow jobs ------------------------------------------------------------------------

NODE_WIDTH: Final = 190
NODE_HEIGHT: Final = 38
_GAP_X: Final = 70
_GAP_Y: Final = 16
_NAME_CHARACTERS: Final = 24


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A job in the picture."""

    job: Job
    x: int
    y: int

    @property
    def label(self) -> str:
        """Name, shortened to the width of the node."""
        name = self.job.name
        return name if len(name) <= _NAME_CHARACTERS else f"{name[: _NAME_CHARACTERS - 1]}…"

    @property
    def text_y(self) -> int:
        """Baseline of the label."""
        return self.y + NODE_HEIGHT // 2 + 5


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """An arrow from a job to one that follows it."""

    link: JobLink
    path: str


@dataclass(frozen=True, slots=True)
class JobGraph:
    """Jobs in columns by the longest chain before them, with their arrows."""

    nodes: list[GraphNode]
    edges: list[GraphEdge]
    width: int
    height: int
    is_cut: bool


def job_graph(user: User) -> JobGraph:
    """Return the picture of the first ``MAX_LINKS`` links that a user sees. One query."""
    rows = JobLink.objects.visible_to(user).select_related("job__project", "after__project")
    links = list(rows.order_by("pk")[: MAX_LINKS + 1])
    shown = links[:MAX_LINKS]
    jobs = {job.pk: job for link in shown for job in (link.after, link.job)}
    columns = _columns(shown, jobs)
    places: dict[int, GraphNode] = {}
    filled: dict[int, int] = {}
    for pk in sorted(jobs, key=lambda pk: (columns[pk], jobs[pk].name, pk)):
        column = columns[pk]
        row = filled.get(column, 0)
        filled[column] = row + 1
        places[pk] = GraphNode(
            jobs[pk], column * (NODE_WIDTH + _GAP_X) + 2, row * (NODE_HEIGHT + _GAP_Y) + 2
        )
    return JobGraph(
        nodes=list(places.values()),
        edges=[
            GraphEdge(link, _arrow(places[link.after_id], places[link.job_id])) for link in shown
        ],
        width=(max(columns.values(), default=0) + 1) * (NODE_WIDTH + _GAP_X),
        height=max(filled.values(), default=0) * (NODE_HEIGHT + _GAP_Y) + 4,
        is_cut=len(links) > MAX_LINKS,
    )


def _columns(links: list[JobLink], jobs: Iterable[int]) -> dict[int, int]:
    """Return the column of each job: one right of the last job before it. Links have no cycles."""
    columns = dict.fromkeys(jobs, 0)
    for _round in columns:
        changed = False
        for link in links:
            if columns[link.job_id] <= columns[link.after_id]:
                columns[link.job_id] = columns[link.after_id] + 1
                changed = True
        if not changed:
            break
    return columns


def _arrow(source: GraphNode, target: GraphNode) -> str:
    x1, y1 = source.x + NODE_WIDTH, source.y + NODE_HEIGHT // 2
    x2, y2 = target.x - 4, target.y + NODE_HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"
