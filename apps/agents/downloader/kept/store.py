"""Uploads files of kept pages by signed addresses of the center."""

from __future__ import annotations

from pathlib import Path

from apps.agents.downloader.addresses import AddressBook, NoAddress
from apps.agents.downloader.kept.keeper import UploadFailed
from yardkit.bridge import in_daemon_thread
from yardkit.object_client import ObjectClient, StoreAway, TransferFailed, sha256_of
from yardkit.protocol import ObjectKind


class SignedPageStore:
    """Store of pages behind the addresses of one agent."""

    def __init__(self, addresses: AddressBook) -> None:
        self._addresses = addresses
        self._client = ObjectClient()

    async def upload(self, run: int, token: str, path: Path) -> str:
        """Store a file; return the key of its object. Raises ``UploadFailed``."""
        try:
            target = await self._addresses.take(run, ObjectKind.PAGES, token)
        except NoAddress as error:
            raise UploadFailed(str(error)) from error
        try:
            await in_daemon_thread(self._put, target.put, path)
        except StoreAway as error:
            raise UploadFailed(str(error)) from error
        except TransferFailed as error:
            raise UploadFailed(str(error), refused=True) from error
        return target.key

    def _put(self, address: str, path: Path) -> None:
        # A file has some 8 MiB: it is read once for its digest and its transfer.
        content = path.read_bytes()
        self._client.put(address, content, len(content), sha256_of(content))
