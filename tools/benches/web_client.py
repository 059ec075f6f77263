"""A peer of ``bench download --profile web``: a client that only fetches and parses.

``python -m tools.benches.web_client URL REPORT``: one process with asyncio and aiohttp, which keeps
the same limits. It stores nothing, retries nothing and can be watched by no one.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import deque
from pathlib import Path

import aiohttp
import uvloop
from aiohttp.abc import AbstractResolver, ResolveResult
from protego import Protego
from yarl import URL

from tools.benches import web_pages
from tools.benches.web_figures import Crawl


class _LocalResolver(AbstractResolver):
    """Every host is this machine."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            {
                "hostname": host,
                "host": "127.0.0.1",
                "port": port,
                "family": socket.AF_INET,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST,
            }
        ]

    async def close(self) -> None:
        """Do nothing."""


class _Host:
    def __init__(self) -> None:
        self.waiting: deque[str] = deque()
        self.robots: Protego | None = None
        self.busy = False


class Client:
    """Fetches every page once: one request at a time to a host, and a pause after each."""

    def __init__(self, session: aiohttp.ClientSession, crawl: Crawl) -> None:
        self._session = session
        self._crawl = crawl
        self._hosts: dict[str, _Host] = {}
        self._known: set[str] = set()
        self._ready: asyncio.Queue[_Host] = asyncio.Queue()
        self._open = 0
        self._over = asyncio.Event()

    async def run(self, url: str) -> None:
        """Crawl from ``url`` on."""
        workers = [asyncio.ensure_future(self._work()) for _ in range(web_pages.CONCURRENCY)]
        self._crawl.begin()
        self._add(url)
        await self._over.wait()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    def _add(self, url: str) -> None:
        if url in self._known:
            return
        self._known.add(url)
        self._open += 1
        name = url.split("/", 3)[2]
        host = self._hosts.setdefault(name, _Host())
        host.waiting.append(url)
        if not host.busy:
            host.busy = True
            self._ready.put_nowait(host)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            host = await self._ready.get()
            await self._fetch(host, host.waiting.popleft())
            self._open -= 1
            if not self._open:
                self._over.set()
            loop.call_later(1 / web_pages.REQUESTS_PER_SECOND, self._release, host)

    def _release(self, host: _Host) -> None:
        host.busy = bool(host.waiting)
        if host.busy:
            self._ready.put_nowait(host)

    async def _fetch(self, host: _Host, url: str) -> None:
        try:
            if host.robots is None:
                rules = await self._get(str(URL(url).with_path("/robots.txt")))
                host.robots = Protego.parse(rules.decode())
            if not host.robots.can_fetch(url, web_pages.USER_AGENT):
                return
            body = await self._get(url)
        except (aiohttp.ClientError, TimeoutError):
            self._crawl.failed += 1
            return
        _, links = web_pages.parse(url, body)
        self._crawl.took(len(body))
        for link in links:
            self._add(link)

    async def _get(self, url: str) -> bytes:
        async with self._session.get(url) as response:
            return await response.read()


async def _main() -> None:
    crawl = Crawl(Path(sys.argv[2]))
    connector = aiohttp.TCPConnector(limit=0, ssl=False, resolver=_LocalResolver())
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept-Encoding": "gzip, deflate", "User-Agent": web_pages.USER_AGENT},
        timeout=aiohttp.ClientTimeout(total=web_pages.TIMEOUT_SECONDS),
    ) as session:
        await Client(session, crawl).run(sys.argv[1])
    crawl.write()


if __name__ == "__main__":
    uvloop.run(_main())
