"""Filters of error groups and retention policies."""

from __future__ import annotations

from typing import ClassVar

import django_filters

from apps.access.api.filters import FilterSet, IdFilter, MomentFilter
from apps.joblogs.models import ErrorGroup, LogPolicy
from apps.joblogs.states import GroupState


class ErrorGroupFilter(FilterSet):
    """Filter of error groups by owner, first image and last occurrence."""

    project = IdFilter(field_name="project_id")
    job = IdFilter(field_name="job_id")
    image = IdFilter(field_name="first_image_id", label="First seen in a run of this image.")
    state = django_filters.ChoiceFilter(choices=GroupState.choices)
    seen_from = MomentFilter(field_name="last_at", lookup_expr="gte")
    first_from = MomentFilter(field_name="first_at", lookup_expr="gte")

    class Meta:
        model = ErrorGroup
        fields: ClassVar = ["fingerprint"]


class LogPolicyFilter(FilterSet):
    """Filter of retention policies by project and job."""

    project = IdFilter(field_name="project_id")
    job = IdFilter(field_name="job_id")

    class Meta:
        model = LogPolicy
        fields: ClassVar[list[str]] = []
