"""Filter classes for lists, and the filters of access."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar, Final

import django_filters
from django import forms
from django.core.exceptions import ValidationError
from django.db.models import BooleanField, Q, QuerySet
from django_filters.fields import IsoDateTimeField
from django_filters.rest_framework import DjangoFilterBackend
from django_filters.rest_framework.filterset import FILTER_FOR_DBFIELD_DEFAULTS
from rest_framework.serializers import BooleanField as TruthOfSerializers

from apps.access.models import AuditRecord, Membership, SavedFilter

_SAYS_NEITHER = TruthOfSerializers.default_error_messages["invalid"]


class MomentField(IsoDateTimeField):
    """Time converted to UTC: databases reject some offsets that ISO 8601 allows."""

    def to_python(self, value: Any) -> datetime | None:
        """Raise ``ValidationError`` for text that is not a time, or a time outside the calendar."""
        moment: datetime | None = super().to_python(value)
        try:
            return moment.astimezone(UTC) if moment else None
        except OverflowError as error:
            raise ValidationError(self.error_messages["invalid"], code="invalid") from error


class MomentFilter(django_filters.IsoDateTimeFilter):
    """Filters by a ``MomentField``."""

    field_class = MomentField


class IdFilter(django_filters.NumberFilter):
    """Filter by a related id; rejects values beyond 64 bits."""

    field_class = forms.IntegerField

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": 1, "max_value": 2**63 - 1} | kwargs)


class TruthField(forms.Field):
    """``true`` or ``false``. Django's own field ignores any other value without an error."""

    _MEANINGS: Final = {"true": True, "1": True, "false": False, "0": False}

    def to_python(self, value: Any) -> bool | None:
        """Parse the value. Raises ``ValidationError``."""
        if value in self.empty_values:
            return None
        meaning = self._MEANINGS.get(str(value).lower())
        if meaning is None:
            raise ValidationError(_SAYS_NEITHER, code="invalid")
        return meaning


class BooleanFilter(django_filters.BooleanFilter):
    """Filters by a ``TruthField``."""

    field_class = TruthField


class FilterSet(django_filters.FilterSet):
    """Filter set that uses ``BooleanFilter`` for boolean fields."""

    FILTER_DEFAULTS: ClassVar = {
        **FILTER_FOR_DBFIELD_DEFAULTS,
        BooleanField: {"filter_class": BooleanFilter},
    }


class FilterBackend(DjangoFilterBackend):
    """Filter backend that uses this ``FilterSet`` for views with ``filterset_fields``."""

    filterset_base = FilterSet


class AuditFilter(FilterSet):
    """Filters by object, actor, action, project and time; ``text`` searches names and notes."""

    at_from = MomentFilter(field_name="at", lookup_expr="gte")
    at_to = MomentFilter(field_name="at", lookup_expr="lt")
    actor = django_filters.CharFilter(field_name="actor_label")
    project = django_filters.NumberFilter(field_name="project_id", min_value=1)
    text = django_filters.CharFilter(method="with_text", max_length=200)

    def with_text(
        self, rows: QuerySet[AuditRecord], _name: str, text: str
    ) -> QuerySet[AuditRecord]:
        """Records whose object, actor, action or note contains the text."""
        condition = Q()
        for field_name in ("object_label", "actor_label", "action", "note"):
            condition |= Q(**{f"{field_name}__icontains": text})
        return rows.filter(condition)

    class Meta:
        model = AuditRecord
        fields: ClassVar = ["object_type", "object_id", "action", "request_id"]


class MembershipFilter(FilterSet):
    project = django_filters.NumberFilter(field_name="project_id", min_value=1)
    user = django_filters.CharFilter(field_name="user__username")

    class Meta:
        model = Membership
        fields: ClassVar = ["role"]


class SavedFilterFilter(FilterSet):
    class Meta:
        model = SavedFilter
        fields: ClassVar = ["path"]
