"""The run that this process executes: its environment, its connection, its items."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scrapy.settings import BaseSettings

from yardscrapy import options
from yardscrapy.client import DownloadClient
from yardspider.accounting import CrawlAccounting
from yardspider.environment import RunEnvironment, on_platform, read_run, read_run_dir
from yardspider.item_publisher import ItemPublisher
from yardspider.settings import SpiderSettings

_EXIT_SECONDS = 2.0


@dataclass
class Session:
    """One run; there is one a process, also with several crawlers.

    ``accounting`` and ``items`` belong to the client's thread.
    """

    run: RunEnvironment
    run_dir: Path | None
    client: DownloadClient
    items: ItemPublisher
    accounting: CrawlAccounting = field(default_factory=CrawlAccounting)
    _is_started: bool = False

    def start(self, settings: BaseSettings) -> None:
        """Connect and allocate agents, as the first crawler's settings ask for."""
        if not self._is_started:
            self._is_started = True
            downloader = options.downloader_settings(self.run, settings)
            self.client.configure(downloader, options.spider_settings(self.run, settings))
            self.client.start()


_session: Session | None = None


def open_session(environ: Mapping[str, str]) -> Session | None:
    """Return the session, made by the first call; None outside the platform.

    Raises ``EnvError``.
    """
    global _session
    if _session is None and on_platform(environ):
        run = read_run(environ)
        accounting = CrawlAccounting()
        settings = SpiderSettings()
        client = DownloadClient(run, run.downloader, settings, accounting)
        items = ItemPublisher(run, settings, accounting.dropped)
        items.connect(client, lambda: None)
        _session = Session(run, read_run_dir(environ), client, items, accounting)
        # Of a process that ends in another way than by `yardscrapy crawl`.
        atexit.register(client.close, _EXIT_SECONDS)
    return _session


def current() -> Session | None:
    """Return the session if it is open."""
    return _session
