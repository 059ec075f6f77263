"""Start-up and shutdown of a web process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from django.conf import settings

from apps.dashboard.relay import EventRelay, to_channel_layer
from apps.runtime.deferral import stop_deferring
from apps.runtime.services import close_shared_broker, stop_events, stop_relay
from crawlyard.seed_servers import SeedServers

logger = logging.getLogger(__name__)

# Together below the 5 s in which a process must have ended.
STOP_RELAY_SECONDS: Final = 1.2
STOP_SERVERS_SECONDS: Final = 1.5
FLUSH_SECONDS: Final = 1.0

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[..., Awaitable[Any]]


class Lifespan:
    """The ASGI lifespan: starts the event relay and the ports of routing rules, and closes both.

    Failures do not keep the web from starting: without a broker only live updates are missing.
    """

    def __init__(self, application: Application | None = None) -> None:
        # Application of the further ports; without one there are none.
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        relay: EventRelay | None = None
        servers: SeedServers | None = None
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                loop = asyncio.get_running_loop()
                relay = EventRelay(url=settings.BROKER_URL, deliver=to_channel_layer(loop))
                relay.start()
                if self._application is not None:
                    servers = SeedServers(self._application, loop)
                    servers.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                ends = [asyncio.to_thread(_let_go, relay)]
                if servers is not None:
                    ends.append(asyncio.to_thread(servers.stop, STOP_SERVERS_SECONDS))
                await asyncio.gather(*ends)
                await send({"type": "lifespan.shutdown.complete"})
                return


def _let_go(relay: EventRelay | None) -> None:
    if relay is not None:
        relay.stop(STOP_RELAY_SECONDS)
    # Messages that are committed and not yet published are sent first.
    stop_relay(FLUSH_SECONDS)
    stop_events(FLUSH_SECONDS)
    stop_deferring(FLUSH_SECONDS / 2)
    close_shared_broker(FLUSH_SECONDS)
