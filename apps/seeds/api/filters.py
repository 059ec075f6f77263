"""Filters of the lists of frontiers and operations."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
from django import forms

from apps.seeds.models import Frontier, Operation


class IdFilter(django_filters.NumberFilter):
    """By the id of something related: whole, and of a size that a database can compare with."""

    field_class = forms.IntegerField

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": 1, "max_value": 2**63 - 1} | kwargs)


class FrontierFilter(django_filters.FilterSet):
    """``?project=1&name=news&is_paused=true``."""

    project = IdFilter(field_name="project_id")
    name = django_filters.CharFilter(lookup_expr="icontains")

    class Meta:
        model = Frontier
        fields: ClassVar = ["project", "name", "is_paused", "is_frozen"]


class OperationFilter(django_filters.FilterSet):
    """``?frontier=7&kind=move&state=running``."""

    project = IdFilter(field_name="frontier__project_id")
    frontier = IdFilter(field_name="frontier_id")

    class Meta:
        model = Operation
        fields: ClassVar = ["project", "frontier", "kind", "state"]
