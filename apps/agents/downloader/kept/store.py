"""Uploads files of kept pages by signed addresses of the center."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import aiohttp

from apps.agents.downloader.addresses import AddressBook, NoAddress
from apps.agents.downloader.kept.keeper import UploadFailed
from yardkit import failpoints
from yardkit.errors import first_line
from yardkit.protocol import ObjectKind

# Of a file of 40 MB on a slow line; nothing waits for it.
_UPLOAD_SECONDS: Final = 300.0


class SignedPageStore:
    """Store of pages behind the addresses of one agent."""

    def __init__(self, addresses: AddressBook) -> None:
        self._addresses = addresses

    async def upload(self, run: int, token: str, path: Path) -> str:
        """Store a file; return the key of its object. Raises ``UploadFailed``."""
        try:
            target = await self._addresses.take(run, ObjectKind.PAGES, token)
        except NoAddress as error:
            raise UploadFailed(str(error)) from error
        failpoints.hit("agent.before_upload")
        timeout = aiohttp.ClientTimeout(total=_UPLOAD_SECONDS)
        try:
            with path.open("rb") as file:
                async with (
                    aiohttp.ClientSession(timeout=timeout) as session,
                    session.put(
                        target.put,
                        data=file,
                        headers={"Content-Length": str(path.stat().st_size)},
                        allow_redirects=False,
                    ) as response,
                ):
                    status = response.status
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UploadFailed(f"{type(error).__name__}: {first_line(error)}") from error
        if 200 <= status < 300:
            return target.key
        raise UploadFailed(f"the store answers {status}", refused=400 <= status < 500)
