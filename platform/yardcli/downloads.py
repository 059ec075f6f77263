"""Downloads of items: streamed whole, or page after page into a file that can be resumed."""

from __future__ import annotations

import codecs
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from yardcli.client import Client
from yardcli.errors import usage
from yardcli.output import inert, on_terminal

# Most items of one page.
_PAGE: Final = 1000
_PROGRESS_SECONDS: Final = 0.5


class Resumed:
    """Where a download stands: the cursor and the size of FILE, in ``FILE.cursor`` beside it."""

    def __init__(self, to: Path, path: str, query: Mapping[str, Any]) -> None:
        self._to = to
        self._state = to.with_name(f"{to.name}.cursor")
        self._about = {"path": path, "query": {k: v for k, v in query.items() if v is not None}}
        self.cursor: str | None = None

    def open(self) -> BinaryIO:
        """Open FILE behind the last complete page. Raises ``CommandFailed``."""
        try:
            known = json.loads(self._state.read_text())
        except FileNotFoundError:
            if self._to.exists() and self._to.stat().st_size:
                raise usage(f"{self._to} exists and {self._state} does not: delete it") from None
            return self._to.open("wb")
        except ValueError:
            raise usage(f"{self._state} is not readable: delete it and {self._to}") from None
        if known.get("about") != self._about:
            raise usage(f"{self._to} holds other items: choose another file or the same options")
        file = self._to.open("r+b")
        file.truncate(known["bytes"])
        file.seek(known["bytes"])
        self.cursor = known["cursor"]
        return file

    def note(self, file: BinaryIO, cursor: str) -> None:
        """Remember a page that is written: the file first, so that a crash only repeats a page."""
        file.flush()
        os.fsync(file.fileno())
        temporary = self._state.with_name(f"{self._state.name}.new")
        text = json.dumps({"about": self._about, "cursor": cursor, "bytes": file.tell()})
        temporary.write_text(text)
        temporary.replace(self._state)


def fetch_pages(
    client: Client,
    path: str,
    query: Mapping[str, Any],
    *,
    limit: int | None,
    to: Path | None,
    resumed: Resumed | None,
) -> str:
    """Write pages of rows as JSON lines; return how many were written, as text."""
    progress, count = _Progress(), 0
    file: BinaryIO | None = None
    try:
        if resumed is not None:
            file = resumed.open()
        elif to is not None:
            file = to.open("wb")
        sink = _Sink(file)
        cursor = resumed.cursor if resumed is not None else None
        while limit is None or count < limit:
            size = _PAGE if limit is None else min(_PAGE, limit - count)
            page = client.get(path, **query, limit=size, cursor=cursor)
            lines = [
                json.dumps(row.get("item", row), ensure_ascii=False) for row in page["results"]
            ]
            text = "".join(f"{line}\n" for line in lines)
            sink.write(text.encode())
            count += len(lines)
            progress.show(f"{count:,} items")
            if resumed is not None and file is not None and page["last"]:
                resumed.note(file, page["last"])
            cursor = page["next"]
            if cursor is None:
                break
    except OSError as error:
        raise usage(f"{to}: {error.strerror}") from error
    finally:
        progress.clear()
        if file is not None:
            file.close()
    return f"{count:,} items"


def download(client: Client, path: str, query: Mapping[str, Any], to: Path | None) -> str:
    """Write a whole answer; a file gets its name when it is complete. Return the size as text."""
    progress, size = _Progress(), 0
    part = None if to is None else to.with_name(f"{to.name}.part")
    try:
        file = None if part is None else part.open("wb")
        sink = _Sink(file)
        try:
            for chunk in client.stream(path, **query):
                sink.write(chunk)
                size += len(chunk)
                progress.show(f"{size / 1e6:,.1f} MB")
        finally:
            progress.clear()
            if file is not None:
                file.close()
        if part is not None and to is not None:
            part.replace(to)
    except OSError as error:
        raise usage(f"{to}: {error.strerror}") from error
    return f"{size / 1e6:,.1f} MB"


class _Sink:
    """A file, or standard output; control characters are escaped on terminals."""

    def __init__(self, file: BinaryIO | None) -> None:
        self._file = file
        # A character may be split between two chunks.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, content: bytes) -> None:
        if self._file is not None:
            self._file.write(content)
        elif sys.stdout.isatty():
            lines = self._decoder.decode(content).split("\n")
            sys.stdout.write("\n".join(map(inert, lines)))
            sys.stdout.flush()
        else:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()


class _Progress:
    """Progress of a download in one line that is overwritten; on terminals only."""

    def __init__(self) -> None:
        # Output to the same terminal would mix with it.
        self._shows = on_terminal() and not sys.stdout.isatty()
        self._next = 0.0

    def show(self, text: str) -> None:
        if self._shows and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_SECONDS
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shows:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
