"""How bizzes share a process, and how a process spares hosts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apps.agents.center.politeness.limits import Defaults, HostRuleLimits, HostRules
from apps.requeststore.daemon.fair_semaphore import FairSemaphore
from apps.requeststore.daemon.host_limits import HostThrottle, pause_of


def test_room_is_shared_by_priority_and_nobody_starves() -> None:
    async def work() -> dict[str, int]:
        room, had = FairSemaphore(4), {"low": 0, "high": 0}

        async def biz(name: str, priority: int) -> None:
            while sum(had.values()) < 4000:
                got = await room.get(name, 4, priority=priority)
                had[name] += got
                await asyncio.sleep(0)
                room.put(got)

        await asyncio.gather(
            *(biz("low", 0) for _ in range(5)), *(biz("high", 3) for _ in range(5))
        )
        assert room.free == 4
        return had

    had = asyncio.run(work())
    assert 3.0 < had["high"] / had["low"] < 5.0


def test_room_that_nobody_else_wants_is_given_whole_and_comes_back() -> None:
    async def work() -> None:
        room = FairSemaphore(10)
        assert await room.get("a", 100, priority=0) == 10
        waiting = asyncio.create_task(room.get("b", 5, priority=0))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        room.put(10)
        assert room.free == 10
        # Given in the very moment in which the waiting ends.
        late = asyncio.create_task(room.get("c", 5, priority=0))
        room.free = 0
        await asyncio.sleep(0)
        room.put(5)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        assert room.free == 5

    asyncio.run(work())


def hosts(**limits: Any) -> HostThrottle:
    defaults = Defaults(**{"requests_per_second": 0.0, "concurrency": 0, **limits})
    return HostThrottle(HostRules(defaults), asyncio.get_running_loop().time)


@pytest.mark.covers("S4.21")
def test_requests_to_a_host_keep_their_distance() -> None:
    async def work() -> None:
        spared = hosts(requests_per_second=50.0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        reasons = [await spared.enter("a.example", until=began + 5) for _ in range(6)]
        assert reasons == [""] * 6
        assert loop.time() - began >= 5 / 50
        assert await spared.enter("b.example", until=began + 5) == ""
        spared.spare("a.example", 60)
        assert "spared" in await spared.enter("a.example", until=loop.time() + 5)

    asyncio.run(work())


def test_no_more_at_once_than_a_host_may_have() -> None:
    async def work() -> None:
        spared, running, most = hosts(concurrency=3), 0, 0
        until = asyncio.get_running_loop().time() + 10

        async def one() -> None:
            nonlocal running, most
            assert await spared.enter("a.example", until=until) == ""
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            spared.leave("a.example")

        await asyncio.gather(*(one() for _ in range(40)))
        assert most == 3
        for _ in range(3):
            await spared.enter("a.example", until=until)
        late = asyncio.get_running_loop().time() + 0.01
        assert "no place" in await spared.enter("a.example", until=late)
        spared.leave("a.example")
        assert await spared.enter("a.example", until=until) == ""

    asyncio.run(work())


def test_hosts_that_are_stopped_and_those_of_this_machine() -> None:
    async def work() -> None:
        spared = hosts()
        spared.rules = HostRules.of(Defaults(), [HostRuleLimits("x.example", stopped=True)])
        assert "stopped" in await spared.enter("x.example", until=1e9)
        assert spared.passes("127.0.0.1", ["127.0.0.0/8"])
        assert not spared.passes("127.0.0.1", [])

    asyncio.run(work())


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [([("Retry-After", "7")], 7.0), ([("Retry-After", "Fri, 1 Jan")], 1.0), ([], 1.0)],
)
def test_a_pause_is_what_the_host_asks_for(headers: list[tuple[str, str]], seconds: float) -> None:
    assert pause_of(headers) == seconds
