"""Filters of the REST lists of counters."""

from __future__ import annotations

from typing import Any

import django_filters
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from apps.access.api.filters import FilterSet, IdFilter
from apps.queuestats.models import RunStats
from apps.queuestats.querysets import StatCondition


class StatField(django_filters.CharFilter.field_class):
    """A condition such as ``retry/count>10``."""

    def clean(self, value: Any) -> StatCondition | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            return StatCondition.parse(text)
        except ValueError as error:
            raise ValidationError(str(error)) from error


class StatFilter(django_filters.CharFilter):
    """Filters by the value of one statistic."""

    field_class = StatField


class RunStatsFilter(FilterSet):
    """Filter of statistics, such as ``?job=1&stat=finish_reason=shutdown``."""

    job = IdFilter(field_name="run__job_id")
    project = IdFilter(field_name="project_id")
    stat = StatFilter(
        method="by_stat", help_text=_("A name, or name, operator (=, !=, <, <=, >, >=) and value.")
    )

    class Meta:
        model = RunStats
        fields = ["job", "project", "stat"]

    def by_stat(self, rows: Any, name: str, value: StatCondition) -> Any:
        """Filter by a condition on one statistic."""
        return rows.where(value)
