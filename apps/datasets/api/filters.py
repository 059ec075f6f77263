"""Filters of datasets."""

from __future__ import annotations

from typing import ClassVar

import django_filters

from apps.access.api.filters import FilterSet, IdFilter
from apps.datasets.models import Dataset
from apps.datasets.states import Origin


class DatasetFilter(FilterSet):
    """Filter of datasets by project, origin and exact name."""

    project = IdFilter(field_name="project_id")
    origin = django_filters.ChoiceFilter(choices=Origin.choices)
    origin_id = IdFilter(field_name="origin_id", label="ID of the job that writes it.")

    class Meta:
        model = Dataset
        fields: ClassVar = ["name"]
