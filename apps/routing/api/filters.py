"""Filters of ``GET /routing/items``."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import django_filters
from django.utils.translation import gettext_lazy as _

from apps.access.api.filters import BooleanFilter, FilterSet, IdFilter, MomentFilter
from apps.routing.models import RoutedItem
from apps.routing.queries import list_items
from apps.routing.querysets import RESUBMITTABLE
from apps.routing.states import ItemState


class RoutedItemFilter(FilterSet):
    """Filter of items, such as ``?project=1&state=failed&state=expired&outbound=captcha``."""

    project = IdFilter(field_name="project_id")
    state = django_filters.MultipleChoiceFilter(choices=ItemState.choices, distinct=False)
    task_uuid = django_filters.UUIDFilter()
    inbound = django_filters.CharFilter(help_text=_("Exact name."))
    outbound = django_filters.CharFilter(help_text=_("Exact name."))
    since = MomentFilter(method="by_since", help_text=_("Received at this time or later."))
    until = MomentFilter(method="by_until", help_text=_("Received before this time."))
    dead = BooleanFilter(
        method="by_dead", help_text=_("Ended without success, and not submitted again.")
    )

    class Meta:
        model = RoutedItem
        fields: ClassVar = ["project", "state", "task_uuid", "inbound", "outbound", "reason"]

    def by_since(self, rows: Any, name: str, value: datetime) -> Any:
        """Items received at ``value`` or later."""
        return list_items(rows, since=value)

    def by_until(self, rows: Any, name: str, value: datetime) -> Any:
        """Items received before ``value``."""
        return list_items(rows, until=value)

    def by_dead(self, rows: Any, name: str, value: bool) -> Any:
        """Dead letters (true), or all other items (false)."""
        if value:
            return rows.dead_letters()
        return rows.exclude(state__in=RESUBMITTABLE, replaced_by__isnull=True)
