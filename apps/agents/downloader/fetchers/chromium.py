"""The agent's one browser: found, started on demand, ended with the agent."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # the extra "browser" may not be installed
    from playwright.async_api import Browser, Playwright

logger = logging.getLogger(__name__)

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_START_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 1.0
_ARGUMENTS: Final = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
    # No look-up or connection bypasses the egress proxy: no prefetching, no WebRTC.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)


@dataclass(frozen=True, slots=True)
class BrowserOptions:
    """``executable`` "" looks for Debian's Chromium, then Playwright's."""

    executable: str = ""
    pages: int = 4
    sandbox: bool = True


class BrowserHost:
    """The agent's browser: started on demand, restarted after a crash."""

    def __init__(self, options: BrowserOptions) -> None:
        self.options = options
        self.pages = asyncio.Semaphore(options.pages)
        self._starting = asyncio.Lock()
        self._playwright: Playwright | None = None
        self._chromium: Browser | None = None

    async def chromium(self) -> Browser:
        """Return the running browser. Raises Playwright's ``Error`` or ``TimeoutError``."""
        async with self._starting:
            if self._chromium is not None and self._chromium.is_connected():
                return self._chromium
            from playwright.async_api import async_playwright

            async with asyncio.timeout(_START_SECONDS):
                if self._playwright is None:
                    self._playwright = await async_playwright().start()
                self._chromium = await self._playwright.chromium.launch(
                    executable_path=find_chromium(self.options.executable),
                    args=list(_ARGUMENTS),
                    chromium_sandbox=self.options.sandbox,
                    handle_sigint=False,
                    handle_sigterm=False,
                    handle_sighup=False,
                    # Contexts have proxies of their own; anything outside of
                    # a context gets no connection.
                    proxy={"server": "http://127.0.0.1:9", "bypass": "<-loopback>"},
                    timeout=_START_SECONDS * 1000,
                )
            logger.info("browser started: Chromium %s", self._chromium.version)
            return self._chromium

    async def close(self) -> None:
        """End the browser. If the agent is killed, it ends with the broken pipe."""
        playwright, self._playwright = self._playwright, None
        if playwright is None:
            return
        chromium, self._chromium = self._chromium, None
        for end in (chromium.close if chromium is not None else None, playwright.stop):
            if end is None:
                continue
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await end()
            except Exception as error:  # noqa: BLE001 - it may have crashed; it must not stop others
                logger.info("the browser did not close by itself: %s", error)


def find_chromium(executable: str) -> str:
    """Return the path of ``executable`` or of a known Chromium; "" for none."""
    if executable:
        return shutil.which(executable) or ""
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    folder = os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache/ms-playwright"
    return max(map(str, Path(folder).glob("chromium-*/chrome-linux*/chrome")), default="")
