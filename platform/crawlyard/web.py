"""The web process: uvicorn with this project's settings."""

from __future__ import annotations

import errno
import socket

import uvicorn

from yardkit.env import EnvError
from yardkit.life import Life


def check_port(host: str, port: int) -> None:
    """Prove that the web server will be able to listen there.

    Raises:
        EnvError: in use, not permitted, or no such address; one line that says which.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As uvicorn does: a port in TIME_WAIT is free, one in use is not.
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


class Server(uvicorn.Server):
    """uvicorn's, which tells its supervisor that it listens and that its loop turns."""

    def __init__(self, config: uvicorn.Config, life: Life) -> None:
        super().__init__(config)
        self._life = life

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._life.ready()

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        self._life.feed()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say so, and end."""
        self._life.stopping()
        await super().shutdown(sockets)
