"""Leases in rows: claimed, renewed and released under a generation that fences late writers."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Generic, Self, TypeVar

from django.db.models import F, Model, Q, QuerySet

M_co = TypeVar("M_co", bound=Model, covariant=True)


class LeasedQuerySet(QuerySet[M_co], Generic[M_co]):
    """Base of the querysets whose rows one process at a time may work on.

    The generation is the fencing token: it rises with every claim, and every later write of the
    holder names the one it got, so that a process which slept through its lease changes nothing.
    A subclass says in which columns the lease is kept; ``lease_owner`` is "" where no owner is.
    """

    lease_until: ClassVar[str] = "leased_until"
    lease_generation: ClassVar[str] = "generation"
    lease_owner: ClassVar[str] = "owner"

    def free(self, now: datetime) -> Self:
        """Rows that no process holds: never leased, released, or past the end of their lease."""
        return self.filter(
            Q(**{f"{self.lease_until}__isnull": True}) | Q(**{f"{self.lease_until}__lte": now})
        )

    def expired(self, now: datetime) -> Self:
        """Rows whose lease has ended without a release."""
        return self.filter(**{f"{self.lease_until}__lte": now})

    def held(self, pk: int, generation: int) -> Self:
        """The row, as long as the claim of this generation is the latest; empty afterwards."""
        return self.filter(pk=pk, **{self.lease_generation: generation})

    def claim(
        self, pk: int, generation: int, *, owner: str, until: datetime, **changes: Any
    ) -> int | None:
        """Claim one row of this queryset, as last seen with ``generation``.

        Returns the new generation; None when another process was quicker, or the row is no longer
        in this queryset. ``changes`` are further columns to set.
        """
        if self.lease_owner:
            changes[self.lease_owner] = owner
        changes[self.lease_until] = until
        changes[self.lease_generation] = F(self.lease_generation) + 1
        return generation + 1 if self.held(pk, generation).update(**changes) else None

    def renew(self, pk: int, generation: int, *, until: datetime, **changes: Any) -> bool:
        """Prolong the lease; False when another process has claimed the row."""
        return bool(self.held(pk, generation).update(**{self.lease_until: until}, **changes))

    def release(
        self, pk: int, generation: int, *, until: datetime | None = None, **changes: Any
    ) -> bool:
        """End the lease; False when another process has claimed the row.

        ``until``: what the column says of a row that is free; the moment of release where it is
        not nullable.
        """
        if self.lease_owner:
            changes.setdefault(self.lease_owner, "")
        return bool(self.held(pk, generation).update(**{self.lease_until: until}, **changes))
