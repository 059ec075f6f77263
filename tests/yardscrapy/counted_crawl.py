"""Crawls with a spider of ``market``, and prints what happened to its requests as JSON.

python -m tests.yardscrapy.counted_crawl SPIDER SITE NAME=VALUE...
"""

from __future__ import annotations

import json
import sys
from typing import Any

from scrapy import signals
from scrapy.utils.project import get_project_settings

from yardscrapy import counters
from yardscrapy.request_rows import EndedRequest


class Recorder:
    """Remembers outcomes. ``open``: requests without one."""

    def __init__(self) -> None:
        self.open = 0
        self.counts = {"started": 0, "replaced": 0, "succeeded": 0}
        self.failures: list[tuple[str, int, str]] = []

    def started(self) -> None:
        self.open += 1
        self.counts["started"] += 1

    def replaced(self) -> None:
        self.open -= 1
        self.counts["replaced"] += 1

    def succeeded(self, ended: EndedRequest) -> None:
        self.open -= 1
        self.counts["succeeded"] += 1

    def failed(self, ended: EndedRequest) -> None:
        self.open -= 1
        self.failures.append((ended.url, ended.status, ended.reason))


recorder = Recorder()
tracker = counters.RequestTracker(recorder)


class Connect:
    """Extension that does what the platform's does with items."""

    def __init__(self, crawler: Any) -> None:
        self.crawler = crawler
        counters.set_tracker(crawler, tracker)
        for signal in (signals.item_scraped, signals.item_dropped, signals.item_error):
            crawler.signals.connect(self.item_settled, signal=signal)
        crawler.signals.connect(self.closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Any) -> Connect:
        return cls(crawler)

    def item_settled(self, response: Any) -> None:
        tracker.item_settled(response)

    def closed(self) -> None:
        tracker.sweep(lambda request: False, at_end=True)


def main() -> None:
    name, site, *pairs = sys.argv[1:]
    settings = get_project_settings()
    settings.set("DOWNLOADER", counters.counting_downloader(settings["DOWNLOADER"]))
    settings.set("EXTENSIONS", {Connect: 1})
    settings.set("LOG_ENABLED", False)
    settings.set("TELNETCONSOLE_ENABLED", False)
    settings.set("REMOTE_CONTROL_ENABLED", False)
    settings.set(
        "SPIDER_MIDDLEWARES",
        {counters.OuterSpiderMiddleware: -1_000_000, counters.InnerSpiderMiddleware: 1_000_000},
    )
    settings.setdict(dict(pair.split("=", 1) for pair in pairs))
    from scrapy.crawler import CrawlerProcess

    process = CrawlerProcess(settings)
    process.crawl(name, site=site)
    process.start()
    told = {**recorder.counts, "open": recorder.open, "failures": recorder.failures}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
