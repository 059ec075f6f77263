"""What a spider needs of pools, wherever they are."""

from __future__ import annotations

from typing import Protocol

from yardkit.protocol import LeasedResource, ResourceOutcome


class Pools(Protocol):
    """The pools of one project, for one run.

    Every call may raise ``yardkit.seeds.SeedServiceAway`` and ``CallRefused``.
    """

    async def lease(self, pool: str, *, seconds: float) -> LeasedResource:
        """One, at once. Raises ``yardkit.resources.NoResource`` while none is free."""

    async def give_back(self, leased: LeasedResource, outcome: ResourceOutcome, reason: str) -> str:
        """End a lease: "returned", or "late" where it was over."""

    async def close(self) -> None:
        """No call follows."""
