"""Runs the spider's callbacks and collects their outputs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from yardkit.items.requests import RequestRow
from yardspider.accounting import CrawlAccounting
from yardspider.callbacks import (
    callback_name,
    describe_error,
    find_callback,
    ready_outputs,
    waited_outputs,
)
from yardspider.dispatcher import RequestDispatcher
from yardspider.errors import RunFailed
from yardspider.item_lines import drop, misfit
from yardspider.outputs import ItemSink
from yardspider.request import Request
from yardspider.request_log import CALLBACK, RequestFailure, RequestLog
from yardspider.response import Response
from yardspider.seeds.client import RunSeeds
from yardspider.seeds.seed import Seed
from yardspider.seeds.task import SeedTask
from yardspider.spider import SeedSpider, Spider

log = logging.getLogger("yardspider")

# ``start`` is iterated only while fewer requests wait, so a million of them cost no memory.
START_QUEUE = 1000


class Caller:
    """Run the spider's code; the one place where its outputs are taken.

    Args:
        chained: a request made from a page goes back to the agent that fetched the page.
        ring: called when something has ended by itself.
        start: instead of the spider's.

    ``failure``: why the run cannot go on. ``tasks``: callbacks that are awaiting something.
    """

    def __init__(
        self,
        spider: Spider,
        dispatcher: RequestDispatcher,
        seed_client: RunSeeds,
        items: ItemSink,
        accounting: CrawlAccounting,
        *,
        chained: bool,
        ring: Callable[[], None],
        start: Callable[[], Any] | None = None,
    ) -> None:
        self._start = start or spider.start
        self._log = RequestLog(spider, items)
        self._spider = spider
        self._dispatcher = dispatcher
        self._seed_client = seed_client
        self._items = items
        self._accounting = accounting
        self._chained = chained
        self._ring = ring
        self.hungry = asyncio.Event()
        self.failure: RunFailed | None = None
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def _is_crowded(self) -> bool:
        return self._seed_client.crowded or self._items.crowded

    async def feed(self) -> None:
        """Iterate over ``start`` as fast as its requests are sent."""
        start = self._start
        try:
            result = start()
            outputs = ready_outputs(result)
            async for output in waited_outputs(result) if outputs is None else _each(outputs):
                self._emit(output, None, None)
                self._ring()
                while self._dispatcher.queued >= START_QUEUE or self._is_crowded:
                    self.hungry.clear()
                    await self.hungry.wait()
        except RunFailed as failure:
            self.failure = failure
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a spider's code: the run fails
            self.failure = RunFailed(describe_error("start", error, start))
        finally:
            self._ring()

    # --- pages --------------------------------------------------------------------------------

    def call(self, request: Request, response: Response) -> None:
        """Pass a page to its callback; the request ends here, or with the callback's task."""
        callback = find_callback(self._spider, request.callback)
        began = time.perf_counter()
        try:
            result = callback(response)
            outputs = ready_outputs(result)
            if outputs is None:
                self._keep(self._await_callback(callback, result, response))
                return
            before = self._items.taken
            rest = self._emit_ready(outputs, response, request.seed)
            if rest is not None:
                self._keep(self._await_callback(callback, _each(rest), response))
                return
        except RunFailed:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a spider's code: its request fails
            self._callback_failed(callback, error, response)
        else:
            row = self._log.succeeded(response)
            self._stored(self._items.taken > before, lambda: self._succeeded(request, row))
        finally:
            self._took(began)

    def _took(self, began: float) -> None:
        self._accounting.callback_ms += 1000.0 * (time.perf_counter() - began)

    async def _await_callback(self, callback: Any, result: Any, response: Response) -> None:
        began = time.perf_counter()
        try:
            await self._emit_waited(result, response, response.request.seed)
            # Items of other callbacks may be among those since it began; their confirm is near.
            request, row = response.request, self._log.succeeded(response)
            self._items.after(lambda: self._succeeded(request, row))
        except RunFailed as failure:
            self.failure = failure
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as in call
            self._callback_failed(callback, error, response)
        finally:
            self._took(began)

    def _stored(self, found: bool, work: Callable[[], None]) -> None:
        """Call ``work`` once the items that were found are stored."""
        if found:
            self._items.after(work)
        else:
            work()

    def _succeeded(self, request: Request, row: RequestRow | None) -> None:
        self._accounting.success += 1
        self._log.put(row)
        if request.seed is not None:
            self._seed_client.settled(request.seed)

    def _callback_failed(self, callback: Any, error: BaseException, response: Response) -> None:
        reason = describe_error(f"callback {callback_name(callback)}", error, callback)
        log.error("%s for %s", reason, response.request.url)
        self._accounting.exceptions += 1
        self._accounting.fail(response.request.url, response.status, reason)
        elapsed_ms = response.elapsed * 1000
        self.request_failed(
            response.request,
            RequestFailure(reason, CALLBACK, response.status, response.agent, elapsed_ms, error),
        )

    def request_failed(self, request: Request, failure: RequestFailure) -> None:
        """Report a failed request to the platform and to its seed."""
        self._log.failed(request, failure)
        if request.seed is not None:
            self._seed_client.settled(request.seed, f"{failure.reason} ({request.url})")

    # --- seeds --------------------------------------------------------------------------------

    def begin(self, task: SeedTask) -> None:
        """Make the requests of a seed; this counts as one open request of the seed."""
        if not isinstance(self._spider, SeedSpider):
            raise TypeError(f"{type(self._spider).__name__} takes no seeds")
        make = self._spider.requests
        try:
            result = make(task)
            outputs = ready_outputs(result)
            if outputs is None:
                self._keep(self._await_requests(make, result, task))
                return
            before = self._items.taken
            rest = self._emit_ready(outputs, None, task)
            if rest is not None:
                self._keep(self._await_requests(make, _each(rest), task))
                return
        except RunFailed:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a spider's code: its seed fails
            self._requests_failed(make, error, task)
        else:
            found = self._items.taken > before
            self._stored(found, lambda: self._seed_client.settled(task))

    async def _await_requests(self, make: Any, result: Any, task: SeedTask) -> None:
        try:
            await self._emit_waited(result, None, task)
        except RunFailed as failure:
            self.failure = failure
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as in begin
            self._requests_failed(make, error, task)
        else:
            self._items.after(lambda: self._seed_client.settled(task))

    def _requests_failed(self, make: Any, error: BaseException, task: SeedTask) -> None:
        reason = describe_error("requests", error, make)
        log.error("%s for seed %s", reason, task.data)
        self._seed_client.settled(task, reason)

    # --- outputs ------------------------------------------------------------------------------

    def _keep(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)

        def ended(done: asyncio.Task[None]) -> None:
            self.tasks.discard(done)
            self._ring()

        task.add_done_callback(ended)

    def _emit_ready(
        self, outputs: Iterable[Any], response: Response | None, seed: SeedTask | None
    ) -> Iterator[Any] | None:
        """Take outputs; when the sink is crowded return the rest, which waits for room."""
        rest = iter(outputs)
        for output in rest:
            self._emit(output, response, seed)
            if self._items.crowded:
                return rest
        return None

    async def _emit_waited(
        self, result: Any, response: Response | None, seed: SeedTask | None
    ) -> None:
        if self._items.crowded:
            await self._items.room()
        async for output in waited_outputs(result):
            self._emit(output, response, seed)
            if self._items.crowded:
                await self._items.room()

    def _emit(self, output: Any, response: Response | None, seed: SeedTask | None) -> None:
        """Take one output of the spider. Raises ``TypeError`` for an unknown kind."""
        if isinstance(output, Request):
            if isinstance(output.callback, str):
                find_callback(self._spider, output.callback)
            if output.depth is None:
                output.depth = 0 if response is None else (response.request.depth or 0) + 1
            if response is not None:
                output.parent = response.request.number
                if self._chained:
                    output.agent = response.agent
            output.seed = None if output.detached else seed
            if self._dispatcher.enqueue(output) and output.seed is not None:
                output.seed.open += 1
        elif isinstance(output, dict):
            url = "" if response is None else response.url
            item_type = self._spider.item_type
            reason = "" if item_type is None else misfit(output, item_type)
            if reason:
                drop(self._accounting.dropped, reason, url)
            else:
                self._items.add(output, url)
            self._accounting.take_item(output)
            if response is not None:
                response.request.items += 1
        elif isinstance(output, Seed):
            self._seed_client.found(output, seed)
        else:
            kind = type(output).__name__
            raise TypeError(f"yielded {kind}, not a Request, a Seed or a dict")


async def _each(outputs: Iterable[Any]) -> AsyncIterator[Any]:
    for output in outputs:
        yield output
