"""Filters of the lists of re-balances, re-extractions and sample pages."""

from __future__ import annotations

from typing import ClassVar

from apps.access.api.filters import FilterSet, IdFilter
from apps.requeststore.models import Rebalance, Reextraction, SamplePage


class RebalanceFilter(FilterSet):
    """Filter ``?project=7&biz=news&state=running``."""

    project = IdFilter(field_name="project_id")

    class Meta:
        model = Rebalance
        fields: ClassVar = ["project", "biz", "state"]


class ReextractionFilter(FilterSet):
    """Filter ``?project=7&biz=news&state=running``."""

    project = IdFilter(field_name="project_id")

    class Meta:
        model = Reextraction
        fields: ClassVar = ["project", "biz", "state"]


class SamplePageFilter(FilterSet):
    """Filter ``?project=7&biz=news&rule=article``."""

    project = IdFilter(field_name="project_id")

    class Meta:
        model = SamplePage
        fields: ClassVar = ["project", "biz", "rule"]
