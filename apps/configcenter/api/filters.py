"""Filters of the lists of configurations, versions and activations."""

from __future__ import annotations

from typing import ClassVar

import django_filters

from apps.access.api.filters import IdFilter
from apps.configcenter.models import Activation, Configuration, ConfigVersion


class ConfigurationFilter(django_filters.FilterSet):
    """``?kind=routing&project=1``."""

    project = IdFilter(field_name="project_id")

    class Meta:
        model = Configuration
        fields: ClassVar = ["kind", "project"]


class VersionFilter(django_filters.FilterSet):
    """``?kind=routing&project=1&number=42``."""

    kind = django_filters.CharFilter(field_name="configuration__kind")
    project = IdFilter(field_name="configuration__project_id")
    number = IdFilter(max_value=2**31 - 1)

    class Meta:
        model = ConfigVersion
        fields: ClassVar = ["kind", "project", "number"]


class ActivationFilter(django_filters.FilterSet):
    """``?kind=routing&project=1``."""

    kind = django_filters.CharFilter(field_name="configuration__kind")
    project = IdFilter(field_name="configuration__project_id")

    class Meta:
        model = Activation
        fields: ClassVar = ["kind", "project"]
