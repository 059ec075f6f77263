"""Row leases: claimed, renewed and released under a fencing token."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Generic, Self, TypeVar

from django.db.models import F, Model, QuerySet

M_co = TypeVar("M_co", bound=Model, covariant=True)


class LeasedQuerySet(QuerySet[M_co], Generic[M_co]):
    """Base of querysets whose rows are leased by one process at a time.

    The generation is the fencing token: each claim increments it, and later writes of the holder
    name it, so that a holder whose lease has expired changes nothing. A subclass names the columns
    of the lease; ``lease_owner`` is "" if there is no owner column.

    Rows whose holder is judged by the age of its heartbeat (runs, builds, operations on seeds,
    re-balances), and rows claimed many at a time (outbox, routed tasks, records), have other rules.
    """

    lease_until: ClassVar[str] = "leased_until"
    lease_generation: ClassVar[str] = "generation"
    lease_owner: ClassVar[str] = "owner"

    def expired(self, now: datetime) -> Self:
        """Rows whose lease has ended without a release."""
        return self.filter(**{f"{self.lease_until}__lte": now})

    def held(self, pk: int, generation: int) -> Self:
        """The row while this generation is the latest claim; empty afterwards."""
        return self.filter(pk=pk, **{self.lease_generation: generation})

    def claim(
        self, pk: int, generation: int, *, until: datetime, owner: str = "", **changes: Any
    ) -> int | None:
        """Claim one row of this queryset, as last read with ``generation``.

        Return the new generation; None if another process was faster or the row has left the
        queryset. ``changes`` are further columns to set.
        """
        if self.lease_owner:
            changes[self.lease_owner] = owner
        changes[self.lease_until] = until
        changes[self.lease_generation] = F(self.lease_generation) + 1
        return generation + 1 if self.held(pk, generation).update(**changes) else None

    def renew(self, *, until: datetime, **changes: Any) -> bool:
        """Extend the lease of a ``held`` row; False if another process has claimed it."""
        return bool(self.update(**{self.lease_until: until}, **changes))

    def release(self, *, until: datetime | None = None, **changes: Any) -> bool:
        """End the lease of a ``held`` row; False if another process has claimed it.

        ``until`` is the column's value for a free row; now, if the column is not nullable.
        """
        if self.lease_owner:
            changes.setdefault(self.lease_owner, "")
        return bool(self.update(**{self.lease_until: until}, **changes))


class WorkerLeaseQuerySet(LeasedQuerySet[M_co], Generic[M_co]):
    """Leases of worker numbers, each held by one process at a time; a release keeps the owner."""

    lease_until = "expires_at"
