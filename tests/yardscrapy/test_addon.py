"""The settings that the add-on changes, and those that it leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy.settings import Settings

from yardkit.protocol import DownloaderSettings, Policy
from yardscrapy import addon, options, session
from yardscrapy.addon import CrawlyardAddon
from yardspider.environment import read_run
from yardspider.errors import BadInput

RUN = {
    "CRAWLYARD_RUN": "7",
    "CRAWLYARD_RUN_TOKEN": "r1.token",
    "BROKER_URL": "sqlite:////nowhere/broker.db",
    "CRAWLYARD_DOWNLOADER": json.dumps({"concurrency": 3, "allowed_networks": ["127.0.0.0/8"]}),
}
AGENTS = "yardscrapy.handler.AgentDownloadHandler"


@pytest.fixture
def on_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The environment of a run; nothing connects before a handler is made."""
    for name, value in RUN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("yardscrapy.addon._CGROUP_LIMIT", tmp_path / "memory.max")
    monkeypatch.setattr(session, "_session", None)
    yield
    opened = session.current()
    if opened is not None:
        opened.client.loop.close()


def changed(**project: Any) -> Settings:
    settings = Settings()
    settings.setdict(project, "project")
    CrawlyardAddon().update_settings(settings)
    return settings


def test_outside_the_platform_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CRAWLYARD_RUN", raising=False)
    monkeypatch.setattr(session, "_session", None)
    settings = changed(ROBOTSTXT_OBEY=True)
    assert settings.copy_to_dict() == {**Settings().copy_to_dict(), "ROBOTSTXT_OBEY": True}
    assert session.current() is None


@pytest.mark.usefixtures("on_platform")
def test_handlers_are_replaced_also_those_of_the_spider() -> None:
    settings = Settings()
    own = {"https": "own.Handler", "foo": "own.Foo", "data": "own.Data", "ftp": None}
    settings.set("DOWNLOAD_HANDLERS", own, "spider")
    settings.set(options.DIRECT_SCHEMES, ["s3"], "project")
    CrawlyardAddon().update_settings(settings)
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    assert (handlers["http"], handlers["https"]) == (AGENTS, AGENTS)
    assert handlers["data"] == "own.Data"
    assert handlers["ftp"] is None
    assert handlers["s3"] == "yardscrapy.handler.DirectDownloadHandler"
    for scheme in ("file", "foo"):
        assert handlers[scheme] == "yardscrapy.handler.RefusedDownloadHandler"
    replaced = settings.getdict(options.REPLACED_HANDLERS)
    assert (replaced["https"], replaced["foo"]) == ("own.Handler", "own.Foo")
    assert settings.getpriority("DOWNLOAD_HANDLERS") == 40


@pytest.mark.usefixtures("on_platform")
def test_robots_txt_has_one_owner_and_no_console_is_open() -> None:
    settings = changed(ROBOTSTXT_OBEY=True)
    assert settings.getbool(options.OBEY_ROBOTS)
    assert not settings.getbool("ROBOTSTXT_OBEY")
    assert not settings.getbool("REMOTE_CONTROL_ENABLED")
    assert not settings.getbool("TELNETCONSOLE_ENABLED")
    extensions = settings.getwithbase("EXTENSIONS")
    assert "scrapy.extensions.closespider.CloseSpider" in extensions
    assert not any("telnet" in path or "remote_control" in path for path in extensions)
    assert not changed().getbool(options.OBEY_ROBOTS)


@pytest.mark.usefixtures("on_platform")
def test_memory_is_limited_below_the_limit_of_the_container(tmp_path: Path) -> None:
    assert changed().getint("MEMUSAGE_LIMIT_MB") == 0
    limit = tmp_path / "memory.max"
    limit.write_text("max\n")
    assert changed().getint("MEMUSAGE_LIMIT_MB") == 0
    limit.write_text(f"{1024**3}\n")
    assert changed().getint("MEMUSAGE_LIMIT_MB") == 870
    assert changed(MEMUSAGE_LIMIT_MB=100).getint("MEMUSAGE_LIMIT_MB") == 100


