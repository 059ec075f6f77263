"""Scrapy add-on that connects a project to the platform.

``yardscrapy crawl`` appends it last to ``ADDONS``, so that it sees the settings of the project, of
the spider (``custom_settings``) and of every other add-on. Outside the platform it does nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from scrapy.settings import BaseSettings

from yardscrapy import options
from yardscrapy.session import open_session

PATH: Final = "yardscrapy.addon.CrawlyardAddon"
# After all others.
ORDER: Final = 100_000
# What a command line sets has this priority; only that outlasts `custom_settings`.
_PRIORITY: Final = "cmdline"
_BY_AGENTS: Final = ("http", "https")
# Not a download: the content is in the URL.
_HARMLESS: Final = frozenset({"data"})
_CONSOLES: Final = frozenset(
    {"scrapy.extensions.remote_control.RemoteControl", "scrapy.extensions.telnet.TelnetConsole"}
)
_AGENT_HANDLER: Final = "yardscrapy.handler.AgentDownloadHandler"
_DIRECT_HANDLER: Final = "yardscrapy.handler.DirectDownloadHandler"
_REFUSED_HANDLER: Final = "yardscrapy.handler.RefusedDownloadHandler"
_CHAINED: Final = "yardscrapy.middleware.ChainedMiddleware"
# Nearest to the engine, so that it sees requests of every other middleware.
_CHAINED_ORDER: Final = 0
# Of the run's limit, so that a crawl ends in order before the kernel kills it.
_MEMORY_SHARE: Final = 0.85
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


class CrawlyardAddon:
    """Puts the platform's handlers in the place of the project's."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Change the settings of one crawler. Raises ``BadInput`` and ``EnvError``."""
        session = open_session(os.environ)
        if session is None:
            return
        for name in options.CHOICES:
            options.choice(settings, name)
        _replace_handlers(settings)
        _take_robots(settings)
        _close_consoles(settings)
        _limit_memory(settings)
        if options.choice(settings, options.POLITENESS) == "center":
            leave_politeness(settings)
        if session.client.chained:
            _add_component(settings, "SPIDER_MIDDLEWARES", _CHAINED, _CHAINED_ORDER)


def _replace_handlers(settings: BaseSettings) -> None:
    base = settings.getwithbase("DOWNLOAD_HANDLERS")
    handlers = {scheme: path for scheme, path in base.items() if path is not None}
    allowed = set(settings.getlist(options.DIRECT_SCHEMES))
    replaced: dict[str, Any] = dict.fromkeys(_BY_AGENTS, _AGENT_HANDLER)
    for scheme in handlers.keys() - set(_BY_AGENTS) - _HARMLESS:
        replaced[scheme] = _DIRECT_HANDLER if scheme in allowed else _REFUSED_HANDLER
    set_last(settings, options.REPLACED_HANDLERS, handlers)
    set_last(settings, "DOWNLOAD_HANDLERS", {**settings.getdict("DOWNLOAD_HANDLERS"), **replaced})


def _take_robots(settings: BaseSettings) -> None:
    """Let the center obey robots.txt, for all runs at once, in place of Scrapy's middleware."""
    set_last(settings, options.OBEY_ROBOTS, settings.getbool("ROBOTSTXT_OBEY"))
    set_last(settings, "ROBOTSTXT_OBEY", False)


def _close_consoles(settings: BaseSettings) -> None:
    for name in ("REMOTE_CONTROL_ENABLED", "TELNETCONSOLE_ENABLED"):
        set_last(settings, name, False)
    # Removed as well: the import of RemoteControl alone takes 8 MB, for aiohttp.
    base = settings.getdict("EXTENSIONS_BASE").items()
    left = {path: order for path, order in base if path not in _CONSOLES}
    set_last(settings, "EXTENSIONS_BASE", left)


def _limit_memory(settings: BaseSettings) -> None:
    if settings.getint("MEMUSAGE_LIMIT_MB"):
        return
    limit = _memory_limit()
    if limit:
        set_last(settings, "MEMUSAGE_LIMIT_MB", int(limit * _MEMORY_SHARE / 1024**2))


def _memory_limit() -> int:
    """Return the bytes that this container may use; 0 without a limit."""
    try:
        text = _CGROUP_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


def leave_politeness(settings: BaseSettings) -> None:
    """Let the center alone space out requests, by the limits of hosts over all runs."""
    for name in ("DOWNLOAD_DELAY", "AUTOTHROTTLE_ENABLED", "CONCURRENT_REQUESTS_PER_IP"):
        set_last(settings, name, 0)
    set_last(settings, "CONCURRENT_REQUESTS", max(settings.getint("CONCURRENT_REQUESTS"), 100))
    set_last(settings, "CONCURRENT_REQUESTS_PER_DOMAIN", settings.getint("CONCURRENT_REQUESTS"))


def _add_component(settings: BaseSettings, name: str, path: str, order: int) -> None:
    set_last(settings, name, {**settings.getdict(name), path: order})


def set_last(settings: BaseSettings, name: str, value: Any) -> None:
    """Set what outlasts the settings of the project and of the spider."""
    settings.set(name, value, _PRIORITY)
