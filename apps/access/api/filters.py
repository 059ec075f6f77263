"""Filters of the audit trail."""

from __future__ import annotations

from typing import ClassVar

import django_filters

from apps.access.models import AuditRecord, Membership


class AuditFilter(django_filters.FilterSet):
    """By object, person, project and time."""

    at_from = django_filters.IsoDateTimeFilter(field_name="at", lookup_expr="gte")
    at_to = django_filters.IsoDateTimeFilter(field_name="at", lookup_expr="lt")
    actor = django_filters.CharFilter(field_name="actor_label")
    project = django_filters.NumberFilter(field_name="project_id", min_value=1)

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
