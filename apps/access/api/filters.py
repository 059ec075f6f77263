"""Filters of the audit trail."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

import django_filters
from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django_filters.fields import IsoDateTimeField

from apps.access.models import AuditRecord, Membership, SavedFilter


class MomentField(IsoDateTimeField):
    """A moment in UTC: databases refuse offsets that ISO 8601 allows."""

    def to_python(self, value: Any) -> datetime | None:
        """Raises ``ValidationError`` for what is none, or lies outside the calendar."""
        moment: datetime | None = super().to_python(value)
        try:
            return moment.astimezone(UTC) if moment else None
        except OverflowError as error:
            raise ValidationError(self.error_messages["invalid"], code="invalid") from error


class MomentFilter(django_filters.IsoDateTimeFilter):
    """Filters by a ``MomentField``."""

    field_class = MomentField


class IdFilter(django_filters.NumberFilter):
    """By the id of something related: whole, and of a size that a database can compare with."""

    field_class = forms.IntegerField

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": 1, "max_value": 2**63 - 1} | kwargs)


class AuditFilter(django_filters.FilterSet):
    """By object, person, action, project and time; ``text`` is looked for in names and notes."""

    at_from = MomentFilter(field_name="at", lookup_expr="gte")
    at_to = MomentFilter(field_name="at", lookup_expr="lt")
    actor = django_filters.CharFilter(field_name="actor_label")
    project = django_filters.NumberFilter(field_name="project_id", min_value=1)
    text = django_filters.CharFilter(method="with_text", max_length=200)

    def with_text(
        self, rows: QuerySet[AuditRecord], _name: str, text: str
    ) -> QuerySet[AuditRecord]:
        """Those whose object, person, action or note has it."""
        found = Q()
        for each in ("object_label", "actor_label", "action", "note"):
            found |= Q(**{f"{each}__icontains": text})
        return rows.filter(found)

    class Meta:
        model = AuditRecord
        fields: ClassVar = ["object_type", "object_id", "action", "request_id"]


class MembershipFilter(django_filters.FilterSet):
    """By project, person, role."""

    project = django_filters.NumberFilter(field_name="project_id", min_value=1)
    user = django_filters.CharFilter(field_name="user__username")

    class Meta:
        model = Membership
        fields: ClassVar = ["role"]


class SavedFilterFilter(django_filters.FilterSet):
    """By page."""

    class Meta:
        model = SavedFilter
        fields: ClassVar = ["path"]
