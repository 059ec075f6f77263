"""Filters of the lists of frontiers and operations."""

from __future__ import annotations

from typing import ClassVar

import django_filters

from apps.access.api.filters import FilterSet, IdFilter
from apps.seeds.models import Frontier, Operation


class FrontierFilter(FilterSet):
    """Filter of frontiers, such as ``?project=1&name=news&is_paused=true``."""

    project = IdFilter(field_name="project_id")
    name = django_filters.CharFilter(lookup_expr="icontains")

    class Meta:
        model = Frontier
        fields: ClassVar = ["project", "name", "is_paused", "is_frozen"]


class OperationFilter(FilterSet):
    """Filter of operations, such as ``?frontier=7&kind=move&state=running``."""

    project = IdFilter(field_name="frontier__project_id")
    frontier = IdFilter(field_name="frontier_id")

    class Meta:
        model = Operation
        fields: ClassVar = ["project", "frontier", "kind", "state"]
