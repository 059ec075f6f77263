"""Spider middleware of chained runs: a page's requests go to the agent that fetched the page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response

from yardscrapy.responses import AGENT


class ChainedMiddleware:
    """Copies the agent of a response to the requests that its callback yields."""

    def process_spider_output(
        self, response: Response, result: Iterable[Any], spider: Spider | None = None
    ) -> Iterator[Any]:
        for output in result:
            yield _bound(output, response)

    async def process_spider_output_async(
        self, response: Response, result: AsyncIterator[Any], spider: Spider | None = None
    ) -> AsyncIterator[Any]:
        async for output in result:
            yield _bound(output, response)


def _bound(output: Any, response: Response) -> Any:
    if isinstance(output, Request) and response.request is not None:
        agent = response.meta.get(AGENT)
        if agent:
            output.meta.setdefault(AGENT, agent)
    return output
