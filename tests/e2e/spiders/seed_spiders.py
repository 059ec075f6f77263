"""A spider that works on the seeds of its job's frontier, and finds more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yardspider import Request, Response, Seed, SeedSpider, SeedTask, SpiderSettings


class Follows(SeedSpider):
    """Each seed is a page and the first page it links to; each page is also noted as a seed."""

    settings = SpiderSettings(seeds_ahead=10, empty_seconds=12.0, statistics_seconds=0.2)

    def requests(self, seed: SeedTask) -> Any:
        return [] if seed.data.startswith("note ") else [Request(seed.data)]

    def parse(self, response: Response) -> Iterator[Any]:
        seed = response.seed
        assert seed is not None
        yield {"url": response.url, "seed": seed.data, "retry": seed.retry}
        yield Seed(f"note {response.url}", max_retry=9)
        yield Request(f"{seed.data}?more", self.more)

    def more(self, response: Response) -> Iterator[Any]:
        assert response.seed is not None
        yield {"url": response.url, "seed": response.seed.data, "retry": response.seed.retry}
