"""``self.resources``: what a spider leases from shared pools, such as accounts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final

from yardkit.protocol import LeasedResource, ResourceOutcome
from yardkit.resources import NoResource
from yardkit.seeds import CallRefused, SeedServiceAway
from yardspider.errors import RunFailed
from yardspider.resources.port import Pools

log = logging.getLogger("yardspider")

WAIT_SECONDS: Final = 60.0
# A resource may become free before the announced time.
_LOOK_AGAIN_SECONDS: Final = 2.0
_SOONEST_SECONDS: Final = 0.05
NO_POOLS: Final = "this run has no resource pools; start it as a job, or give a test its resources"
# Refusals that no retry mends.
_FATAL: Final = frozenset({"unknown_pool", "wrong_token"})


class HeldResource:
    """One resource leased to this run until its ``async with`` ends.

    ``name`` is for people; ``secret`` has what is needed to use it, also as ``held["user"]``.
    """

    def __init__(self, leased: LeasedResource) -> None:
        self._leased = leased
        self._outcome: ResourceOutcome | None = None
        self._reason = ""

    def __repr__(self) -> str:
        return f"HeldResource({self.pool!r}, {self.name!r})"

    @property
    def pool(self) -> str:
        """Name of its pool."""
        return self._leased.pool

    @property
    def name(self) -> str:
        """Name of the resource in the pool."""
        return self._leased.name

    @property
    def secret(self) -> Mapping[str, str]:
        """Credentials of the resource. Do not log them."""
        return self._leased.secret

    def __getitem__(self, entry: str) -> str:
        return self._leased.secret[entry]

    def ok(self) -> None:
        """Report success, even if the block raises later."""
        self._say(ResourceOutcome.OK, "")

    def failed(self, reason: str = "") -> None:
        """Report a failed use: the score of the resource falls, and it rests for a while."""
        self._say(ResourceOutcome.NOT_OK, reason)

    def ban(self, reason: str = "") -> None:
        """Report that it is useless: it is not leased again until a person releases it."""
        self._say(ResourceOutcome.BAN, reason)

    def unused(self) -> None:
        """Report that it was not used: its score stays."""
        self._say(ResourceOutcome.UNUSED, "")

    def _say(self, outcome: ResourceOutcome, reason: str) -> None:
        self._outcome, self._reason = outcome, reason

    def verdict(self, error: type[BaseException] | None) -> tuple[ResourceOutcome, str]:
        """Return what is reported when the block ends, with or without ``error``."""
        if self._outcome is not None:
            return self._outcome, self._reason
        if error is None:
            return ResourceOutcome.OK, ""
        if not issubclass(error, Exception) or issubclass(error, RunFailed):
            # Cancelled, or the run fails for another reason: not the fault of the resource.
            return ResourceOutcome.UNUSED, ""
        # Its text may contain secrets.
        return ResourceOutcome.NOT_OK, error.__name__


class ResourceLease:
    """Context manager of one lease."""

    def __init__(self, resources: Resources, pool: str, seconds: float, wait: float) -> None:
        self._resources = resources
        self._pool = pool
        self._seconds = seconds
        self._wait = wait
        self._held: HeldResource | None = None

    async def __aenter__(self) -> HeldResource:
        leased = await self._resources.take(self._pool, self._seconds, self._wait)
        self._held = HeldResource(leased)
        return self._held

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._held is not None:
            outcome, reason = self._held.verdict(kind)
            await self._resources.give_back(self._held._leased, outcome, reason)


class Resources:
    """Leases from the pools of the run's project. ::

        async with self.resources.lease("accounts") as account:
            token = await log_in(account["user"], account["password"])

    At the end of the block the resource is given back as successful; when the block raises, as
    failed. ``account.ban("…")`` and the like override this.
    """

    def __init__(self, pools: Pools | None) -> None:
        self._pools = pools
        self._held: dict[tuple[int, int], LeasedResource] = {}
        self._returning: set[asyncio.Task[None]] = set()

    def lease(
        self, pool: str, *, seconds: float = 0.0, wait_seconds: float = WAIT_SECONDS
    ) -> ResourceLease:
        """Lease the best free resource of ``pool`` for ``seconds`` (0: the pool's default).

        ``wait_seconds``: limit of waiting for a free one.

        Entering it raises:
            NoResource: none has become free.
            RunFailed: there is no such pool.
            SeedServiceAway: the platform does not answer.
        """
        return ResourceLease(self, pool, seconds, wait_seconds)

    async def take(self, pool: str, seconds: float, wait_seconds: float) -> LeasedResource:
        """Wait for a lease. Raises as ``lease``."""
        if self._pools is None:
            raise RunFailed(NO_POOLS)
        give_up = time.monotonic() + wait_seconds
        while True:
            try:
                leased = await self._pools.lease(pool, seconds=seconds)
            except CallRefused as refusal:
                if refusal.code in _FATAL:
                    raise RunFailed(f"pool {pool!r}: {refusal}") from refusal
                raise
            except NoResource as none:
                pause = _pause(none.next_at)
                if time.monotonic() + pause > give_up:
                    raise
                await asyncio.sleep(pause)
            else:
                self._held[leased.id, leased.lease] = leased
                return leased

    async def give_back(
        self, leased: LeasedResource, outcome: ResourceOutcome, reason: str
    ) -> None:
        """End a lease; not interrupted when the waiting task is cancelled."""
        if self._held.pop((leased.id, leased.lease), None) is None:
            return
        task = asyncio.create_task(self._give_back(leased, outcome, reason))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)
        await asyncio.shield(task)

    async def _give_back(
        self, leased: LeasedResource, outcome: ResourceOutcome, reason: str
    ) -> None:
        if self._pools is None:
            return
        try:
            code = await self._pools.give_back(leased, outcome, reason)
        except (CallRefused, SeedServiceAway) as error:
            log.warning(
                "%s of pool %s could not be given back, which the platform does when the run has"
                " ended: %s",
                leased.name,
                leased.pool,
                error,
            )
        else:
            if code == "late":
                log.warning("the lease of %s of pool %s was over", leased.name, leased.pool)

    async def finish(self, limit_seconds: float) -> None:
        """Give back what is still leased and close, within ``limit_seconds``."""
        if self._pools is None:
            return
        for leased in list(self._held.values()):
            self._held.pop((leased.id, leased.lease))
            task = asyncio.create_task(self._give_back(leased, ResourceOutcome.UNUSED, ""))
            self._returning.add(task)
        if self._returning:
            await asyncio.wait(self._returning, timeout=limit_seconds)
        for task in self._returning:
            task.cancel()
        await self._pools.close()


def _pause(next_at: int | None) -> float:
    if next_at is None:
        return _LOOK_AGAIN_SECONDS
    return min(_LOOK_AGAIN_SECONDS, max(_SOONEST_SECONDS, next_at / 1000 - time.time()))
