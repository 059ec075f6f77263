"""Local runs that take their pages from a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import urldefrag, urlsplit

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.settings import BaseSettings
from twisted.internet.defer import succeed

from yardkit.fetched import result_of
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind
from yardkit.recordings import Recording, RecordingError, open_recording
from yardkit.recordings.replay import Replay
from yardscrapy import options
from yardscrapy.addon import ORDER, leave_politeness, set_last
from yardscrapy.client import ClientResult
from yardscrapy.handler import DownloadHandlerBase
from yardscrapy.responses import ResponseMaker
from yardspider.errors import BadInput

_HANDLER: Final = "yardscrapy.replay.ReplayDownloadHandler"
_ADDON: Final = "yardscrapy.replay.ReplayAddon"
_REPLAYED: Final = ("http", "https")
# Nothing is connected to for these.
_HARMLESS: Final = frozenset({"data", "file"})
# Redirects, cookies and encodings are Scrapy's.
_RAW: Final = DownloaderSettings(raw_bodies=True, follow_redirects=False)


class ReplayDownloadHandler(DownloadHandlerBase):
    """Handler of http and https. Class attributes are those of the process."""

    recording: Recording
    fetches_missing = False

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._replay = Replay(self.recording, _RAW)
        self._responses = ResponseMaker(crawler, chained=False)

    def _download(self, request: Request) -> Any:
        url = urldefrag(request.url)[0]
        asked = DownloadRequest(
            url=url,
            method=request.method,
            body=request.body,
            max_bytes=self._responses.maxsize(request),
        )
        fetched = self._replay.answer(asked)
        if fetched.failure is FailureKind.NOT_RECORDED:
            if self.fetches_missing:
                return self._direct.download(request, urlsplit(url).scheme)
            if urlsplit(url).path == "/robots.txt":
                # Everything is allowed then, without an error in the log.
                raise IgnoreRequest(fetched.error)
        result = result_of(0, 1, fetched, fetched.body)
        answer = ClientResult(result, "", fetched.error, fetched.failure)
        return succeed(self._responses.response(request, url, answer))


class ReplayAddon:
    """Puts the handler in the place of the project's, last of all add-ons."""

    def update_settings(self, settings: BaseSettings) -> None:
        base = settings.getwithbase("DOWNLOAD_HANDLERS")
        handlers = {scheme: path for scheme, path in base.items() if path is not None}
        replaced: dict[str, Any] = dict.fromkeys(_REPLAYED, _HANDLER)
        if not ReplayDownloadHandler.fetches_missing:
            replaced |= dict.fromkeys(handlers.keys() - set(_REPLAYED) - _HARMLESS)
        set_last(settings, options.REPLACED_HANDLERS, handlers)
        own = settings.getdict("DOWNLOAD_HANDLERS")
        set_last(settings, "DOWNLOAD_HANDLERS", {**own, **replaced})
        leave_politeness(settings)


def use(path: Path, settings: BaseSettings, *, fetches_missing: bool) -> None:
    """Let the crawls of this process take their pages from a recording. Raises ``BadInput``."""
    try:
        ReplayDownloadHandler.recording = open_recording(path)
    except RecordingError as error:
        raise BadInput(f"--replay {error}") from error
    ReplayDownloadHandler.fetches_missing = fetches_missing
    addons = {**settings.getdict("ADDONS"), _ADDON: ORDER}
    settings.set("ADDONS", addons, priority="cmdline")
