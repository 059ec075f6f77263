"""Export and import of jobs as files. An import applies all changes or none."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from apps.access.models import User
from apps.access.states import Role
from apps.jobs.engine.csv_files import read_csv, write_csv
from apps.jobs.engine.portable import (
    MAX_JOBS,
    MAX_PROBLEMS,
    Column,
    ColumnKind,
    FileProblem,
    JobEntry,
    JobFileFormat,
)
from apps.jobs.engine.yaml_files import read_yaml, write_yaml
from apps.jobs.errors import ImportRefused, TooManyJobs
from apps.jobs.models import OPTIONS, Job
from apps.jobs.queries import imported_spider_errors
from apps.jobs.services.jobs import create_job, update_job
from apps.projects.models import Image, Project
from apps.seeds.models import Frontier

NAMES_OF_SECRETS: Final = "secret_names"
_SECRETS: Final = frozenset({"secrets", "cookies"})
# Fields of a job file, in order; encrypted fields are never exported.
FIELDS: Final = (
    "name",
    "project",
    "enabled",
    "tags",
    "notes",
    "image",
    "spider",
    "command",
    "arguments",
    "frontier",
    "environment",
    NAMES_OF_SECRETS,
    "cron",
    "time_zone",
    "overlap",
    "misfire",
    "speed",
    "concurrency",
    *(name for name in OPTIONS if name not in _SECRETS),
    "host_labels",
    "priority",
    "cpu_limit",
    "memory_limit_bytes",
    "max_run_seconds",
    *("max_failed_percent", "max_exceptions", "min_items"),
    "trial_required",
    "trial_lost_percent",
    "trial_changed_percent",
    "retry_rules",
)


class ImportMode(models.TextChoices):
    """Kinds of changes that an import may make."""

    CREATE = "create", gettext_lazy("Add new jobs only")
    UPDATE = "update", gettext_lazy("Change existing jobs only")
    UPSERT = "upsert", gettext_lazy("Add and change")


def _column(name: str) -> Column:
    if name in (NAMES_OF_SECRETS, "tags"):
        return Column(name, ColumnKind.WORDS)
    if name in ("project", "image", "frontier"):
        return Column(name, ColumnKind.TEXT, nullable=name != "project")
    model_field = Job._meta.get_field(name)
    kind = ColumnKind.TEXT
    for base, known in (
        (models.JSONField, ColumnKind.JSON),
        (models.BooleanField, ColumnKind.BOOLEAN),
        (models.FloatField, ColumnKind.NUMBER),
        (models.IntegerField, ColumnKind.INTEGER),
    ):
        if isinstance(model_field, base):
            kind = known
    return Column(name, kind, nullable=bool(model_field.null))


COLUMNS: Final = tuple(_column(name) for name in FIELDS)
_KINDS: Final = {column.name: column.kind for column in COLUMNS}


@dataclass(slots=True)
class PlannedImport:
    """Effect of an import on one job of the file."""

    name: str
    project: str
    what: str
    changes: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    secrets_to_set: list[str] = field(default_factory=list)
    job: Job | None = None
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ImportPlan:
    """Effect of an import on all jobs; a plan with problems is not applied."""

    file: str
    jobs: list[PlannedImport] = field(default_factory=list)
    problems: list[FileProblem] = field(default_factory=list)

    def count(self, what: str) -> int:
        """Return the number of jobs that are ``added``, ``changed`` or ``unchanged``."""
        return sum(job.what == what for job in self.jobs)

    @property
    def said(self) -> list[str]:
        """Return the problems as texts with file, line and field."""
        return [problem.said(self.file) for problem in self.problems]

    @property
    def digest(self) -> str:
        """Hash of the plan, which ensures that an import is applied as previewed."""
        jobs = [[job.name, job.project, job.what, job.changes] for job in self.jobs]
        text = json.dumps([jobs, self.said], default=str, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


# --- export ---------------------------------------------------------------------------------------


def export_jobs(jobs: Iterable[Job], kind: JobFileFormat) -> str:
    """Return these jobs as a file, without secrets and cookies.

    Raises:
        TooManyJobs: more jobs than a file may contain.
    """
    rows = [portable(job) for job in jobs]
    if len(rows) > MAX_JOBS:
        text = _("%(count)d jobs are selected, a file may hold %(limit)d; narrow the selection.")
        raise TooManyJobs(text % {"count": len(rows), "limit": MAX_JOBS})
    return write_csv(rows, COLUMNS) if kind is JobFileFormat.CSV else write_yaml(rows)


def portable(job: Job) -> dict[str, Any]:
    """Return the fields of a job as they are written to a file."""
    special = {
        "project": job.project.slug,
        "image": job.image.reference if job.image else None,
        "frontier": job.frontier.name if job.frontier else None,
        NAMES_OF_SECRETS: job.secret_names,
    }
    values = {name: special[name] if name in special else getattr(job, name) for name in FIELDS}
    # Default values of an unsaved job are enum members, not strings.
    return {
        name: value.value if isinstance(value, models.Choices) else value
        for name, value in values.items()
    }


# --- import ---------------------------------------------------------------------------------------


def plan_import(
    *,
    raw: bytes | str,
    kind: JobFileFormat,
    actor: User,
    project: Project | None = None,
    mode: ImportMode = ImportMode.UPSERT,
    file: str = "",
) -> ImportPlan:
    """Plan an import. Read-only.

    Args:
        project: target of all jobs; by default each job names its own project.
        file: name for messages.
    """
    plan = ImportPlan(file=file_name(file, kind))
    read = (read_csv if kind is JobFileFormat.CSV else read_yaml)(raw, COLUMNS)
    plan.problems += read.problems
    if not read.entries and not plan.problems:
        plan.problems.append(FileProblem(1, "jobs", _("The file has no jobs.")))
    planner = _Planner(plan, actor, project, mode)
    planner.look_up(read.entries)
    for entry in read.entries:
        if len(plan.problems) < MAX_PROBLEMS:
            planner.take(entry)
    return plan


@transaction.atomic
def import_jobs(
    *,
    raw: bytes | str,
    kind: JobFileFormat,
    actor: User,
    now: datetime,
    project: Project | None = None,
    mode: ImportMode = ImportMode.UPSERT,
    file: str = "",
    digest: str = "",
) -> ImportPlan:
    """Import all jobs of a file in one transaction.

    Args:
        digest: of the plan that was previewed.

    Raises:
        ImportRefused: the file has errors, or the plan has changed since the preview.
    """
    plan = plan_import(raw=raw, kind=kind, actor=actor, project=project, mode=mode, file=file)
    if plan.problems:
        refuse(plan)
    if digest and digest != plan.digest:
        raise ImportRefused(_("The jobs have changed meanwhile; look at the preview again."))
    for planned in plan.jobs:
        if planned.what == "added":
            planned.job = create_job(values=planned.values, actor=actor, now=now)
        elif planned.what == "changed" and planned.job is not None:
            update_job(job=planned.job, values=planned.values, actor=actor, now=now)
    return plan


def refuse(plan: ImportPlan) -> None:
    """Raise ``ImportRefused`` with the problems by field."""
    count = len(plan.problems)
    text = ngettext(
        "%(count)d problem in the file: nothing was imported.",
        "%(count)d problems in the file: nothing was imported.",
        count,
    )
    fields: dict[str, list[str]] = {}
    for problem, line in zip(plan.problems, plan.said, strict=True):
        fields.setdefault(problem.where or "file", []).append(line)
    raise ImportRefused(text % {"count": count}, fields=fields)


def file_name(name: str, kind: JobFileFormat) -> str:
    """Return a safe file name: no folders, no control characters, limited length."""
    last = name.replace("\\", "/").rpartition("/")[2]
    printable = "".join(character for character in last if character.isprintable())
    return printable.encode("utf-8", "replace").decode()[-80:] or f"jobs.{kind.value}"


class _Planner:
    """Compares the jobs of a file with existing jobs."""

    def __init__(
        self, plan: ImportPlan, actor: User, project: Project | None, mode: ImportMode
    ) -> None:
        self._plan = plan
        self._mode = mode
        self._into = project
        self._editable = {
            project.slug: project for project in Project.objects.visible_to(actor, Role.EDITOR)
        }
        self._visible = set(Project.objects.visible_to(actor).values_list("slug", flat=True))
        self._jobs: dict[tuple[int, str], Job] = {}
        self._images: dict[tuple[int, str], Image] = {}
        self._frontiers: dict[tuple[int, str], Frontier] = {}
        self._seen: Counter[tuple[int, str]] = Counter()

    def look_up(self, entries: Sequence[JobEntry]) -> None:
        """Read all rows that the entries may refer to, with a fixed number of queries."""
        slugs = {entry.values.get("project") for entry in entries}
        named = [row for slug, row in self._editable.items() if slug in slugs]
        projects = named if self._into is None else [self._into]
        names = {entry.values.get("name") for entry in entries}
        rows = Job.objects.filter(project__in=projects, name__in=names)
        self._jobs = {
            (job.project_id, job.name): job
            for job in rows.select_related("project", "image", "frontier")
        }
        images = Image.objects.available().filter(project__in=projects)
        self._images = {(image.project_id, image.reference): image for image in images}
        frontiers = Frontier.objects.filter(project__in=projects)
        self._frontiers = {(row.project_id, row.name): row for row in frontiers}

    def take(self, entry: JobEntry) -> None:
        """Plan the import of one job, or record its problems."""
        values = dict(entry.values)
        project = self._project(entry, values.pop("project", None))
        name = values.get("name")
        if not name:
            self._refuse(entry, "name", _("The name is missing."))
        if project is None or not name:
            return
        self._seen[project.pk, name] += 1
        if self._seen[project.pk, name] > 1:
            self._refuse(entry, "name", _("This job occurs twice."))
            return
        job = self._jobs.get((project.pk, name))
        if not self._mode_allows(entry, exists=job is not None):
            return
        wanted_secrets = values.pop(NAMES_OF_SECRETS, [])
        has_image = self._find_image(entry, values, project, job)
        if not (self._find_frontier(entry, values, project) and has_image):
            return
        if not self._shapes_fit(entry, values):
            return
        planned = self._compare(entry, job or Job(project=project), values, exists=job is not None)
        if planned is None:
            return
        stored = set(job.secret_names) if job else set()
        planned.secrets_to_set = sorted({str(name) for name in wanted_secrets} - stored)
        self._plan.jobs.append(planned)

    def _project(self, entry: JobEntry, slug: object) -> Project | None:
        if self._into is not None:
            return self._into
        if not slug:
            text = _("The project is missing; name it in the file or choose one for all jobs.")
            self._refuse(entry, "project", text)
        elif slug in self._editable:
            return self._editable[str(slug)]
        elif slug in self._visible:
            text = _("You do not have permission to change jobs in this project.")
            self._refuse(entry, "project", text)
        else:
            text = _("Project “%(slug)s” does not exist.") % {"slug": str(slug)[:60]}
            self._refuse(entry, "project", text)
        return None

    def _mode_allows(self, entry: JobEntry, *, exists: bool) -> bool:
        if exists and self._mode == ImportMode.CREATE:
            text = _("A job of this name already exists in the project.")
            self._refuse(entry, "name", text)
            return False
        if not exists and self._mode == ImportMode.UPDATE:
            self._refuse(entry, "name", _("No job of this name exists."))
            return False
        return True

    def _shapes_fit(self, entry: JobEntry, values: dict[str, Any]) -> bool:
        """Check the types of nested values: the model would accept an empty object as a list."""
        fit = True
        for name in values:
            if _KINDS[name] is not ColumnKind.JSON:
                continue
            default = getattr(Job(), name)
            if values[name] is None:
                values[name] = default
            elif type(values[name]) is not type(default):
                text = (
                    _("The value must be a list.")
                    if default == []
                    else _("The value must be a mapping.")
                )
                self._refuse(entry, name, text)
                fit = False
        return fit

    def _find_image(
        self, entry: JobEntry, values: dict[str, Any], project: Project, job: Job | None
    ) -> bool:
        """Replace the name of an image by the image."""
        if "image" not in values:
            return True
        reference = values["image"]
        if not reference:
            values["image"] = None
            return True
        if job is not None and job.image is not None and job.image.reference == reference:
            values["image"] = job.image
            return True
        values["image"] = self._images.get((project.pk, reference))
        if values["image"] is None:
            text = _("The project %(project)s has no image “%(image)s”.")
            words = {"project": project, "image": str(reference)[:100]}
            self._refuse(entry, "image", text % words)
            return False
        return True

    def _find_frontier(self, entry: JobEntry, values: dict[str, Any], project: Project) -> bool:
        """Replace the name of a frontier by the frontier."""
        name = values.get("frontier")
        if not name:
            if "frontier" in values:
                values["frontier"] = None
            return True
        values["frontier"] = self._frontiers.get((project.pk, name))
        if values["frontier"] is None:
            text = _("The project %(project)s has no URL queue “%(frontier)s”.")
            words = {"project": project, "frontier": str(name)[:100]}
            self._refuse(entry, "frontier", text % words)
            return False
        return True

    def _compare(
        self, entry: JobEntry, job: Job, values: dict[str, Any], *, exists: bool
    ) -> PlannedImport | None:
        before = portable(job) if exists else {}
        stored = {name: getattr(job, name) for name in values}
        for name, value in values.items():
            setattr(job, name, value)
        found_wrong = self._check(entry, job)
        after = portable(job)
        for name, error in imported_spider_errors(job, before, after).items():
            self._refuse(entry, name, error)
            found_wrong = True
        if exists:
            # Reset the object to the stored values; only ``given`` is applied later.
            for name, value in stored.items():
                setattr(job, name, value)
        if found_wrong:
            return None
        changed = {
            name: (before.get(name), after[name])
            for name in (*values,)
            if not exists or before[name] != after[name]
        }
        change = "added" if not exists else "changed" if changed else "unchanged"
        given = {name: value for name, value in values.items() if name in changed}
        return PlannedImport(
            name=job.name,
            project=job.project.slug,
            what=change,
            changes=changed if exists else {},
            job=job if exists else None,
            values=given if exists else {**values, "project": job.project},
        )

    def _check(self, entry: JobEntry, job: Job) -> bool:
        try:
            # Not full_clean, which runs a query for each constraint of each job.
            job.clean_fields(exclude={"project", "image", "frontier", *_SECRETS})
            job.clean()
        except ValidationError as error:
            for name, texts in error.message_dict.items():
                for text in texts:
                    self._refuse(entry, "" if name == "__all__" else name, text)
            return True
        return False

    def _refuse(self, entry: JobEntry, name: str, text: str) -> None:
        self._plan.problems.append(entry.problem(name, text))
