"""A page that waits."""

from __future__ import annotations

import asyncio

from tests.yardkit.web_server import Seen, page


class Gate:
    """A page that is answered when the test opens it."""

    def __init__(self) -> None:
        self.waiting = 0
        self.opened = asyncio.Event()

    async def __call__(self, seen: Seen) -> bytes:
        self.waiting += 1
        await self.opened.wait()
        return page(b"late")
