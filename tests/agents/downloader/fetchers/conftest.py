"""Fetchers of every type, as an agent makes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from apps.agents.downloader.fetchers import Equipment, FetchOptions, PageFetcher
from apps.agents.downloader.fetchers.chromium import BrowserOptions
from tests.plugins.markers import CHROMIUM
from yardkit import addresses
from yardkit.fetched import Fetched
from yardkit.protocol import DownloaderSettings, DownloadRequest

LOOPBACK = ["127.0.0.0/8"]


class Opener:
    """Opens fetchers on one agent's equipment; the fixture closes them."""

    def __init__(self) -> None:
        self.equipments: list[Equipment] = []
        self.fetchers: list[PageFetcher] = []

    def equip(self, **options: Any) -> Equipment:
        # Continuous builds let no process make a sandbox.
        options.setdefault("browser", BrowserOptions(CHROMIUM, sandbox=False))
        self.equipments.append(Equipment(FetchOptions(**options)))
        return self.equipments[-1]

    def __call__(
        self, kind: str = "http", equipment: Equipment | None = None, **changes: Any
    ) -> PageFetcher:
        changes = {"allowed_networks": LOOPBACK, "timeout_seconds": 30.0} | changes
        settings = msgspec.convert({"type": kind} | changes, DownloaderSettings)
        if equipment is None:
            equipment = self.equipments[0] if self.equipments else self.equip()
        self.fetchers.append(equipment.open_fetcher(settings))
        return self.fetchers[-1]


@pytest.fixture
async def opener() -> AsyncIterator[Opener]:
    opener = Opener()
    yield opener
    for fetcher in opener.fetchers:
        await fetcher.close()
    for equipment in opener.equipments:
        await equipment.close()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What names resolve to, instead of the system's answer."""
    known: dict[str, list[str]] = {}

    def resolve(name: str) -> list[str]:
        if name not in known:
            raise OSError(f"no {name}")
        return known[name]

    monkeypatch.setattr(addresses, "resolve_name", resolve)
    return known


async def get(fetcher: PageFetcher, url: str, **changes: Any) -> Fetched:
    """Fetch, and check that the answer fits into a message."""
    fetched = await fetcher.fetch(DownloadRequest(url=url, **changes))
    msgspec.msgpack.encode(
        [fetched.url, fetched.headers, fetched.body, fetched.error, fetched.failure]
    )
    if fetched.failure:
        assert fetched.status == 0
        assert fetched.error
    return fetched
