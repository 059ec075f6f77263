"""What all downloaders of one agent share, and the factory of their fetchers."""

from __future__ import annotations

import importlib.util
from typing import Final, Protocol

from apps.agents.downloader.addresses import AddressBook
from apps.agents.downloader.fetchers.address_switch import FetchEngine, SwitchingFetcher
from apps.agents.downloader.fetchers.chromium import BrowserHost, find_chromium
from apps.agents.downloader.fetchers.files import FileFetcher
from apps.agents.downloader.fetchers.options import FetchOptions
from apps.agents.downloader.fetchers.proxies import ProxyPool, ProxySource, validator
from apps.agents.downloader.fetchers.redial import Redialer
from apps.agents.downloader.recorded_run import RecordedRunFetcher
from yardkit.addresses import parse_networks
from yardkit.clock import Clock, SystemClock
from yardkit.fetched import Fetched, OpenSink
from yardkit.fetcher import Fetcher, check_cookies
from yardkit.protocol import DownloaderSettings, DownloaderType, DownloadRequest
from yardkit.recordings.replay import ReplayFetcher

_REMEDIES: Final = {
    DownloaderType.IMPERSONATE: "install its extra: pip install '.[impersonate]'",
    DownloaderType.BROWSER: "install its extra, pip install '.[browser]', and Chromium",
    DownloaderType.FILE: "set AGENT_FILES to the folder they may read",
}
# Types that use the network, and so proxies.
_OF_THE_NET: Final = frozenset(
    {DownloaderType.HTTP, DownloaderType.IMPERSONATE, DownloaderType.BROWSER}
)
_GATED: Final = frozenset({DownloaderType.IMPERSONATE, DownloaderType.BROWSER})


class PageFetcher(Protocol):
    """Fetches the pages of one downloader."""

    async def fetch(self, request: DownloadRequest) -> Fetched:
        """Download one page. Raises nothing but ``asyncio.CancelledError``."""

    async def close(self) -> None:
        """Close every connection."""


class Equipment:
    """Proxies, redialer and browser of one agent. Make it inside its event loop."""

    def __init__(
        self,
        options: FetchOptions | None = None,
        clock: Clock | None = None,
        addresses: AddressBook | None = None,
    ) -> None:
        self._addresses = addresses
        self.options = options or FetchOptions()
        clock = clock or SystemClock()
        self._pool = ProxyPool(
            self.options.proxies, clock=clock, validate=validator(self.options.proxy_check_url)
        )
        self._source = (
            ProxySource(self.options.proxy_source, self.options.proxy_source_seconds, self._pool)
            if self.options.proxy_source
            else None
        )
        self._redialer = Redialer(self.options.redial, clock) if self.options.redial else None
        self._browser = BrowserHost(self.options.browser)

    def open_fetcher(
        self, settings: DownloaderSettings, open_sink: OpenSink | None = None
    ) -> PageFetcher:
        """Return a fetcher for one downloader; inside the event loop.

        ``open_sink``: see ``Fetcher``.

        Raises ``ValueError`` for settings that are invalid or that this agent cannot serve.
        """
        _check(settings)
        if settings.replay.run:
            live = self._open_live(settings, open_sink) if settings.replay.fetch_missing else None
            return RecordedRunFetcher(settings, self._addresses, live)
        recording = self.options.recording
        if recording is None or settings.type not in _OF_THE_NET:
            return self._open_live(settings, open_sink)
        live = self._open_live(settings, open_sink) if self.options.fetches_missing else None
        return ReplayFetcher(recording, settings, live)

    def _open_live(self, settings: DownloaderSettings, open_sink: OpenSink | None) -> PageFetcher:
        if settings.type not in available_types(self.options):
            raise ValueError(
                f"this agent cannot make downloaders of type {settings.type.value}:"
                f" {_REMEDIES[settings.type]}"
            )
        on_the_net = settings.type in _OF_THE_NET
        pool = self._proxies() if settings.use_proxy and on_the_net else None
        redialer = self._line() if settings.redial and on_the_net else None
        # A pattern is searched in the whole text.
        engine = self._engine(settings, None if settings.switch_pattern else open_sink)
        gated = settings.type in _GATED
        if not (pool or redialer or gated or settings.switch_pattern):
            return engine  # the usual case, by the shortest way
        return SwitchingFetcher(
            settings,
            engine,
            networks=parse_networks(settings.allowed_networks),
            always_gated=gated,
            pool=pool,
            redialer=redialer,
            wait_seconds=self.options.proxy_wait_seconds,
        )

    def _engine(self, settings: DownloaderSettings, open_sink: OpenSink | None) -> FetchEngine:
        if settings.type == DownloaderType.IMPERSONATE:
            from apps.agents.downloader.fetchers.impersonate import ImpersonatingFetcher

            return ImpersonatingFetcher(settings)
        if settings.type == DownloaderType.BROWSER:
            from apps.agents.downloader.fetchers.browser import BrowserFetcher

            return BrowserFetcher(settings, self._browser)
        if settings.type == DownloaderType.FILE and self.options.files is not None:
            return FileFetcher(settings, self.options.files)
        return Fetcher(settings, open_sink)

    def held_seconds(self, settings: DownloaderSettings) -> float:
        """Return about how long downloads with these settings wait for a redial; 0.0 if they do
        not.
        """
        if not settings.redial or self._redialer is None:
            return 0.0
        return self._redialer.held_seconds()

    def _proxies(self) -> ProxyPool:
        if not self.options.proxies and self._source is None:
            raise ValueError("use_proxy, but this agent has no proxy: set AGENT_PROXIES there")
        if self._source is not None:
            self._source.start()
        return self._pool

    def _line(self) -> Redialer:
        if self._redialer is None:
            raise ValueError("redial, but this agent cannot: set AGENT_REDIAL_COMMAND there")
        return self._redialer

    async def close(self) -> None:
        """Close the browser, the source of proxies and the redialer."""
        if self._source is not None:
            await self._source.close()
        await self._pool.close()
        if self._redialer is not None:
            await self._redialer.close()
        await self._browser.close()


def available_types(options: FetchOptions | None = None) -> tuple[DownloaderType, ...]:
    """Return the types of downloader an agent with these options can make."""
    options = options or FetchOptions()
    found = [DownloaderType.HTTP, DownloaderType.REPLAY]
    if options.recording is not None and not options.fetches_missing:
        # A recording does not depend on what has loaded the pages.
        found += [DownloaderType.IMPERSONATE, DownloaderType.BROWSER]
        return (*found, *([DownloaderType.FILE] if options.files is not None else []))
    if importlib.util.find_spec("curl_cffi") is not None:
        found.append(DownloaderType.IMPERSONATE)
    if importlib.util.find_spec("playwright") is not None and find_chromium(
        options.browser.executable
    ):
        found.append(DownloaderType.BROWSER)
    if options.files is not None:
        found.append(DownloaderType.FILE)
    return tuple(found)


def _check(settings: DownloaderSettings) -> None:
    """Check for every type what ``Fetcher`` checks for itself."""
    if not 0 < settings.timeout_seconds < float("inf"):
        raise ValueError(f"timeout_seconds is {settings.timeout_seconds}; use more than 0")
    for name, least in (
        ("max_body_bytes", 1),
        ("max_redirects", 0),
        ("concurrency", 1),
        ("switch_retries", 0),
    ):
        value = getattr(settings, name)
        if value < least:
            raise ValueError(f"{name} is {value}; use {least} or more")
    check_cookies(settings.cookies)
