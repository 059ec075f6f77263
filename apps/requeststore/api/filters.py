"""Filters of lists of rows."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
from django import forms

from apps.access.api.filters import FilterSet
from apps.requeststore.models import Rebalance, SamplePage


class IdFilter(django_filters.NumberFilter):
    """By the id of something related: whole, and of a size that a database can compare with."""

    field_class = forms.IntegerField

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": 1, "max_value": 2**63 - 1} | kwargs)


class RebalanceFilter(FilterSet):
    """``?project=7&biz=news&state=running``."""

    project = IdFilter(field_name="project_id")

    class Meta:
        model = Rebalance
        fields: ClassVar = ["project", "biz", "state"]


class SamplePageFilter(FilterSet):
    """``?project=7&biz=news&rule=article``."""

    project = IdFilter(field_name="project_id")

    class Meta:
        model = SamplePage
        fields: ClassVar = ["project", "biz", "rule"]
