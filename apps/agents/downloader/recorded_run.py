"""Downloads of one run that are answered from the kept pages of an earlier one."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from apps.agents.downloader.addresses import AddressBook, NoAddress
from yardkit.bridge import in_daemon_thread
from yardkit.fetched import Fetched
from yardkit.object_client import ObjectClient, TransferFailed
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind, SignedObject
from yardkit.recordings import RecordingError, open_recording
from yardkit.recordings.replay import LiveFetcher, ReplayFetcher

# After a failure the pages are not asked for again so soon.
_RETRY_SECONDS: Final = 2.0
_ERROR_CHARACTERS: Final = 300


class RecordedRunFetcher:
    """Fetcher of one downloader; fetches the pages to this host at its first download.

    Until they are here, downloads fail with ``body_store``, which runs retry. ``live`` fetches what
    was not kept; without it such a request fails with ``not_recorded``, and no connection to any
    site is made.
    """

    def __init__(
        self, settings: DownloaderSettings, addresses: AddressBook | None, live: LiveFetcher | None
    ) -> None:
        self._settings = settings
        self._addresses = addresses
        self._live = live
        self._client = ObjectClient()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._replay: ReplayFetcher | None = None
        self._problem = ""
        self._retry_at = 0.0
        self._lock = asyncio.Lock()

    async def fetch(self, request: DownloadRequest) -> Fetched:
        """Answer one request. Raises nothing but ``asyncio.CancelledError``."""
        if self._replay is None:
            async with self._lock:
                if self._replay is None:
                    await self._open()
        if self._replay is None:
            error = f"kept pages of run {self._settings.replay.run}: {self._problem}"
            kind = FailureKind.BODY_STORE
            return Fetched(request.url, 0, [], b"", kind, error[:_ERROR_CHARACTERS], 0.0, False)
        return await self._replay.fetch(request)

    async def close(self) -> None:
        """Close the live fetcher, and delete the pages from this host."""
        self._client.close()
        if self._live is not None:
            await self._live.close()
        if self._folder is not None:
            await in_daemon_thread(self._folder.cleanup)

    async def _open(self) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._retry_at:
            return
        source = self._settings.replay
        try:
            if self._addresses is None:
                raise NoAddress("this agent has no way to the object store")
            objects = await self._addresses.recorded(source.run, source.token)
            if not objects:
                raise RecordingError("none are kept")
            folder = await in_daemon_thread(self._bring, objects)
            recording = await in_daemon_thread(open_recording, folder)
        except (NoAddress, TransferFailed, RecordingError, OSError) as error:
            self._problem = str(error)
            self._retry_at = now + _RETRY_SECONDS
            return
        self._replay = ReplayFetcher(recording, self._settings, self._live)

    def _bring(self, objects: Sequence[SignedObject]) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="crawlyard-replay-")
        folder = Path(self._folder.name)
        for place in objects:
            target = folder / place.key.rpartition("/")[2]
            # A file that an earlier attempt has fetched whole stays.
            if not target.exists():
                part = target.with_suffix(".part")
                with part.open("wb") as file:
                    for piece in self._client.get(place.get):
                        file.write(piece)
                part.rename(target)
        return folder
