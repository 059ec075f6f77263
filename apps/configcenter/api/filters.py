"""Filters of the lists of configurations, versions and activations."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
from django import forms

from apps.configcenter.models import Activation, Configuration, ConfigVersion


class _IdFilter(django_filters.NumberFilter):
    field_class = forms.IntegerField

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": 1, "max_value": 2**63 - 1} | kwargs)


class ConfigurationFilter(django_filters.FilterSet):
    """``?kind=routing&project=1``."""

    project = _IdFilter(field_name="project_id")

    class Meta:
        model = Configuration
        fields: ClassVar = ["kind", "project"]


class VersionFilter(django_filters.FilterSet):
    """``?kind=routing&project=1&number=42``."""

    kind = django_filters.CharFilter(field_name="configuration__kind")
    project = _IdFilter(field_name="configuration__project_id")
    number = _IdFilter(max_value=2**31 - 1)

    class Meta:
        model = ConfigVersion
        fields: ClassVar = ["kind", "project", "number"]


class ActivationFilter(django_filters.FilterSet):
    """``?kind=routing&project=1``."""

    kind = django_filters.CharFilter(field_name="configuration__kind")
    project = _IdFilter(field_name="configuration__project_id")

    class Meta:
        model = Activation
        fields: ClassVar = ["kind", "project"]
