"""Interface of the resource pools of a run."""

from __future__ import annotations

from typing import Protocol

from yardkit.protocol import LeasedResource, ResourceOutcome


class Pools(Protocol):
    """The pools of one project, for one run.

    Every call may raise ``yardkit.seeds.SeedServiceAway`` and ``CallRefused``.
    """

    async def lease(self, pool: str, *, seconds: float) -> LeasedResource:
        """Lease one at once. Raises ``yardkit.resources.NoResource`` while none is free."""

    async def give_back(self, leased: LeasedResource, outcome: ResourceOutcome, reason: str) -> str:
        """End a lease; return "returned", or "late" if it had expired."""

    async def close(self) -> None:
        """Close; no call follows."""
