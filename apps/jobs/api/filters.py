"""Filters of the lists of jobs and runs."""

from __future__ import annotations

from typing import Any

import django_filters
from django import forms

from apps.jobs.models import Job, Run
from apps.jobs.states import RunState


class IdFilter(django_filters.NumberFilter):
    """By the id of something related: whole, and of a size that a database can compare with."""

    field_class = forms.IntegerField

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": 1, "max_value": 2**63 - 1} | kwargs)


class JobFilter(django_filters.FilterSet):
    """``?project=1&enabled=true&name=news``."""

    project = IdFilter(field_name="project_id")
    name = django_filters.CharFilter(lookup_expr="icontains")

    class Meta:
        model = Job
        fields = ["project", "enabled", "name"]


class RunFilter(django_filters.FilterSet):
    """``?job=1&project=1&state=failed&state=lost``."""

    job = IdFilter(field_name="job_id")
    project = IdFilter(field_name="job__project_id")
    state = django_filters.MultipleChoiceFilter(choices=RunState.choices)

    class Meta:
        model = Run
        fields = ["job", "project", "state"]
