"""Named filters of routed items."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Generic, Self

from django.db.models import BinaryField, F, Func, IntegerField, Value
from django.db.models.lookups import GreaterThan

from apps.access.querysets import M_co, VisibleQuerySet
from apps.routing.states import ACTIVE, FINAL, ItemState

# A parked item is counted apart from those in flight.
IN_FLIGHT: Final = ACTIVE - {ItemState.PARKED}
# What a person may want to look at, edit and submit again.
RESUBMITTABLE: Final = FINAL - {ItemState.SUCCEEDED}


class RoutedItemQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Routed items."""

    project_path = "project"

    def open(self) -> Self:
        """Not ended: in flight or parked."""
        return self.filter(state__in=ACTIVE)

    def due(self, now: datetime) -> Self:
        """Open, and somebody must look at them: a lease, a wait or a deadline is over."""
        return self.filter(due_at__lte=now)

    def parked(self, project: int, outbound: str) -> Self:
        """Waiting for this outbound, in the order in which they shall be offered to it."""
        return self.filter(project=project, outbound=outbound, state=ItemState.PARKED).order_by(
            "id"
        )

    def dead_letters(self) -> Self:
        """Ended without success, and no other item stands for them."""
        return self.filter(state__in=RESUBMITTABLE, replaced_by__isnull=True)

    def ended_before(self, cutoff: datetime) -> Self:
        """Ended so long ago."""
        return self.filter(ended_at__lt=cutoff)


class ValuePageQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Pages of fingerprints."""

    project_path = "project"

    def of(self, project: int) -> Self:
        """Those of one project."""
        return self.filter(project=project)

    def holding(self, fingerprint: bytes) -> Self:
        """Those whose items may hold the value of this fingerprint."""
        needle = Value(fingerprint, output_field=BinaryField())
        place = _Place(F("fingerprints"), needle, output_field=IntegerField())
        return self.filter(GreaterThan(place, 0))


class _Place(Func):
    """Where bytes stand inside others, from 1; 0 is nowhere."""

    function = "INSTR"

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """The same by its name there."""
        return self.as_sql(compiler, connection, function="pg_catalog.position", **context)
