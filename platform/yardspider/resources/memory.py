"""Resource pools in memory, for tests and local runs: round robin."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from yardkit.protocol import LeasedResource, ResourceOutcome
from yardkit.resources import NoResource
from yardkit.seeds import CallRefused

# Deadline of a lease in memory: the year 2100, so as long as the run.
_UNTIL: Final = 4_102_444_800_000


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a resource, and its result."""

    pool: str
    name: str
    outcome: ResourceOutcome
    reason: str = ""


class MemoryPools:
    """Pools as mappings from names to secrets; ``uses`` records the result of each lease."""

    def __init__(self, pools: Mapping[str, Mapping[str, Mapping[str, str] | str]]) -> None:
        self._secrets = {
            pool: {
                name: {"secret": secret} if isinstance(secret, str) else dict(secret)
                for name, secret in resources.items()
            }
            for pool, resources in pools.items()
        }
        self._free = {pool: deque(resources) for pool, resources in self._secrets.items()}
        self._leases = 0
        self.uses: list[Use] = []

    async def lease(self, pool: str, *, seconds: float) -> LeasedResource:
        if pool not in self._free:
            raise CallRefused("unknown_pool", f"this run has no pool {pool!r}")
        if not self._free[pool]:
            raise NoResource(pool, None)
        name = self._free[pool].popleft()
        self._leases += 1
        return LeasedResource(
            id=self._leases,
            pool=pool,
            name=name,
            lease=1,
            until=_UNTIL,
            secret=dict(self._secrets[pool][name]),
        )

    async def give_back(self, leased: LeasedResource, outcome: ResourceOutcome, reason: str) -> str:
        self.uses.append(Use(leased.pool, leased.name, outcome, reason))
        if outcome is not ResourceOutcome.BAN:
            self._free[leased.pool].append(leased.name)
        return "returned"

    async def close(self) -> None:
        pass
