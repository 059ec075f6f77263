"""Runs a spider as a process: signals, event loop, exit state."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from yardkit.stop import Stop
from yardspider.accounting import CrawlAccounting
from yardspider.deadline import StopDeadline
from yardspider.engine import (
    LAST_ITEMS_SECONDS,
    LAST_RESOURCES_SECONDS,
    LAST_SEEDS_SECONDS,
    CrawlEngine,
)
from yardspider.errors import RunFailed
from yardspider.outcome import CrawlOutcome
from yardspider.outputs import ItemFile, ItemSink, NoItems, write_exit
from yardspider.request import Request
from yardspider.resources.port import Pools
from yardspider.seeds.memory import MemoryFrontier
from yardspider.seeds.port import RunFrontier, SeedCounts
from yardspider.settings import SpiderSettings
from yardspider.spider import Spider
from yardspider.transports.base import RunTransport

log = logging.getLogger("yardspider")

EXIT_FAILED = 2
# After a stop request the engine needs up to ``stop_seconds`` for what is out, 0.5 s for callbacks,
# 1 s for the last counters and 0.6 s for the connection; a frontier needs its last calls, too.
_STOP_SECONDS = 2.7


def run_process(
    spider: Spider,
    settings: SpiderSettings,
    make_transport: Callable[[], RunTransport],
    *,
    items: Path | ItemSink | None,
    run_dir: Path | None,
    stop: Stop,
    frontier: RunFrontier | None = None,
    pools: Pools | None = None,
    accounting: CrawlAccounting | None = None,
    start: Callable[[], Iterable[Request]] | None = None,
) -> CrawlOutcome:
    """Run to the end or to a stop; return the outcome. ``stop`` is installed already.

    Args:
        make_transport: called inside the event loop.
        items: sink of items, or the file to which they are appended; None only counts them.
        run_dir: folder of ``exit.json``, written from a thread when a callback blocks the stop.
    """
    accounting = accounting or CrawlAccounting()
    stop_seconds = settings.stop_seconds + _STOP_SECONDS
    if not isinstance(frontier, MemoryFrontier | None):
        stop_seconds += LAST_SEEDS_SECONDS
    if pools is not None:
        stop_seconds += LAST_RESOURCES_SECONDS
    if not isinstance(items, Path | None):
        stop_seconds += LAST_ITEMS_SECONDS

    def last_words() -> int:
        log.error("stopped: the spider's own code did not return within %g s", stop_seconds)
        if run_dir is not None:
            write_exit(run_dir, exit_content("stopped", stop.signal_name, accounting))
        sys.stderr.flush()
        return exit_status("stopped", stop)

    async def main() -> CrawlOutcome:
        loop = asyncio.get_running_loop()
        transport = make_transport()
        engine = CrawlEngine(
            spider,
            settings,
            transport,
            sink,
            accounting=accounting,
            frontier=frontier,
            pools=pools,
            start=start,
        )

        def on_stop() -> None:
            loop.remove_reader(stop.fileno())
            engine.stop(stop.signal_name)

        loop.add_reader(stop.fileno(), on_stop)
        if run_dir is not None:
            log.info("%s starts", type(spider).__qualname__)
        try:
            return await engine.run()
        finally:
            loop.remove_reader(stop.fileno())

    with ExitStack() as stack:
        sink: ItemSink
        if isinstance(items, Path):
            sink = stack.enter_context(ItemFile(items))
        else:
            sink = items or NoItems()
        stack.enter_context(StopDeadline(stop, stop_seconds, last_words))
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(main())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop where it exists (not on Windows): it halves the cost of an answer."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def exit_status(state: str, stop: Stop) -> int:
    """Return 0 for exited, 2 for failed, 128 + signal for stopped."""
    if state == "stopped":
        return 128 + int(signal.Signals[stop.signal_name or "SIGTERM"])
    return 0 if state == "exited" else EXIT_FAILED


def exit_content(
    state: str,
    reason: str,
    accounting: CrawlAccounting,
    seconds: float = 0.0,
    seeds: SeedCounts | None = None,
) -> dict[str, Any]:
    """Return the content of ``exit.json`` and ``--json``; ``failures`` are the first ones.

    ``seeds`` is included only if the run used seeds.
    """
    extra = {"seeds": seeds.counts()} if seeds is not None and seeds.any else {}
    return {
        "state": state,
        "reason": reason,
        **accounting.counts(),
        "exceptions": accounting.exceptions,
        "left": accounting.left,
        "dropped": dict(accounting.dropped),
        "agents": dict(accounting.agents),
        "seconds": round(seconds, 3),
        **extra,
        "failures": [
            {"url": note.url, "status": note.status, "reason": note.reason}
            for note in accounting.first_failures
        ],
    }


def outcome_content(outcome: CrawlOutcome) -> dict[str, Any]:
    """Return the content of ``exit.json`` for an outcome."""
    return exit_content(
        outcome.state, outcome.reason, outcome.accounting, outcome.seconds, outcome.seeds
    )


def finish(outcome: CrawlOutcome, run_dir: Path | None, stop: Stop) -> int:
    """Write ``exit.json`` and log the end; return the exit status."""
    if run_dir is not None:
        try:
            content = outcome_content(outcome)
            write_exit(run_dir, content)
        except OSError as error:
            raise RunFailed(f"cannot write into {run_dir}: {error.strerror or error}") from error
    if outcome.state == "exited" and run_dir is not None:
        # The log gets a line even if the spider's own code logs nothing.
        counts = outcome.accounting
        dropped = sum(counts.dropped.values())
        log.info(
            "ended after %.1f s: %d requests succeeded, %d failed; %d pages, %d items%s",
            outcome.seconds,
            counts.success,
            counts.failed,
            counts.pages,
            counts.items,
            f", {dropped} dropped" if dropped else "",
        )
    elif outcome.state == "failed":
        log.error("run failed: %s", outcome.reason)
    elif outcome.state == "stopped":
        log.warning("stopped by %s, %d requests left", outcome.reason, outcome.accounting.left)
    return exit_status(outcome.state, stop)
