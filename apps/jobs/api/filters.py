"""Filters of the REST lists of jobs, runs and hosts."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import django_filters
from django.utils.translation import gettext_lazy as _

from apps.access.api.filters import BooleanFilter, FilterSet, IdFilter, MomentFilter
from apps.jobs.models import Host, Job, JobLink, PlannedRun, Run
from apps.jobs.states import HostKind, HostMode, PlanOutcome, RunState, Trigger

# Margin of IDs: concurrent inserts may commit IDs out of order of their time.
AT_ONE_MOMENT: Final = 1000


class JobFilter(FilterSet):
    """Filter of jobs, such as ``?project=1&name=news&tag=daily&image=7&has_cron=true``."""

    project = IdFilter(field_name="project_id")
    name = django_filters.CharFilter(lookup_expr="icontains")
    tag = django_filters.CharFilter(method="by_tag", help_text=_("Exact match."))
    image = IdFilter(field_name="image_id")
    has_cron = BooleanFilter(method="by_cron")

    class Meta:
        model = Job
        fields = ["project", "enabled", "name"]

    def by_tag(self, jobs: Any, name: str, value: str) -> Any:
        """Filter jobs by an exact tag."""
        return jobs.tagged(value)

    def by_cron(self, jobs: Any, name: str, value: bool) -> Any:
        """Filter jobs with (true) or without (false) a cron expression."""
        return jobs.exclude(cron="") if value else jobs.filter(cron="")


class RunFilter(FilterSet):
    """Filter of runs, such as ``?job=1&state=failed&state=lost&host=box-1&since=2026-03-01``."""

    job = IdFilter(field_name="job_id")
    project = IdFilter(field_name="job__project_id")
    state = django_filters.MultipleChoiceFilter(choices=RunState.choices, distinct=False)
    trigger = django_filters.MultipleChoiceFilter(choices=Trigger.choices, distinct=False)
    host = django_filters.CharFilter(help_text=_("Exact match."))
    since = MomentFilter(method="by_since", help_text=_("Queued at this time or later."))

    class Meta:
        model = Run
        fields = ["job", "project", "state", "trigger", "host"]

    def by_since(self, runs: Any, name: str, value: datetime) -> Any:
        """Filter by time, and by a lower bound of the ID, which lists are sorted by.

        IDs ascend with the time, except for rows that are inserted concurrently; see
        ``AT_ONE_MOMENT``.
        """
        earliest = Run.objects.filter(created_at__gte=value).order_by("created_at", "id")
        lowest = min(earliest.values_list("pk", flat=True)[:AT_ONE_MOMENT], default=None)
        if lowest is None:
            return runs.none()
        return runs.filter(created_at__gte=value, pk__gte=lowest)


class PlannedRunFilter(FilterSet):
    """Filter of planned runs, such as ``?job=1&outcome=missed&outcome=skipped``."""

    project = IdFilter(field_name="schedule__job__project_id")
    job = IdFilter(field_name="schedule__job_id")
    outcome = django_filters.MultipleChoiceFilter(choices=PlanOutcome.choices, distinct=False)
    planned_from = django_filters.IsoDateTimeFilter(field_name="planned_at", lookup_expr="gte")
    planned_to = django_filters.IsoDateTimeFilter(field_name="planned_at", lookup_expr="lt")

    class Meta:
        model = PlannedRun
        fields = ["project", "job", "outcome", "planned_from", "planned_to"]


class JobLinkFilter(FilterSet):
    """Filter of links, such as ``?job=1&after_job=2&condition=failed``.

    The parameter is not named ``after``, which is the cursor of the list's pages.
    """

    project = IdFilter(field_name="job__project_id")
    job = IdFilter(field_name="job_id")
    after_job = IdFilter(field_name="after_id")

    class Meta:
        model = JobLink
        fields = ["project", "job", "after_job", "condition"]


class RunHostFilter(FilterSet):
    """Filter of hosts, such as ``?kind=docker&mode=draining``."""

    kind = django_filters.ChoiceFilter(choices=HostKind.choices)
    mode = django_filters.MultipleChoiceFilter(choices=HostMode.choices, distinct=False)

    class Meta:
        model = Host
        fields = ["kind", "mode", "name"]
