"""Named filters of jobs and runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, Generic, Self

from django.db import connections, models
from django.db.models import BooleanField, F, Func, Q, Value

from apps.access.querysets import (
    LivingManager,
    M_co,
    SeesProjects,
    VisibleQuerySet,
    deleted_rows,
)
from apps.access.states import Role
from apps.jobs.states import ON_A_HOST, RunState

# A host takes a run within seconds.
UNTAKEN_AFTER: Final = timedelta(minutes=5)


class JobQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Jobs."""

    project_path = "project"

    def tagged(self, tag: str) -> Self:
        """Those that carry exactly this tag."""
        if "\x00" in tag:
            # PostgreSQL refuses the question, and no tag can hold it.
            return self.none()
        if connections[self.db].features.supports_json_field_contains:
            return self.filter(tags__contains=[tag])
        return self.filter(_ListHolds(F("tags"), Value(tag)))


class JobManager(LivingManager[M_co].from_queryset(JobQuerySet), Generic[M_co]):  # type: ignore[misc]
    """Without deleted jobs, and without those of deleted projects."""

    def get_queryset(self) -> Any:
        """Rows that may run."""
        # A subquery: who locks a job must not lock the project that a join would bring in.
        rows = super().get_queryset()
        return rows.exclude(project__in=deleted_rows(self.model, "project"))


class _ListHolds(Func):
    """Whether a JSON list has this text, where the database (SQLite) knows no such question."""

    template = "EXISTS (SELECT 1 FROM json_each(%(expressions)s))"
    arg_joiner = ") WHERE (value = "
    output_field = BooleanField()


class RunQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Runs.

    Which of them a person sees is said by their jobs, not by a join with these: there may be
    millions, and whoever sees few of them finds the newest by the index of jobs.
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
        # The stubs allow for fields without a remote one; a foreign key has it.
        return self.model._meta.get_field("job").remote_field.model._base_manager.order_by()  # type: ignore[union-attr]

    def active(self) -> Self:
        """Not ended yet; said by their end, by which they are found among millions."""
        return self.filter(ended_at__isnull=True)

    def ended(self) -> Self:
        """In a final state; said by their end, by which the newest are found."""
        return self.filter(ended_at__isnull=False)

    def waiting(self) -> Self:
        """No host has begun these yet, in the order in which they shall get a place."""
        return self.filter(state=RunState.QUEUED).order_by("-priority", "id")

    def untaken(self, now: datetime) -> Self:
        """Those that could have a host for long and have none, the oldest first.

        One that waits for another run, or for its time, is not late.
        """
        since = now - UNTAKEN_AFTER
        rows = self.filter(state=RunState.QUEUED, waits_for=None, created_at__lt=since)
        return rows.exclude(not_before__gt=since).order_by("pk")

    def lock_free(self) -> Self:
        """Lock the rows that no other transaction has locked, and leave out the others.

        SQLite has one writer at a time and no row locks.
        """
        if connections[self.db].features.has_select_for_update_skip_locked:
            return self.select_for_update(skip_locked=True, of=("self",))
        return self

    def on_host(self, host: str) -> Self:
        """What ``host`` must have a process for."""
        return self.filter(host=host, state__in=ON_A_HOST)

    def stale(self, *, now: datetime, lease_seconds: float) -> Self:
        """On a host that has not said for ``lease_seconds`` that it still watches them."""
        return self.filter(
            state__in=ON_A_HOST, watched_at__lt=now - timedelta(seconds=lease_seconds)
        )


class JobLinkQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Links between jobs belong to the project of the job that follows."""

    project_path = "job__project"
    hidden_with = ("job", "after")


class PlannedRunQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Planned runs."""

    project_path = "schedule__job__project"
    hidden_with = ("schedule__job",)
