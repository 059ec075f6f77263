"""``python -m apps.agents.downloader``: one download agent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final

from apps.agents.downloader.agent import DownloadAgent
from apps.agents.downloader.options import AgentIdentity, AgentOptions, read_options
from yardkit import failpoints
from yardkit.bridge import in_daemon_thread
from yardkit.broker import BadBrokerURL, Broker, BrokerError, connect
from yardkit.daemon import EXIT_BAD_SETTING, EXIT_FAILED, EXIT_OK
from yardkit.env import Env, EnvError
from yardkit.liveness import FEED_SECONDS, LivenessReporter
from yardkit.log_lines import OneLineFormatter
from yardkit.outage import Outage
from yardkit.stop import die_with_parent_if_asked, stop_event

logger = logging.getLogger("apps.agents.downloader")

# An agent may be far away: a connection takes six round trips. A stop does not wait for it.
CONNECT_SECONDS: Final = 10.0
# Limit of finishing downloads; unfinished commands stay unacknowledged and come again.
STOP_LIMIT_SECONDS: Final = 4.5
CLOSE_SECONDS: Final = 1.0
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def main(arguments: Sequence[str]) -> int:
    """Run the agent; return the exit status, 2 for a bad setting."""
    die_with_parent_if_asked(os.environ)
    env = Env()
    try:
        level = env.str("LOG_LEVEL", "INFO", choices=_LEVELS)
        handler = logging.StreamHandler()
        handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)-7s %(message)s"))
        logging.basicConfig(level=level, handlers=[handler])
        failpoints.configure()
        _allow_many_sockets()
        url, identity, options = read_options(arguments, env)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(serve(url, identity, options))
    except EnvError as error:
        return _refuse(str(error))
    except BadBrokerURL as error:
        return _refuse(f"BROKER_URL: {error}")


async def serve(url: str, identity: AgentIdentity, options: AgentOptions) -> int:
    """Connect, serve, disconnect. Raises ``BadBrokerURL``."""
    stop = stop_event()
    limit = asyncio.ensure_future(_limit_stop(stop))
    life = LivenessReporter.take(f"agent {identity.name}", os.environ)
    telling = asyncio.ensure_future(_beat(life))
    broker = await _connect(url, identity, options, stop)
    try:
        if broker is not None:
            await DownloadAgent(identity=identity, broker=broker, options=options).run(stop)
    except BrokerError as error:
        logger.error("agent failed: %s", error)
        return EXIT_FAILED
    finally:
        telling.cancel()
        life.stopping()
        if broker is not None:
            await in_daemon_thread(broker.close, CLOSE_SECONDS)
        limit.cancel()
    return EXIT_OK


async def _connect(
    url: str, identity: AgentIdentity, options: AgentOptions, stop: asyncio.Event
) -> Broker | None:
    """Connect, retrying without limit; None when stopped before."""
    stopping = asyncio.ensure_future(stop.wait())
    outage = Outage(
        logger,
        "connecting to the broker",
        first=options.first_delay_seconds,
        longest=options.longest_delay_seconds,
    )
    try:
        while not stop.is_set():
            attempt = asyncio.ensure_future(
                in_daemon_thread(
                    connect, url, name=f"agent {identity.name}", timeout=CONNECT_SECONDS
                )
            )
            await asyncio.wait([attempt, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not attempt.done():
                attempt.cancel()
                return None
            try:
                broker = attempt.result()
            except BadBrokerURL:
                raise
            except BrokerError as error:
                await asyncio.wait([stopping], timeout=outage.failed(error))
            else:
                outage.recovered()
                return broker
        return None
    finally:
        stopping.cancel()


async def _beat(life: LivenessReporter) -> None:
    """Write the heartbeat file from the event loop. Ready at once, even while the broker is
    unreachable.
    """
    life.ready()
    while True:
        await asyncio.sleep(FEED_SECONDS)
        life.feed(now=True)


async def _limit_stop(stop: asyncio.Event) -> None:
    """Enforce the time limit of a stop from a thread: the event loop may be blocked."""
    await stop.wait()
    logger.info("stop requested")
    timer = threading.Timer(STOP_LIMIT_SECONDS, _leave)
    timer.daemon = True
    timer.start()


def _leave() -> None:
    logger.error("not finished in %.1f s, exiting", STOP_LIMIT_SECONDS)
    logging.shutdown()
    os._exit(EXIT_FAILED)


def _allow_many_sockets() -> None:
    """Raise the soft limit of open files, 1,024: keep-alive connections of a broad crawl exceed
    it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not made for every platform; asyncio's own loop does the same, slower
        return None
    make: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return make


def _refuse(line: str) -> int:
    sys.stderr.write(line + "\n")
    return EXIT_BAD_SETTING


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
