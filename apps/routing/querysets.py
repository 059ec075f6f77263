"""Named filters of routed items and value pages."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Generic, Self

from django.db.models import BinaryField, F, Func, IntegerField, Value
from django.db.models.lookups import GreaterThan

from apps.access.querysets import M_co, VisibleQuerySet
from apps.routing.states import ACTIVE, FINAL, ItemState

# Parked items are counted separately.
IN_FLIGHT: Final = ACTIVE - {ItemState.PARKED}
# Final states from which a user may resubmit an item.
RESUBMITTABLE: Final = FINAL - {ItemState.SUCCEEDED}


class RoutedItemQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    project_path = "project"

    def open(self) -> Self:
        """Items that have not ended: in flight or parked."""
        return self.filter(state__in=ACTIVE)

    def due(self, now: datetime) -> Self:
        """Open items whose lease, wait or deadline is over."""
        return self.filter(due_at__lte=now)

    def parked(self, project: int, outbound: str) -> Self:
        """Items parked for an outbound, in order of arrival."""
        return self.filter(project=project, outbound=outbound, state=ItemState.PARKED).order_by(
            "id"
        )

    def dead_letters(self) -> Self:
        """Items that ended without success and were not resubmitted."""
        return self.filter(state__in=RESUBMITTABLE, replaced_by__isnull=True)

    def ended_before(self, cutoff: datetime) -> Self:
        return self.filter(ended_at__lt=cutoff)


class ValuePageQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    project_path = "project"

    def of(self, project: int) -> Self:
        return self.filter(project=project)

    def holding(self, fingerprint: bytes) -> Self:
        """Pages whose items may hold the value of this fingerprint (with false positives)."""
        needle = Value(fingerprint, output_field=BinaryField())
        position = _BytePosition(F("fingerprints"), needle, output_field=IntegerField())
        return self.filter(GreaterThan(position, 0))


class _BytePosition(Func):
    """Position of bytes inside other bytes, counted from 1; 0 when absent."""

    function = "INSTR"

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Render as ``position()``, which PostgreSQL has instead of ``INSTR``."""
        return self.as_sql(compiler, connection, function="pg_catalog.position", **context)
