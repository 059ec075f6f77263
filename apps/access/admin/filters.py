"""List filters that contain only visible objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from unfold.contrib.filters.admin import RelatedDropdownFilter

from apps.access.querysets import VisibleQuerySet

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin
    from django.db.models import ForeignKey


class VisibleRelatedFilter(RelatedDropdownFilter):
    """Drop-down of related objects, limited to projects that the user may see."""

    def field_choices(
        self, field: ForeignKey[Any, Any], request: HttpRequest, model_admin: ModelAdmin[Any]
    ) -> list[tuple[Any, str]]:
        """``(pk, text)`` of each visible object; one query."""
        rows = field.remote_field.model._default_manager.all()
        if isinstance(rows, VisibleQuerySet):
            rows = rows.visible_to(request.user)
        return [(row.pk, str(row)) for row in rows]
