"""Downloader type "file": files of the agent's own host, below a configured folder."""

from __future__ import annotations

import errno
import mimetypes
import os
import stat
import time
from email.utils import formatdate
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from apps.agents.downloader.fetchers.address_switch import failure
from apps.agents.downloader.fetchers.egress_proxy import EgressProxy
from yardkit.bridge import in_daemon_thread
from yardkit.fetched import Fetched
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind, header_pairs

_OUTSIDE: Final = "it is not below the folder that this agent's AGENT_FILES names"
_NO_FILE: Final = "it is no regular file, or a link"
_METHODS: Final = frozenset({"GET", "HEAD"})
# Each part of the path is opened relative to the one before, and none may be a link: the checked
# file is the one that is read, whatever others rename meanwhile. A FIFO must not be waited for.
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class OutsideError(Exception):
    """A path that this agent must not read."""


class FileFetcher:
    """Reads ``file:///whole/path`` and paths relative to ``root``; both must be below it.

    The answer has status 200 and a guessed Content-Type, or 404. Links, devices, FIFOs and
    folders are refused.
    """

    def __init__(self, settings: DownloaderSettings, root: Path) -> None:
        self._limit = settings.max_body_bytes
        self._seconds = settings.timeout_seconds
        self._root = root

    async def fetch(self, request: DownloadRequest, via: EgressProxy | None = None) -> Fetched:
        """Read one file. Raises nothing but ``asyncio.CancelledError``."""
        started = time.perf_counter()
        try:
            parts = self._parts(request)
            status, headers, body, truncated = await in_daemon_thread(
                self._read, parts, request.method == "HEAD"
            )
        except OutsideError as error:
            return failure(request.url, FailureKind.ADDRESS_REFUSED, str(error))
        except ValueError as error:
            return failure(request.url, FailureKind.BAD_REQUEST, f"bad path: {error}")
        except OSError as error:
            return failure(request.url, FailureKind.CONNECTION, error.strerror or str(error))
        elapsed = (time.perf_counter() - started) * 1000.0
        pairs = header_pairs(headers)
        return Fetched(request.url, status, pairs, body, FailureKind.NONE, "", elapsed, truncated)

    async def close(self) -> None:
        pass

    def _parts(self, request: DownloadRequest) -> tuple[str, ...]:
        """Return the parts of the path below the root."""
        if request.method not in _METHODS:
            raise ValueError("a file can only be read: use GET")
        path = request.url
        if path[:5].lower() == "file:":
            parts = urlsplit(path)
            if parts.netloc not in ("", "localhost"):
                raise OutsideError("a file of another machine")
            path = unquote(parts.path, errors="strict")
        elif "://" in path:
            raise ValueError("this downloader reads files only")
        if not path or "\0" in path:
            raise ValueError("it is empty or has a NUL")
        pure = PurePosixPath(path)
        if ".." in pure.parts:
            raise OutsideError(_OUTSIDE)
        if pure.is_absolute():
            try:
                pure = pure.relative_to(self._root)
            except ValueError:
                raise OutsideError(_OUTSIDE) from None
        return pure.parts

    def _read(
        self, parts: tuple[str, ...], head: bool
    ) -> tuple[int, list[tuple[str, str]], bytes, bool]:
        if not parts:
            raise OutsideError(_NO_FILE)
        # The root is the operator's choice and may be a link.
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts[:-1]:
                inner = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
                os.close(folder)
                folder = inner
            descriptor = os.open(parts[-1], _FILE_FLAGS, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return 404, [], b"", False
            # A link, a device without a driver, or a part that is no folder.
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.ENOTDIR):
                raise OutsideError(_NO_FILE) from None
            raise
        finally:
            os.close(folder)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise OutsideError(_NO_FILE)
        with os.fdopen(descriptor, "rb") as file:
            body = b"" if head else file.read(self._limit + 1)
        headers = [
            ("Content-Type", _content_type(parts[-1])),
            ("Content-Length", str(found.st_size)),
            ("Last-Modified", formatdate(found.st_mtime, usegmt=True)),
        ]
        return 200, headers, body[: self._limit], len(body) > self._limit


def _content_type(name: str) -> str:
    guessed, encoding = mimetypes.guess_type(name)
    if encoding is not None:
        return f"application/{encoding}" if encoding != "gzip" else "application/gzip"
    return guessed or "application/octet-stream"
