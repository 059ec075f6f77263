"""Read-only queries on jobs and runs, for other apps, pages and REST."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.db.models import Count
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.jobs.engine.cron import next_times, parse_cron, zone_of
from apps.jobs.models import Job, PlannedRun, Run, Schedule
from apps.jobs.runners.spider_files import classes_in, has_module, module_file, modules_in, similar
from apps.jobs.states import ACTIVE, PlanOutcome, ReplayMissing
from apps.projects.models import Image, ImageDescription
from apps.projects.states import SpiderKind
from yardkit.protocol import KeepPages, PagePolicy, ReplaySource

# Number of next times, and of planned runs that did not start on time, on a page.
NEXT_TIMES: Final = 5
EXCEPTIONS: Final = 20
# Limit of names in a hint.
MOST_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Data of a run for the request center and for statistics. ``boot``: newest execution."""

    run: int
    project: int
    job: int
    active: bool
    state: str
    allowed_networks: tuple[str, ...]
    pages: PagePolicy
    replay: ReplaySource
    boot: str


def run_facts(runs: Iterable[int]) -> dict[int, RunFacts]:
    """Return data by run ID, without unknown IDs, in one query."""
    rows = Run.objects.filter(pk__in=set(runs)).values_list(
        "pk",
        "job_id",
        "job__project_id",
        "state",
        "job__project__allowed_networks",
        "job__keep_pages",
        "job__pages_sample",
        "boot",
        "replay_of_id",
        "replay_missing",
    )
    return {
        pk: RunFacts(
            run=pk,
            project=project,
            job=job,
            active=state in ACTIVE,
            state=state,
            allowed_networks=tuple(networks or ()),
            # Pages of a replay are kept already.
            pages=PagePolicy(keep=KeepPages.NONE if replayed else KeepPages(keep), sample=sample),
            replay=ReplaySource(run=replayed or 0, fetch_missing=missing == ReplayMissing.FETCH),
            boot=boot,
        )
        for pk, job, project, state, networks, keep, sample, boot, replayed, missing in rows
    }


# Fields of a job that ``spider_errors`` compares with each other.
SPIDER_FIELDS: Final = ("spider", "image", "command", "arguments")


def spider_errors(
    *, spider: str, image: object, command: Sequence[str], arguments: Mapping[str, Any]
) -> dict[str, str]:
    """Return why a job's spider cannot be found, or which arguments it lacks, by field.

    An image is checked by its description, if it has one. Only a run without an image takes its
    spider from ``SPIDERS_DIR``, and only a process that has spiders in that folder can check it.
    """
    if command or not spider:
        return {}
    if not isinstance(image, Image):
        error = _missing_in_folder(spider)
        return {"spider": error} if error else {}
    described = image_description(image)
    if described is None:
        return {}
    if error := _missing_in(image, described, spider):
        return {"spider": error}
    error = _missing_arguments(described.spider(spider), arguments)
    return {"arguments": error} if error else {}


def _missing_arguments(spider: Mapping[str, Any] | None, given: Mapping[str, Any]) -> str:
    if spider is None:
        return ""
    declared = spider["arguments"]
    missing = [each["name"] for each in declared if each["required"] and each["name"] not in given]
    if not missing:
        return ""
    text = ngettext(
        "The spider %(spider)s requires the argument %(names)s.",
        "The spider %(spider)s requires the arguments %(names)s.",
        len(missing),
    )
    return text % {"spider": spider["name"], "names": ", ".join(missing)}


def _missing_in_folder(spider: str) -> str:
    folder = Path(settings.SPIDERS_DIR)
    modules = modules_in(folder)
    if not modules:
        return ""
    module, separator, name = spider.partition(":")
    if not separator:
        return ""
    if not has_module(module, [str(folder)]):
        text = _("SPIDERS_DIR has no module %(name)s.") % {"name": module}
        return f"{text} {_hint(module, modules)}"
    file = module_file(module, folder)
    names = classes_in(file) if file else None
    if names is None or name in names:
        return ""
    text = _("Module %(module)s has no class %(name)s.") % {"module": module, "name": name}
    return f"{text} {_hint(name, names)}"


