"""Filters of dead letters, outbox messages and daemons."""

from __future__ import annotations

from typing import ClassVar

from django.db.models import QuerySet

from apps.access.api.filters import BooleanFilter, FilterSet
from apps.runtime.models import Daemon, DeadLetter, OutboxMessage


class DeadLetterFilter(FilterSet):
    """Filter by state, queue and message ID."""

    class Meta:
        model = DeadLetter
        fields: ClassVar = ["state", "queue", "message_id"]


class OutboxFilter(FilterSet):
    """Filter by target and message ID; ``failed`` selects messages with a failed attempt."""

    failed = BooleanFilter(method="with_error")

    def with_error(
        self, rows: QuerySet[OutboxMessage], _name: str, failed: bool
    ) -> QuerySet[OutboxMessage]:
        """Select messages with or without an error."""
        return rows.exclude(error="") if failed else rows.filter(error="")

    class Meta:
        model = OutboxMessage
        fields: ClassVar = ["exchange", "key", "message_id"]


class DaemonFilter(FilterSet):
    """Filter by kind, name, host and reported state."""

    class Meta:
        model = Daemon
        fields: ClassVar = ["kind", "name", "host", "state"]
