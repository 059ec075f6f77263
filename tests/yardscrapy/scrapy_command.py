"""Scrapy's own command line, which writes the statistics of the crawl into a file at the end."""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    path, *arguments = sys.argv[1:]
    from pydispatch import dispatcher
    from scrapy import cmdline, signals

    def write(spider: Any, reason: str) -> None:
        stats = spider.crawler.stats.get_stats()
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**stats, "reason": reason}, file, default=str)

    from scrapy.crawler import Crawler

    applied = Crawler._apply_settings

    def apply(crawler: Any) -> None:
        applied(crawler)
        crawler.signals.connect(write, signals.spider_closed, weak=False)

    Crawler._apply_settings = apply  # type: ignore[method-assign]
    assert dispatcher
    cmdline.execute(["scrapy", *arguments])


if __name__ == "__main__":
    main()
