"""Filters of the lists of configurations, versions and activations."""

from __future__ import annotations

from typing import ClassVar

import django_filters

from apps.access.api.filters import BooleanFilter, FilterSet, IdFilter
from apps.configcenter.models import Activation, Configuration, ConfigVersion


class ConfigurationFilter(FilterSet):
    """``?kind=routing&project=1``; ``?platform=true`` selects rows without a project."""

    project = IdFilter(field_name="project_id")
    platform = BooleanFilter(field_name="project", lookup_expr="isnull")

    class Meta:
        model = Configuration
        fields: ClassVar = ["kind", "project"]


class VersionFilter(FilterSet):
    """``?kind=routing&project=1&number=42``; ``?platform=true`` selects rows without a project."""

    kind = django_filters.CharFilter(field_name="configuration__kind")
    project = IdFilter(field_name="configuration__project_id")
    platform = BooleanFilter(field_name="configuration__project", lookup_expr="isnull")
    number = IdFilter(max_value=2**31 - 1)

    class Meta:
        model = ConfigVersion
        fields: ClassVar = ["kind", "project", "number"]


class ActivationFilter(FilterSet):
    """``?kind=routing&project=1``; ``?platform=true`` selects rows without a project."""

    kind = django_filters.CharFilter(field_name="configuration__kind")
    project = IdFilter(field_name="configuration__project_id")
    platform = BooleanFilter(field_name="configuration__project", lookup_expr="isnull")

    class Meta:
        model = Activation
        fields: ClassVar = ["kind", "project"]
