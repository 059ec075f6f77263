"""Switches the outgoing address of a banned run: next proxy, or redial.

A regular expression recognizes the answer of a site that has banned the address.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final, Protocol

import re2

from apps.agents.downloader.fetchers.dialer import ProxyAddress
from apps.agents.downloader.fetchers.egress_proxy import EgressProxy
from apps.agents.downloader.fetchers.proxies import NoProxyFree, ProxyPool
from apps.agents.downloader.fetchers.redial import Redialer
from yardkit import charsets
from yardkit.addresses import Network
from yardkit.fetched import Fetched
from yardkit.protocol import FIRST_KINDS, DownloaderSettings, DownloadRequest, FailureKind

logger = logging.getLogger(__name__)

BUSY: Final = frozenset({429, 503})
UNREACHED: Final = frozenset(
    kind for kind, first in FIRST_KINDS.items() if first == FailureKind.CONNECTION
) | {FailureKind.CONNECTION}
BANNED: Final = "banned: the answer matched switch_pattern"
_IN_THREAD_BYTES: Final = 256 * 1024
_MOST_GATES: Final = 32
_MOST_PATTERN_BYTES: Final = 8 * 1024 * 1024


class FetchEngine(Protocol):
    """One type of fetcher. It raises nothing but ``asyncio.CancelledError``."""

    async def fetch(self, request: DownloadRequest, via: EgressProxy | None = None) -> Fetched:
        """Download one page by way of ``via``; None only for engines that connect by themselves."""

    async def close(self) -> None:
        """Close every connection."""


class BanPattern:
    """The expression for banned answers. Raises ``ValueError`` for an invalid one."""

    def __init__(self, pattern: str) -> None:
        self._pattern = None
        if pattern:
            options = re2.Options()
            options.log_errors = False
            options.max_mem = _MOST_PATTERN_BYTES
            try:
                self._pattern = re2.compile(pattern, options)
            except (re2.error, UnicodeEncodeError) as error:
                raise ValueError(f"switch_pattern is no expression: {_said(error)}") from error

    async def matches(self, fetched: Fetched, encoding: str) -> bool:
        """Return whether this answer says that the address is banned."""
        if self._pattern is None or fetched.failure:
            return False
        if len(fetched.body) > _IN_THREAD_BYTES:
            return await asyncio.to_thread(self._search, fetched, encoding)
        return self._search(fetched, encoding)

    def _search(self, fetched: Fetched, encoding: str) -> bool:
        text = f"HTTP {fetched.status}\n{_text(fetched, encoding)}"
        return self._pattern is not None and self._pattern.search(text) is not None


class SwitchingFetcher:
    """Fetches by ``engine``, through a proxy of ``pool`` and with ``redialer`` if given.

    A request whose proxy failed before it was sent, or whose answer matched, is repeated through
    another address, up to ``switch_retries`` times.

    Args:
        networks: private networks that a project has opened.
        always_gated: the engine must not connect by itself.
        wait_seconds: limit of waiting for a proxy.
    """

    def __init__(
        self,
        settings: DownloaderSettings,
        engine: FetchEngine,
        *,
        networks: Sequence[Network],
        always_gated: bool,
        pool: ProxyPool | None = None,
        redialer: Redialer | None = None,
        wait_seconds: float = 60.0,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._networks = networks
        self._always_gated = always_gated
        self._pool = pool
        self._redialer = redialer
        self._wait_seconds = wait_seconds
        self._switch = BanPattern(settings.switch_pattern)
        self._gates: dict[ProxyAddress | None, EgressProxy] = {}
        self._in_use: dict[ProxyAddress | None, int] = {}
        self._opening = asyncio.Lock()

    async def fetch(self, request: DownloadRequest) -> Fetched:
        """Download one page. Raises nothing but ``asyncio.CancelledError``."""
        busy_status, retry_after = 0, ""
        for left in range(self._settings.switch_retries, -1, -1):
            try:
                fetched, proxy, started_at = await self._once(request)
            except NoProxyFree as error:
                fetched = failure(request.url, FailureKind.PROXY, str(error))
                break
            if fetched.failure == FailureKind.PROXY and left:
                continue
            if not await self._switch.matches(fetched, self._settings.encoding):
                break
            if fetched.status in BUSY:
                busy_status, retry_after = fetched.status, fetched.header(b"retry-after")
            if not await self._switched(proxy, started_at, again=left > 0):
                fetched = failure(fetched.url, FailureKind.BANNED, BANNED, fetched.elapsed_ms)
                break
        if not busy_status:
            return fetched
        return replace(fetched, busy_status=busy_status, retry_after=retry_after)

    async def _once(self, request: DownloadRequest) -> tuple[Fetched, ProxyAddress | None, float]:
        """Return (answer, its proxy, wall-clock time of its start)."""
        if self._pool is None and self._redialer is None and not self._always_gated:
            # The common case; the rest costs time.
            return await self._engine.fetch(request), None, 0.0
        started_at = 0.0
        async with contextlib.AsyncExitStack() as stack:
            if self._redialer is not None:
                started_at = await stack.enter_async_context(self._redialer.download())
            if self._pool is None:
                if not self._always_gated:
                    return await self._engine.fetch(request), None, started_at
                gate = await stack.enter_async_context(self._gate(None))
                return await self._engine.fetch(request, gate), None, started_at
            proxy = await self._pool.take(self._wait_seconds)
            gate = await stack.enter_async_context(self._gate(proxy))
            fetched = await self._engine.fetch(request, gate)
            self._judge(self._pool, proxy, fetched.failure)
            return fetched, proxy, started_at

    @staticmethod
    def _judge(pool: ProxyPool, proxy: ProxyAddress, failure: FailureKind) -> None:
        if failure == FailureKind.PROXY:
            pool.failed(proxy)
        elif failure in (FailureKind.TIMEOUT, *UNREACHED):
            # May be the fault of the site or of the proxy; only a check can show which.
            if pool.blames_the_way:
                pool.failed(proxy)
        else:
            pool.succeeded(proxy)

    async def _switched(
        self, proxy: ProxyAddress | None, started_at: float, *, again: bool
    ) -> bool:
        """Give up the banned address; return whether there is another to try ``again`` with."""
        if self._pool is not None and proxy is not None:
            self._pool.drop(proxy, "an answer matched switch_pattern")
            return again
        if self._redialer is not None and again:
            return await self._redialer.redial(started_at)
        return False

    # --- gates ----------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _gate(self, proxy: ProxyAddress | None) -> AsyncIterator[EgressProxy]:
        async with self._opening:
            gate = self._gates.pop(proxy, None)
            if gate is None:
                gate = EgressProxy(self._networks, proxy)
                await gate.open()
            self._gates[proxy] = gate  # last: the least recently used comes first
            self._in_use[proxy] = self._in_use.get(proxy, 0) + 1
            await self._close_idle()
        try:
            yield gate
        finally:
            self._in_use[proxy] -= 1

    async def _close_idle(self) -> None:
        idle = [gate for gate in self._gates if not self._in_use.get(gate)]
        for proxy in idle[: max(0, len(self._gates) - _MOST_GATES)]:
            self._in_use.pop(proxy, None)
            await self._gates.pop(proxy).close()

    async def close(self) -> None:
        """Close every connection."""
        await self._engine.close()
        for gate in self._gates.values():
            await gate.close()
        self._gates.clear()


def failure(url: str, kind: FailureKind, error: str, elapsed_ms: float = 0.0) -> Fetched:
    """Return the answer for a request without a response."""
    return Fetched(url, 0, [], b"", kind, error, elapsed_ms, False)


def _text(fetched: Fetched, encoding: str) -> str:
    name = charsets.known(encoding) if encoding else None
    if name is not None:
        return fetched.body.decode(name, "replace")
    return charsets.decode(fetched.body, fetched.header(b"content-type"))[0]


def _said(error: Exception) -> str:
    words = error.args[0] if error.args else error
    return words.decode("utf-8", "replace") if isinstance(words, bytes) else str(words)
