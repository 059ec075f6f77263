"""Filters of the lists of re-balances and sample pages."""

from __future__ import annotations

from typing import Any, ClassVar

import django_filters
from django import forms

from apps.access.api.filters import FilterSet
from apps.requeststore.models import Rebalance, SamplePage


class IdFilter(django_filters.NumberFilter):
    """Filter by the ID of a related row, limited to what a database column can hold."""

    field_class = forms.IntegerField

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": 1, "max_value": 2**63 - 1} | kwargs)


class RebalanceFilter(FilterSet):
    """Filter ``?project=7&biz=news&state=running``."""

    project = IdFilter(field_name="project_id")

    class Meta:
        model = Rebalance
        fields: ClassVar = ["project", "biz", "state"]


class SamplePageFilter(FilterSet):
    """Filter ``?project=7&biz=news&rule=article``."""

    project = IdFilter(field_name="project_id")

    class Meta:
        model = SamplePage
        fields: ClassVar = ["project", "biz", "rule"]
