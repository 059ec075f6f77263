"""A Redis server of a test's own, and a line to a server that loses answers."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import subprocess
import threading
from pathlib import Path
from urllib.parse import urlsplit


class OwnRedis:
    """A server that the test may kill, stop and start."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._folder = folder
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self._process = subprocess.Popen(
            ["redis-server", *options, "--dir", str(self._folder)], stdout=subprocess.DEVNULL
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def hang(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)


class LossyLine:
    """Passes everything on; told to, it cuts the line instead of passing the next answer on."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 6379)
        self._server = socket.create_server(("127.0.0.1", 0))
        port = self._server.getsockname()[1]
        self.url = parts._replace(netloc=f"127.0.0.1:{port}").geturl()
        self.lose_next = False
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()
        self._ended = False

    def close(self) -> None:
        self._ended = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                client = self._server.accept()[0]
            except OSError:
                return
            thread = threading.Thread(target=self._pass, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _pass(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            while not self._ended:
                for ready in select.select([client, server], [], [], 0.1)[0]:
                    with contextlib.suppress(ConnectionError):
                        if not (data := ready.recv(65536)):
                            return
                        if ready is server and self.lose_next:
                            self.lose_next = False
                            return
                        (client if ready is server else server).sendall(data)
