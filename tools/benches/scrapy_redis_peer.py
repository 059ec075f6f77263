"""scrapy-redis' duplicate filter and queue, as its scheduler uses them, on a Redis of its own."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import redis

from tools.benches.measuring import END_SECONDS, BenchFailed

_KEY: Final = "bench:%s"
_START_SECONDS: Final = 10.0


class Peer:
    """One spider's scheduler. A socket file, which is faster than a port."""

    def __init__(self, client: redis.Redis, process: psutil.Process) -> None:
        try:
            from scrapy import Request, Spider
            from scrapy_redis.dupefilter import RFPDupeFilter
            from scrapy_redis.queue import PriorityQueue
        except ImportError:
            raise BenchFailed("scrapy-redis is missing: make bench installs it") from None
        self._request = Request
        self._seen = RFPDupeFilter(client, _KEY % "seen").request_seen
        self._queue = PriorityQueue(client, Spider(name="bench"), _KEY % "queue")
        self._process = process

    def add(self, urls: Sequence[str]) -> int:
        """Queue those that are new; their number."""
        new = 0
        for url in urls:
            request = self._request(url)
            if not self._seen(request):
                self._queue.push(request)
                new += 1
        return new

    def take(self, most: int) -> int:
        """Pop up to ``most``: as much as the peer does of lease and finish."""
        for taken in range(most):
            if self._queue.pop() is None:
                return taken
        return most

    def server_cpu_seconds(self) -> float:
        """Used by Redis so far."""
        times = self._process.cpu_times()
        return float(times.user + times.system)


@contextmanager
def scrapy_redis(folder: Path) -> Iterator[Peer]:
    """The peer with an empty Redis that keeps nothing on the disk.

    Raises:
        BenchFailed: redis-server or scrapy-redis is missing.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise BenchFailed("redis-server is missing: apt-get install redis-server")
    socket = folder / "redis.sock"
    argv: list[str] = [program, "--port", "0", "--unixsocket", str(socket), "--save", ""]
    process = subprocess.Popen(argv, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        client: Any = redis.Redis(unix_socket_path=str(socket))
        _wait_for(client, process)
        with client:
            yield Peer(client, psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait(END_SECONDS)


def _wait_for(client: redis.Redis, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            client.ping()
        except redis.ConnectionError:
            time.sleep(0.05)
        else:
            return
    raise BenchFailed("redis-server did not start")