def image_description(image: Image | None) -> ImageDescription | None:
    """Return the description of an image; None if it has none."""
    return None if image is None else ImageDescription.objects.filter(image=image).first()


def imported_spider_errors(
    job: Job, before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, str]:
    """Return ``spider_errors`` of an imported job with an image; {} if no such field changes."""
    if job.image is None or all(before.get(name) == after[name] for name in SPIDER_FIELDS):
        return {}
    return spider_errors(**{name: getattr(job, name) for name in SPIDER_FIELDS})


def _missing_in(image: Image, described: ImageDescription, spider: str) -> str:
    """Return why an image lacks a spider; "" if it has it, or if that is unknown."""
    if spider in described.names:
        return ""
    broken = {error["module"] for error in described.errors}
    # Modules that could not be imported may define it: they may need the job's environment.
    if broken and (described.kind == SpiderKind.SCRAPY or spider.partition(":")[0] in broken):
        return ""
    text = _("The image %(image)s has no spider %(name)s.") % {"image": image, "name": spider}
    return f"{text} {_hint(spider, described.names)}" if described.names else text


def _hint(name: str, names: Sequence[str]) -> str:
    if near := similar(name, names):
        return _("Did you mean %(names)s?") % {"names": ", ".join(near)}
    return _("It has: %(names)s.") % {"names": ", ".join(names[:MOST_NAMED])}


def run_cookies(run: int) -> dict[str, str]:
    """Return the initial cookies of a run, from its job. Raises ``SecretError``."""
    job = Job.all_objects.filter(runs=run).only("cookies").first()
    return {} if job is None else job.opened_cookies()


@dataclass(frozen=True, slots=True)
class NextTime:
    """Future planned time, in the job's time zone and in UTC."""

    local: datetime
    utc: datetime


@dataclass(frozen=True, slots=True)
class ScheduleFacts:
    """Next times of a job's schedule, and the outcomes of past times.

    ``exceptions``: the newest planned runs that did not start on time, with their reasons.
    """

    cron: str
    time_zone: str
    active: bool
    next_times: list[NextTime]
    planned_through: datetime | None = None
    counts: dict[str, int] = field(default_factory=dict)
    exceptions: list[PlannedRun] = field(default_factory=list)


def times_to_come(
    *, cron: str, time_zone: str, after: datetime, count: int = NEXT_TIMES
) -> list[NextTime]:
    """Return the next times of a cron expression; the time zone must be valid.

    Raises ``ValidationError`` for an invalid expression.
    """
    zone = zone_of(time_zone)
    times = next_times(parse_cron(cron), time_zone, after, count) if cron else []
    return [NextTime(local=moment.astimezone(zone), utc=moment) for moment in times]


def schedule_facts(job: Job, *, now: datetime) -> ScheduleFacts:
    """Return the schedule of a job for its page and REST view, in three queries."""
    schedule = Schedule.objects.filter(job=job).first()
    active = bool(job.cron) and job.enabled
    if schedule is None:
        after, rows = now, PlannedRun.objects.none()
    else:
        after, rows = max(now, schedule.planned_through), schedule.planned_runs.all()
    counts = dict.fromkeys(PlanOutcome.values, 0)
    counts.update(rows.order_by().values_list("outcome").annotate(count=Count("pk")))
    unplanned = rows.exclude(outcome=PlanOutcome.STARTED).select_related("run")
    return ScheduleFacts(
        cron=job.cron,
        time_zone=job.time_zone,
        active=active,
        next_times=times_to_come(cron=job.cron, time_zone=job.time_zone, after=after)
        if active
        else [],
        planned_through=None if schedule is None else schedule.planned_through,
        counts=counts,
        exceptions=list(unplanned.order_by("-planned_at")[:EXCEPTIONS]),
    )
