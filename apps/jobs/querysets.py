"""Query sets of jobs, runs, links and planned runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, Generic, Self

from django.db import connections, models
from django.db.models import BooleanField, F, Func, Q, Value

from apps.access.querysets import LivingManager, M_co, SeesProjects, VisibleQuerySet, deleted_rows
from apps.access.states import Role
from apps.jobs.states import ON_A_HOST, RunState

# Hosts normally claim a run within seconds; a run that waits longer is reported.
UNTAKEN_AFTER: Final = timedelta(minutes=5)


class JobQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Query set of jobs."""

    project_path = "project"

    def tagged(self, tag: str) -> Self:
        """Filter jobs that have exactly this tag."""
        if "\x00" in tag:
            # PostgreSQL rejects NUL in a query; no tag contains it.
            return self.none()
        if connections[self.db].features.supports_json_field_contains:
            return self.filter(tags__contains=[tag])
        return self.filter(_ListHolds(F("tags"), Value(tag)))


class JobManager(LivingManager[M_co].from_queryset(JobQuerySet), Generic[M_co]):  # type: ignore[misc]
    """Manager without deleted jobs and without jobs of deleted projects."""

    def get_queryset(self) -> Any:
        """Return jobs that are not deleted and whose project is not deleted."""
        # A subquery instead of a join: locking a job must not lock its project.
        rows = super().get_queryset()
        return rows.exclude(project__in=deleted_rows(self.model, "project"))


class ImageTrialQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Query set of trials of images."""

    project_path = "job__project"


class _ListHolds(Func):
    """SQL condition for SQLite: a JSON list contains a text."""

    template = "EXISTS (SELECT 1 FROM json_each(%(expressions)s))"
    arg_joiner = ") WHERE (value = "
    output_field = BooleanField()


class RunQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Query set of runs.

    Visibility is a condition on the job instead of a join: there may be millions of runs, and the
    index on the job finds the newest runs of few jobs.
    """

    project_path = "job__project"

    def _seen_by(self, person: SeesProjects, at_least: Role) -> Q:
        seen = person.project_q("project", at_least=at_least)
        return Q(job__in=self._jobs().filter(seen).values("pk")) if seen else seen

    def _hidden(self) -> Q:
        jobs = self._jobs()
        hidden = Q(deleted_at__isnull=False) | Q(project__in=deleted_rows(jobs.model, "project"))
        return Q(job__in=jobs.filter(hidden).values("pk"))

    def _jobs(self) -> models.QuerySet[Any]:
        # The stubs allow for fields without a remote field; a foreign key has one.
        return self.model._meta.get_field("job").remote_field.model._base_manager.order_by()  # type: ignore[union-attr]

    def active(self) -> Self:
        """Filter runs that have not ended, by ``ended_at``, which has an index."""
        return self.filter(ended_at__isnull=True)

    def ended(self) -> Self:
        """Filter runs that have ended, by ``ended_at``, which has an index."""
        return self.filter(ended_at__isnull=False)

    def live(self) -> Self:
        """Filter runs that read sites, not the kept pages of an earlier run."""
        return self.filter(replay_of=None)

    def waiting(self) -> Self:
        """Filter queued runs, in order of placement."""
        return self.filter(state=RunState.QUEUED).order_by("-priority", "id")

    def untaken(self, now: datetime) -> Self:
        """Filter queued runs that have waited too long for a host, oldest first.

        Runs that wait for another run, or for their time, are excluded.
        """
        since = now - UNTAKEN_AFTER
        rows = self.filter(state=RunState.QUEUED, waits_for=None, created_at__lt=since)
        return rows.exclude(not_before__gt=since).order_by("pk")

    def lock_free(self) -> Self:
        """Lock the rows, skipping rows that are locked by other transactions.

        No effect on SQLite, which has one writer at a time and no row locks.
        """
        if connections[self.db].features.has_select_for_update_skip_locked:
            return self.select_for_update(skip_locked=True, of=("self",))
        return self

    def on_host(self, host: str) -> Self:
        """Filter runs that should have a process or container on ``host``."""
        return self.filter(host=host, state__in=ON_A_HOST)

    def stale(self, *, now: datetime, lease_seconds: float) -> Self:
        """Filter runs whose host has not renewed their lease for ``lease_seconds``."""
        return self.filter(
            state__in=ON_A_HOST, watched_at__lt=now - timedelta(seconds=lease_seconds)
        )


class JobLinkQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Query set of links; a link belongs to the project of the following job."""

    project_path = "job__project"
    hidden_with = ("job", "after")


class PlannedRunQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Query set of planned runs."""

    project_path = "schedule__job__project"
    hidden_with = ("schedule__job",)
