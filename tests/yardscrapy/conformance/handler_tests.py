"""Scrapy's own tests of download handlers, over the platform's handler.

Not a test of this repository: ``suite.py`` runs it with the checkout's package ``tests``, in a
process of its own. CONFORMANCE_LAYER is "fetcher" (the agents' fetcher in this process) or "run"
(broker, center and agents). CONFORMANCE_RUNS names a JSON file with the environments of runs:
settings of the downloader, TLS versions among them, belong to a run.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from scrapy.crawler import Crawler

from yardscrapy import client, options, session
from yardscrapy.handler import AgentDownloadHandler
from yardspider.environment import read_run
from yardspider.transports.local import LocalTransport

_suite = importlib.import_module("tests.utils.bases.download_handlers_http")
_runs: list[dict[str, str]] = json.loads(Path(os.environ["CONFORMANCE_RUNS"]).read_text())
_sessions: dict[bytes, session.Session] = {}

if os.environ["CONFORMANCE_LAYER"] == "fetcher":
    _remote: Any = client
    _remote.RemoteTransport = lambda run, _settings: LocalTransport(run.downloader)


class Handler(AgentDownloadHandler):
    """The platform's handler; each crawler has a run with the settings that it asks for."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Handler:
        settings = crawler.settings.copy()
        settings.frozen = False
        settings.set(options.PROXY, "pass")
        crawler.settings = settings
        wanted = msgspec.json.encode(options.downloader_settings(read_run(_runs[0]), settings))
        session._session = _sessions.get(wanted)
        _sessions[wanted] = session.open_session(_runs[len(_sessions)])  # type: ignore[assignment]
        return cls(crawler)


class _Adapter:
    download_handler_cls = Handler
    settings_dict: ClassVar[dict[str, Any]] = {
        "DOWNLOAD_HANDLERS": dict.fromkeys(("http", "https"), Handler)
    }
    # The choices that the suite offers to handlers.
    handler_supports_bindaddress_meta = False
    handler_bad_header_handling = "fail"
    expected_http_proxy_request_body = b"http://example.com/"


def _define(name: str, base: str = "", **attributes: Any) -> None:
    """Define ``name`` as the suite's ``base``, else its base of this name."""
    bases = (_Adapter, getattr(_suite, f"{base or name}Base"))
    globals()[name] = type(name, bases, {**attributes, "__module__": __name__})


for _name in (
    *("TestHttp", "TestHttps", "TestHttpWithCrawler", "TestHttpProxy"),
    *("TestSimpleHttps", "TestHttpsWrongHostname", "TestHttpsInvalidDNSId"),
    *("TestHttpsInvalidDNSPattern", "TestHttpsCustomCiphers", "TestHttpsDefaultCiphers"),
    "TestHttpsTLSVersion",
):
    _define(_name)
_define("TestHttpsWithCrawler", "TestHttpWithCrawler", is_secure=True)
_define("TestHttpsProxy", "TestHttpProxy", is_secure=True)
_define("TestMitmProxy", pytestmark=pytest.mark.requires_mitmproxy)