@pytest.mark.usefixtures("on_platform")
def test_the_center_may_own_politeness() -> None:
    polite = changed(DOWNLOAD_DELAY=2, AUTOTHROTTLE_ENABLED=True)
    assert polite.getint("DOWNLOAD_DELAY") == 2
    settings = changed(DOWNLOAD_DELAY=2, AUTOTHROTTLE_ENABLED=True, CRAWLYARD_POLITENESS="center")
    assert settings.getfloat("DOWNLOAD_DELAY") == 0
    assert not settings.getbool("AUTOTHROTTLE_ENABLED")
    assert settings.getint("CONCURRENT_REQUESTS") == 100


@pytest.mark.usefixtures("on_platform")
@pytest.mark.parametrize("name", sorted(options.CHOICES))
def test_a_setting_with_choices_takes_no_other(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name} is 'never'; use one of "):
        changed(**{name: "never"})


@pytest.mark.usefixtures("on_platform")
def test_only_a_chained_run_has_the_middleware(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "yardscrapy.middleware.ChainedMiddleware"
    own = {"own.Middleware": 5}
    assert name not in changed(SPIDER_MIDDLEWARES=own).getdict("SPIDER_MIDDLEWARES")
    opened = session.current()
    assert opened is not None
    opened.client.loop.close()
    monkeypatch.setattr(session, "_session", None)
    monkeypatch.setenv("CRAWLYARD_POLICY", Policy.CHAINED)
    middlewares = changed(SPIDER_MIDDLEWARES=own).getdict("SPIDER_MIDDLEWARES")
    assert middlewares == {**own, name: 0}


def test_the_downloader_gives_raw_answers() -> None:
    settings = Settings()
    settings.setdict({"DOWNLOAD_TIMEOUT": 60, options.OBEY_ROBOTS: True, "USER_AGENT": "bot"})
    made = options.downloader_settings(read_run(RUN), settings)
    assert (made.concurrency, made.allowed_networks) == (3, ["127.0.0.0/8"])
    assert made.exact_headers
    assert made.raw_bodies
    assert (made.follow_redirects, made.use_cookies, made.verify_tls) == (False, False, False)
    assert (made.timeout_seconds, made.obey_robots, made.user_agent) == (60, True, "bot")
    assert (made.tls_minimum, made.tls_maximum, made.tls_ciphers) == ("", "", "")
    assert DownloaderSettings().verify_tls


@pytest.mark.parametrize(
    ("project", "expected"),
    [
        ({"DOWNLOAD_VERIFY_CERTIFICATES": True}, (True, "", "", "")),
        (
            {"DOWNLOADER_CLIENTCONTEXTFACTORY": "scrapy.core.x.BrowserLikeContextFactory"},
            (True, "", "", ""),
        ),
        ({"DOWNLOADER_CLIENT_TLS_METHOD": "TLSv1.2"}, (False, "TLSv1.2", "TLSv1.2", "")),
        ({"DOWNLOADER_CLIENT_TLS_METHOD": "TLSv1.0"}, (False, "TLSv1", "TLSv1", "")),
        ({"DOWNLOAD_TLS_MIN_VERSION": "TLSv1.3"}, (False, "TLSv1.3", "", "")),
        ({"DOWNLOAD_TLS_MIN_VERSION": "TLSv1.0"}, (False, "TLSv1", "", "")),
        ({"DOWNLOADER_CLIENT_TLS_CIPHERS": "AES256-SHA"}, (False, "", "", "AES256-SHA")),
    ],
)
def test_tls_is_as_the_project_has_it(
    project: dict[str, Any], expected: tuple[bool, str, str, str]
) -> None:
    settings = Settings()
    settings.setdict(project)
    made = options.downloader_settings(read_run(RUN), settings)
    assert (made.verify_tls, made.tls_minimum, made.tls_maximum, made.tls_ciphers) == expected


@pytest.mark.parametrize("name", ["DOWNLOAD_TLS_MIN_VERSION", "DOWNLOAD_TLS_MAX_VERSION"])
def test_an_unknown_version_of_tls_is_refused_in_scrapys_words(name: str) -> None:
    with pytest.raises(ValueError, match=f"Unknown {name} value: SSLv9"):
        options.downloader_settings(read_run(RUN), Settings({name: "SSLv9"}))


def test_the_command_names_the_add_on() -> None:
    assert f"{CrawlyardAddon.__module__}.{CrawlyardAddon.__qualname__}" == addon.PATH
