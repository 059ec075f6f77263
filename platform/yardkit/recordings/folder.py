"""Folders of files mapped to addresses: ``folder/<host>/path/page.html``."""

from __future__ import annotations

import contextlib
import mimetypes
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from yardkit.protocol import HeaderPairs
from yardkit.recordings.base import Recorded, RecordingError, canonical

# Beside ``page.html``: its status line and headers.
SIDE_SUFFIX: Final = ".headers"
_SUFFIXES: Final = ("", ".html", ".json", ".xml", ".txt")
# Windows has no files with a question mark in their names.
_QUERY_MARKS: Final = ("?", "@")
# File systems take 255, suffixes included.
_MOST_NAME_BYTES: Final = 240


class FolderRecording:
    """One response for each file; requests are GET or HEAD without a body.

    Of ``https://shop.example/list?page=2`` it is ``shop.example/list?page=2`` or
    ``shop.example/list?page=2.html`` (or .json, .xml, .txt); of ``/list/`` and ``/list`` also
    ``list/index.html``. A port other than the scheme's belongs to the name of the host's folder.
    The query is in its canonical form, encoded or not, with ``%2F`` for a slash; ``@`` may stand
    for ``?``. ``Content-Type`` follows from the suffix. A file ``page.html.headers`` beside it
    has a status line (``HTTP/1.1 404 Not Found`` or ``404``), headers, or both; without
    ``page.html`` the body is empty.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def find(self, method: str, url: str, body: bytes, nth: int, limit: int) -> Recorded | None:
        if method.upper() != "GET" or body:
            return None
        parts = urlsplit(canonical(url))
        for path in self._paths(parts.netloc, parts.path, parts.query):
            side = path.with_name(path.name + SIDE_SUFFIX)
            if path.is_file() or side.is_file():
                return self._read(path, side, limit)
        return None

    def close(self) -> None:
        """Do nothing: files are open only while they are read."""

    def _paths(self, host: str, path: str, query: str) -> Iterator[Path]:
        """Yield the files that may hold an address, below the root only."""
        segments = path.split("/")[1:] or [""]
        if any(len(name) > _MOST_NAME_BYTES for name in segments):
            return
        for names in ([unquote(name).replace("/", "%2F") for name in segments], segments):
            folder = self._root.joinpath(host, *names[:-1])
            bases = [names[-1]] if names[-1] else []
            inner = folder / names[-1]
            for name in _with_query(bases, query):
                yield from self._below(folder, name)
            for name in _with_query(["index.html", "index", ""], query):
                yield from self._below(inner, name)

    def _below(self, folder: Path, name: str) -> Iterator[Path]:
        if not name or len(name.encode()) > _MOST_NAME_BYTES:
            return
        for suffix in _SUFFIXES:
            path = folder / (name + suffix)
            # A NUL, or links in a circle.
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                if path.resolve().is_relative_to(self._root):
                    yield path

    def _read(self, path: Path, side: Path, limit: int) -> Recorded:
        protocol, status = "HTTP/1.1", 200
        headers: HeaderPairs = []
        try:
            if side.is_file():
                protocol, status, headers = _side_file(side)
            body = b""
            if path.is_file():
                with path.open("rb") as file:
                    body = file.read(limit + 1)
        except OSError as error:
            raise RecordingError(f"{path}: {error.strerror or error}") from error
        if not any(name.lower() == b"content-type" for name, _ in headers):
            headers.append((b"Content-Type", content_type(_file_name(path)).encode()))
        return Recorded(status, headers, body, protocol=protocol)


def _with_query(bases: list[str], query: str) -> Iterator[str]:
    """Yield names of files for a path's last part."""
    if not query:
        yield from bases
        return
    texts = dict.fromkeys((query, unquote(query)))
    for base in bases:
        for mark in _QUERY_MARKS:
            yield from (f"{base}{mark}{text.replace('/', '%2F')}" for text in texts)


def _file_name(path: Path) -> str:
    """Return the name whose suffix says the type: that of ``list.json?page=2`` is .json."""
    if path.suffix in _SUFFIXES[1:]:
        return path.name
    for mark in _QUERY_MARKS:
        before, found, _ = path.name.partition(mark)
        if found and "." in before:
            return before
    return path.name


def content_type(name: str) -> str:
    """Return the type of a file by its suffix; names without one are HTML pages."""
    guessed, encoding = mimetypes.guess_type(name)
    if encoding is not None:
        return f"application/{encoding}"
    return guessed or ("application/octet-stream" if "." in name else "text/html")


def _side_file(side: Path) -> tuple[str, int, HeaderPairs]:
    """Read (protocol, status, headers). Raises ``RecordingError`` and ``OSError``."""
    protocol, status = "HTTP/1.1", 200
    headers: HeaderPairs = []
    for number, line in enumerate(side.read_bytes().splitlines()):
        words = line.decode("latin-1").split(maxsplit=2)
        if not words:
            continue
        if number == 0 and (words[0].startswith("HTTP/") or words[0].isdecimal()):
            if words[0].startswith("HTTP/"):
                protocol, *words = words
            if not words or not words[0].isdecimal():
                raise RecordingError(f"{side}: no status in {line[:60]!r}")
            status = int(words[0])
            continue
        name, colon, value = line.partition(b":")
        if not colon:
            raise RecordingError(f"{side}: no header in line {number + 1}: {line[:60]!r}")
        headers.append((name.strip(), value.strip()))
    return protocol, status, headers
