"""Filters of the machinery."""

from __future__ import annotations

from typing import ClassVar

from django.db.models import QuerySet

from apps.access.api.filters import BooleanFilter, FilterSet
from apps.runtime.models import Daemon, DeadLetter, OutboxMessage


class DeadLetterFilter(FilterSet):
    """By state, queue and message."""

    class Meta:
        model = DeadLetter
        fields: ClassVar = ["state", "queue", "message_id"]


class OutboxFilter(FilterSet):
    """By target and message; ``failed``: those that could not be sent yet."""

    failed = BooleanFilter(method="with_error")

    def with_error(
        self, rows: QuerySet[OutboxMessage], _name: str, failed: bool
    ) -> QuerySet[OutboxMessage]:
        """Those with an error, or those without."""
        return rows.exclude(error="") if failed else rows.filter(error="")

    class Meta:
        model = OutboxMessage
        fields: ClassVar = ["exchange", "key", "message_id"]


class DaemonFilter(FilterSet):
    """By kind, host and what was said last."""

    class Meta:
        model = Daemon
        fields: ClassVar = ["kind", "name", "host", "state"]
