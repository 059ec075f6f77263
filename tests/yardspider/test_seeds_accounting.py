"""Whatever happens to a run, each seed it leased leaves in exactly one way, and none is lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.yardspider.crawls import changed, check_books
from tests.yardspider.seed_runs import HELD
from yardkit.protocol import SeedState
from yardkit.seeds import SeedServiceAway
from yardspider import Request, Response, Seed, SeedSpider
from yardspider.seeds.memory import MemoryFrontier
from yardspider.testing import FakeCenter, NoAnswer, Page, Slow, crawl

WORDS = ("fine", "fine", "links", "gone", "slow", "raises", "finds", "ignore", "give_up", "down")


class Wild(SeedSpider):
    """Does what the seed's last word says."""

    def requests(self, seed: Any) -> Any:
        if "none" in seed.data:
            return []
        return Request(seed.data)

    def parse(self, response: Response) -> Any:
        assert response.seed is not None
        word = response.url.rpartition("-")[2]
        if word == "raises":
            raise ValueError("no")
        if word == "links" and response.request.depth == 0:
            return [Request(f"{response.url}{number}-{word}") for number, word in enumerate(WORDS)]
        if word == "finds":
            return [Seed(f"{response.seed.data}0-fine"), Seed("http://h/known-fine")]
        if word in ("ignore", "give_up"):
            getattr(response.seed, word)()
        return None


class Shaky(MemoryFrontier):
    """Loses calls and answers."""

    def __init__(self, seeds: Any, lost: float, number: int) -> None:
        super().__init__(seeds, lease_seconds=20)
        self.lost = lost
        self.random = random.Random(number)

    async def _perhaps(self, call: Any) -> Any:
        if self.random.random() < self.lost:
            call.close()
            raise SeedServiceAway("the call is lost")
        answer = await call
        if self.random.random() < self.lost:
            raise SeedServiceAway("the answer is lost")
        return answer

    async def finish(self, finishes: Any, found: Any) -> Any:
        return await self._perhaps(super().finish(finishes, found))

    async def extend(self, generation: int, *, seconds: float) -> int:
        found: int = await self._perhaps(super().extend(generation, seconds=seconds))
        return found

    async def give_back(self, generation: int) -> int:
        found: int = await self._perhaps(super().give_back(generation))
        return found


def page(url: str) -> Any:
    word = url.rpartition("-")[2]
    return {"gone": Page(404), "slow": Slow(9, ""), "down": NoAnswer()}.get(word, "")


plans = st.lists(
    st.tuples(st.floats(0, 60), st.sampled_from(["pause", "resume", "tune", "exit"])), max_size=4
)


@pytest.mark.slow("1 s")
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(
    words=st.lists(st.sampled_from((*WORDS, "none")), min_size=1, max_size=25),
    plan=plans,
    lost=st.sampled_from([0.0, 0.2]),
    ahead=st.integers(1, 10),
    concurrency=st.integers(1, 5),
    number=st.integers(0, 1000),
)
def test_every_seed_is_in_one_place(
    words: list[str], plan: Any, lost: float, ahead: int, concurrency: int, number: int
) -> None:
    center = FakeCenter(lambda request: page(request.url))
    frontier = Shaky([f"http://h/{n}-{word}" for n, word in enumerate(words)], lost, number)
    for seconds, action in plan:
        changes = {"concurrency": 3} if action == "tune" else {}
        center.clock.call_later(seconds, lambda a=action, c=changes: center.tell(a, **c))
    # Whatever was paused for good ends some time.
    center.clock.call_later(600, lambda: center.tell("exit"))
    result = asyncio.run(
        crawl(
            Wild,
            center,
            frontier=frontier,
            settings=changed(
                concurrency=concurrency, seeds_ahead=ahead, download_retries=0, empty_seconds=5
            ),
        )
    )
    check_books(result)
    counts = result.seeds.counts()
    assert counts["leased"] == sum(counts[name] for name in HELD), counts
    assert result.seeds.unconfirmed == 0
    # The frontier agrees, as long as every answer has arrived.
    ends = Counter(seed.state for seed in frontier.seeds)
    assert sum(ends.values()) == len(frontier.seeds) >= len(words)
    if not lost:
        assert ends[SeedState.RUNNING] == 0
        assert (result.seeds.succeeded, result.seeds.failed, result.seeds.ignored) == (
            ends[SeedState.SUCCEEDED],
            ends[SeedState.FAILED],
            ends[SeedState.IGNORED],
        )
        assert result.seeds.late == result.seeds.left == 0
        found = len(frontier.seeds) - len(words)
        assert result.seeds.added == found
    # None was finished twice in one lease.
    told = Counter((one.key, one.generation) for one in frontier.finishes)
    assert lost or set(told.values()) <= {1}
