"""Checks what Scrapy does not document and yardscrapy uses, with the Scrapy of this interpreter.

Prints {name: problem} as JSON; "" is no problem. Each check runs the code of yardscrapy that uses
the name, within a crawl of ``data:`` URLs.
"""

from __future__ import annotations

import io
import json
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final

from scrapy import Request, Spider, signals
from scrapy.core.downloader.handlers import DownloadHandlers
from scrapy.http import Headers, HtmlResponse, Response
from scrapy.pipelines.files import FilesPipeline
from scrapy.responsetypes import responsetypes
from scrapy.settings import Settings
from scrapy.utils.conf import closest_scrapy_cfg

from yardscrapy import cli, counters, extension, failures, files, texts, versions
from yardscrapy.handler import AgentDownloadHandler
from yardscrapy.request_rows import EndedRequest
from yardspider.files import RunFile

_PAGES: Final = 6


class _Events:
    """Counts the requests that the downloader of the crawl has seen."""

    def __init__(self) -> None:
        self.seen = 0

    def started(self) -> None:
        self.seen += 1

    def replaced(self) -> None: ...

    def failed(self, ended: EndedRequest) -> None: ...

    def succeeded(self, ended: EndedRequest) -> None: ...


class Probe(Spider):
    """Looks at its crawler from its callbacks."""

    name = "probe"
    start_urls = ["data:,0"]
    events = _Events()
    queued: int = 0
    problems: Final[dict[str, str]] = {}
    reason = ""

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Probe:
        counters.set_tracker(crawler, counters.RequestTracker(cls.events))
        probe = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(probe.scheduled, signals.request_scheduled)
        return probe

    @property
    def control(self) -> Any:
        """What the methods of ``CrawlControl`` need that are tried."""
        return SimpleNamespace(
            _crawler=self.crawler,
            _is_open=True,
            stop_reason="stopped",
            failure=None,
            _hurry=lambda reason: None,
        )

    def scheduled(self, request: Request) -> None:
        """Look at the queue of the paused crawl, before the request is added."""
        if request.url == f"data:,{_PAGES - 1}":
            Probe.queued = extension.CrawlControl.queued(self.control)
            self.crawler.engine.unpause()

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Request]:
        if response.url == "data:,0":
            for check in (_scraper, _running, _pause, _store):
                _note(check, self.crawler, response, self.control)
            for number in range(1, _PAGES):
                yield Request(f"data:,{number}")
        elif self.events.seen == _PAGES:
            extension.CrawlControl._close(self.control)

    def closed(self, reason: str) -> None:
        Probe.reason = reason


def _note(check: Callable[..., None], *arguments: Any) -> None:
    try:
        check(*arguments)
    except Exception:  # noqa: BLE001 - any end of a check is its problem
        Probe.problems[NAMES[check]] = traceback.format_exc()
    else:
        Probe.problems[NAMES[check]] = ""


def _scraper(crawler: Any, response: Response, control: Any) -> None:
    assert extension.CrawlControl._in_scraper(control, response.request)  # type: ignore[arg-type]
    assert not extension.CrawlControl._in_scraper(control, Request("data:,other"))


def _running(crawler: Any, response: Response, control: Any) -> None:
    assert crawler.engine.running is True
    assert crawler.engine.spider is crawler.spider


def _pause(crawler: Any, response: Response, control: Any) -> None:
    crawler.engine.pause()
    assert crawler.engine.paused


def _store(crawler: Any, response: Response, control: Any) -> None:
    stored: list[RunFile] = []
    files.register_store(stored.append)
    pipeline: Any = FilesPipeline.from_crawler(crawler)
    pipeline.store.persist_file("full/a", io.BytesIO(b"abc"), None)
    assert [file.name for file in stored] == ["full/a"]


def _close() -> None:
    assert Probe.reason == "shutdown", Probe.reason


def _queue() -> None:
    assert Probe.queued == _PAGES - 2, Probe.queued


def _fetch() -> None:
    assert Probe.events.seen == _PAGES, Probe.events.seen


def _response_type() -> None:
    html = Headers({"Content-Type": "text/html"})
    kind = responsetypes.from_args(headers=html, url="http://a.test/", body=b"")
    assert kind is HtmlResponse


def _interface() -> None:
    """2.14 documents handlers of coroutines; before, they return a Deferred and take a spider."""
    asynchronous = hasattr(DownloadHandlers, "download_request_async")
    assert versions.HANDLERS_ARE_COROUTINES is asynchronous
    assert versions.is_coroutine_handler(AgentDownloadHandler) is asynchronous
    assert failures.HAS_OWN_EXCEPTIONS is (versions.VERSION >= (2, 15))


def _command() -> None:
    settings = Settings()
    name, arguments = cli._read_words(["shop", "-a", "page=3", "-s", "DEPTH_LIMIT=2"], settings)
    assert (name, arguments) == ("shop", {"page": "3"})
    assert settings.getint("DEPTH_LIMIT") == 2


def _project() -> None:
    with TemporaryDirectory() as folder:
        inner = Path(folder).resolve() / "inner"
        inner.mkdir()
        config = inner.parent / "scrapy.cfg"
        config.write_text("[settings]\n")
        os.chdir(inner)
        assert closest_scrapy_cfg() == str(config)
        assert cli._project_settings() is not None
        config.unlink()
        assert closest_scrapy_cfg() == ""
        os.chdir("/")


def _lines() -> None:
    """The lines of a version that has them are taken from it, those of 2.11 are ours."""
    request = Request("http://a.test/")
    private = texts._SCRAPY
    for expected in (True, False):
        for ours, name in (
            (texts.maxsize, "get_maxsize_msg"),
            (texts.warnsize, "get_warnsize_msg"),
        ):
            line = ours(5, 3, request, expected=expected)
            assert "(3)" in line
            if private is not None:
                assert line == getattr(private, name)(5, 3, request, expected=expected)
    line = texts.dataloss("http://a.test/")
    assert "Got data loss in http://a.test/" in line
    if private is not None:
        assert line == private.get_dataloss_msg("http://a.test/")


# The names as docs/scrapy.md lists them.
NAMES: Final[dict[Callable[..., None], str]] = {
    _lines: "scrapy.utils._download_handlers",
    _response_type: "scrapy.responsetypes.responsetypes.from_args",
    _fetch: "scrapy.core.downloader.Downloader.fetch",
    _queue: "ExecutionEngine.scheduler, slot, _slot",
    _scraper: "ExecutionEngine.scraper.slot.active",
    _running: "ExecutionEngine.running, spider",
    _pause: "ExecutionEngine.pause, unpause",
    _close: "ExecutionEngine.close_spider, close_spider_async",
    _store: "FilesPipeline.STORE_SCHEMES",
    _command: "scrapy.commands.crawl.Command",
    _interface: "DownloadHandlers.download_request",
    _project: "scrapy.utils.conf.closest_scrapy_cfg, scrapy.utils.project.inside_project",
}


def main() -> None:
    settings = Settings(
        {
            "CONCURRENT_REQUESTS": 1,
            "DOWNLOADER": counters.counting_downloader("scrapy.core.downloader.Downloader"),
            "FILES_STORE": "crawlyard://",
            "LOG_ENABLED": False,
            "REMOTE_CONTROL_ENABLED": False,
            "TELNETCONSOLE_ENABLED": False,
        }
    )
    process = cli._process(settings)
    process.crawl(Probe)
    process.start()
    for check in (_close, _queue, _fetch, _response_type, _interface, _command, _lines, _project):
        _note(check)
    print(json.dumps(Probe.problems))


if __name__ == "__main__":
    main()
