"""Runs outside the platform: plain Scrapy, with items and files in a local dataset on demand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import signals

from yardscrapy import files
from yardscrapy.items import add_item, convert, drop
from yardspider.accounting import CrawlAccounting
from yardspider.outputs import ItemSink, NoItems

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

_LATE = 1_000_000


class LocalItems:
    """Scrapy extension that adds each scraped item to the sink of this process."""

    sink: ItemSink
    accounting: CrawlAccounting

    def __init__(self, crawler: Crawler) -> None:
        self._keeps_files = files.keeps_files(crawler.settings)
        if self._keeps_files:
            files.register_store(self.sink.put_file)
        if not isinstance(self.sink, NoItems):
            crawler.signals.connect(self.item_scraped, signal=signals.item_scraped)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> LocalItems:
        return cls(crawler)

    def item_scraped(self, item: Any, response: Any) -> None:
        values, problem = convert(item, keeps_files=self._keeps_files)
        if problem:
            drop(self.accounting, problem)
        else:
            add_item(self.sink, self.accounting, values, getattr(response, "url", ""))


def open_sink(dataset: Path | None) -> ItemSink:
    """Return the sink of a folder; without one, items go only where the project sends them.

    Raises ``BadInput``.
    """
    LocalItems.accounting = CrawlAccounting()
    if dataset is None:
        return NoItems()
    from yardspider.local_dataset import LocalDataset

    return LocalDataset(dataset, LocalItems.accounting.dropped)


def use(sink: ItemSink, settings: BaseSettings) -> None:
    """Let the crawls of this process add to ``sink``."""
    LocalItems.sink = sink
    added = {**settings.getdict("EXTENSIONS"), LocalItems: _LATE}
    settings.set("EXTENSIONS", added, priority="cmdline")
