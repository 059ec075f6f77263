"""The web process: uvicorn with this project's settings."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from typing import Final

import uvicorn

from yardkit.env import EnvError
from yardkit.liveness import LivenessReporter

# Seconds in which keep-alive connections close with their next response. A connection unused
# for that long is unlikely to send a request just when it closes.
DRAIN_SECONDS: Final = 0.5
# Limit for requests in progress. Websockets are closed; pages reconnect by themselves.
GRACE_SECONDS: Final = 2


def check_port(host: str, port: int) -> None:
    """Verify that the web server can listen there.

    Raises:
        EnvError: in use, not permitted, or no such address; one line that says which.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As uvicorn does: a port in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OverflowError as error:
        raise EnvError(f"--port {port}: ports are 0 to 65535") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise EnvError(
                f"--port {port}: another process listens on {host}:{port}; "
                "stop it or give another --port"
            ) from error
        raise EnvError(f"--host {host} --port {port}: {error.strerror or error}") from error


def listens(host: str, port: int) -> bool:
    """Return whether the address accepts connections; for "all addresses" loopback is tried."""
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - no bind
    try:
        socket.create_connection((address, port), timeout=1.0).close()
    except OSError:
        return False
    return True


class WebServer(uvicorn.Server):
    """uvicorn server that notifies its supervisor when it listens and while its loop turns."""

    def __init__(self, config: uvicorn.Config, life: LivenessReporter) -> None:
        super().__init__(config)
        self._life = life

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen and notify the supervisor."""
        await super().startup(sockets)
        if self.started:
            self._life.ready()

    async def on_tick(self, counter: int) -> bool:
        """Send heartbeats; called ten times a second."""
        self._life.feed()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Notify the supervisor, finish all received requests, and end.

        A proxy sends a request elsewhere when this process refuses the connection, but must not
        repeat a POST that it has sent. So requests on accepted, pending and keep-alive connections
        are served.
        """
        self._life.stopping()
        self.server_state.default_headers = [
            *self.server_state.default_headers,
            (b"connection", b"close"),
        ]
        for connection in self._refuse():
            await self._serve_accepted(connection)
        await asyncio.sleep(DRAIN_SECONDS)
        await super().shutdown(sockets)

    def _refuse(self) -> list[socket.socket]:
        """Refuse new connections; return pending ones that were not accepted yet."""
        waiting = []
        for server in self.servers:
            for listener in server.sockets:
                with socket.socket(fileno=os.dup(listener.fileno())) as own:
                    own.setblocking(False)
                    with contextlib.suppress(OSError):
                        while True:
                            waiting.append(own.accept()[0])
                    # Close now: the loop would do it some moments later.
                    own.shutdown(socket.SHUT_RDWR)
            server.close()
        return waiting

    async def _serve_accepted(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self.config.http_protocol_class(  # type: ignore[call-arg]
                    config=self.config,
                    server_state=self.server_state,
                    app_state=self.lifespan.state,
                ),
                connection,
            )
