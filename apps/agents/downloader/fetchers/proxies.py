"""The proxies of one agent: selection, rest, validation and removal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from apps.agents.downloader.fetchers.dialer import ProxyAddress
from apps.agents.downloader.fetchers.egress_proxy import EgressProxy
from yardkit.addresses import parse_networks
from yardkit.clock import Clock
from yardkit.fetcher import Fetcher
from yardkit.protocol import DownloaderSettings, DownloadRequest

logger = logging.getLogger(__name__)

REUSE_SECONDS_A_FAILURE: Final = 0.5
FAILURES_TO_VALIDATE: Final = 3
FAILURES_TO_DROP: Final = 6
# A dropped one may come back after this, if its list still contains it.
DROPPED_SECONDS: Final = 600.0
CHECK_SECONDS: Final = 10.0
MOST_PROXIES: Final = 10_000
MOST_SOURCE_BYTES: Final = 1024 * 1024
# For URLs of the agent's own settings.
ANYWHERE: Final = ("0.0.0.0/0", "::/0")
Validate = Callable[[ProxyAddress], Awaitable[bool]]


class NoProxyFree(Exception):
    """No proxy became free within the limit."""


@dataclass(slots=True)
class _PooledProxy:
    address: ProxyAddress
    failures: int = 0
    used_at: float = 0.0
    free_at: float = 0.0
    validating: bool = False


class ProxyPool:
    """Selects the proxy with the fewest failures that has rested longest.

    A proxy may serve several downloads at once. After a failure it rests 0.5 s times its failures;
    each success takes one away. At every third failure it is validated, if ``validate`` is given:
    if that fails it is dropped, else its failures are reset. Six failures drop it as well.

    Args:
        validate: returns whether a proxy works; None when no URL to check is configured.
    """

    def __init__(
        self, addresses: Sequence[ProxyAddress], *, clock: Clock, validate: Validate | None = None
    ) -> None:
        self._own = tuple(addresses)
        self._clock = clock
        self._validate = validate
        self._entries: dict[ProxyAddress, _PooledProxy] = {}
        self._dropped: dict[ProxyAddress, float] = {}
        self._listed: tuple[ProxyAddress, ...] = ()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.set_listed(())

    @property
    def addresses(self) -> tuple[ProxyAddress, ...]:
        """All usable proxies."""
        return tuple(self._entries)

    @property
    def blames_the_way(self) -> bool:
        """Whether broken connections count against a proxy: a check can show whose fault they
        were.
        """
        return self._validate is not None

    def set_listed(self, addresses: Iterable[ProxyAddress]) -> None:
        """Replace the proxies of the source; configured ones stay."""
        self._listed = tuple(addresses)[:MOST_PROXIES]
        self._refill()

    def _refill(self) -> None:
        now = self._clock.monotonic()
        for address, until in list(self._dropped.items()):
            if now >= until:
                del self._dropped[address]
        wanted = dict.fromkeys((*self._own, *self._listed))
        for address in [entry for entry in self._entries if entry not in wanted]:
            del self._entries[address]
        for address in wanted:
            if address not in self._dropped and address not in self._entries:
                self._entries[address] = _PooledProxy(address)
        self._wake()

    async def take(self, seconds: float) -> ProxyAddress:
        """Wait for the next proxy. Raises ``NoProxyFree``."""
        until = self._clock.monotonic() + seconds
        while True:
            now = self._clock.monotonic()
            if any(now >= again for again in self._dropped.values()):
                self._refill()
            entry = self._best(now)
            if entry is not None:
                entry.used_at = now
                return entry.address
            if now >= until:
                raise NoProxyFree("no proxy is free")
            await self._wait(min(until, self._next_free(until)) - now)

    def _best(self, now: float) -> _PooledProxy | None:
        free = [
            entry
            for entry in self._entries.values()
            if not entry.validating and entry.free_at <= now
        ]
        return min(free, key=lambda one: (one.failures, one.used_at), default=None)

    def _next_free(self, until: float) -> float:
        times = [entry.free_at for entry in self._entries.values() if not entry.validating]
        return min([*times, *self._dropped.values()], default=until)

    async def _wait(self, seconds: float) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.001, seconds)):
                await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()

    def succeeded(self, address: ProxyAddress) -> None:
        """Count a success."""
        entry = self._entries.get(address)
        if entry is not None and entry.failures:
            entry.failures -= 1

    def failed(self, address: ProxyAddress) -> None:
        """Count a failure: the proxy rests, is validated, or dropped."""
        entry = self._entries.get(address)
        if entry is None or entry.validating:
            return
        entry.failures += 1
        entry.free_at = self._clock.monotonic() + REUSE_SECONDS_A_FAILURE * entry.failures
        if entry.failures >= FAILURES_TO_DROP:
            self.drop(address, f"{entry.failures} failures")
        elif entry.failures % FAILURES_TO_VALIDATE == 0 and self._validate is not None:
            entry.validating = True
            task = asyncio.ensure_future(self._revalidate(entry, self._validate))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def drop(self, address: ProxyAddress, reason: str) -> None:
        """Remove a proxy for at least ten minutes."""
        if self._entries.pop(address, None) is not None:
            logger.warning("proxy %s dropped: %s; %d left", address, reason, len(self._entries))
        self._dropped[address] = self._clock.monotonic() + DROPPED_SECONDS
        self._wake()

    async def _revalidate(self, entry: _PooledProxy, validate: Validate) -> None:
        works = await validate(entry.address)
        entry.validating = False
        if works:
            entry.failures = 0
            entry.free_at = 0.0
            logger.info("proxy %s works, it is used again", entry.address)
            self._wake()
        elif self._entries.get(entry.address) is entry:
            self.drop(entry.address, f"{entry.failures} failures, and the check fails as well")

    async def close(self) -> None:
        """Cancel validations."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class ProxySource:
    """Fills a pool from a URL with one proxy a line."""

    def __init__(self, url: str, seconds: float, pool: ProxyPool) -> None:
        self._url = url
        self._seconds = seconds
        self._pool = pool
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Fetch the list now and periodically; a second call does nothing."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._keep_fetching())

    async def close(self) -> None:
        """Stop fetching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_fetching(self) -> None:
        while True:
            await self.fetch()
            await asyncio.sleep(self._seconds)

    async def fetch(self) -> None:
        """Fetch the list once. Nothing changes when the source is unreachable."""
        status, text = await ask(self._url)
        if not 200 <= status < 300:
            logger.warning("the proxy source does not answer (%s); the list stays", status or text)
            return
        found, bad = read_list(text)
        if bad:
            logger.warning("proxy source has %d invalid lines", bad)
        self._pool.set_listed(found)


def read_list(text: str) -> tuple[list[ProxyAddress], int]:
    """Return (the proxies of a text with one a line, the number of invalid lines)."""
    found: list[ProxyAddress] = []
    bad = 0
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            found.append(ProxyAddress.parse(line))
        except ValueError:
            bad += 1
    return found, bad


async def ask(url: str, proxy: ProxyAddress | None = None) -> tuple[int, str]:
    """GET a URL of the agent's settings; return (status, text), or (0, the error)."""
    settings = DownloaderSettings(
        timeout_seconds=CHECK_SECONDS,
        max_body_bytes=MOST_SOURCE_BYTES,
        allowed_networks=list(ANYWHERE),
    )
    fetcher = Fetcher(settings)
    gate = EgressProxy(parse_networks(ANYWHERE), proxy) if proxy is not None else None
    try:
        if gate is not None:
            await gate.open()
        fetched = await fetcher.fetch(DownloadRequest(url=url), gate)
    finally:
        await fetcher.close()
        if gate is not None:
            await gate.close()
    return fetched.status, fetched.error or fetched.body.decode("utf-8", "replace")


def validator(check_url: str) -> Validate | None:
    """Return a check of a proxy against ``check_url``; None without one."""
    if not check_url:
        return None

    async def works(address: ProxyAddress) -> bool:
        status, _ = await ask(check_url, address)
        return 200 <= status < 400

    return works
