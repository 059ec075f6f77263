"""WARC files (ISO 28500), plain or with one gzip member a record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from warcio.archiveiterator import ArchiveIterator
from warcio.bufferedreaders import ChunkedDataReader
from warcio.exceptions import ArchiveLoadFailed

from yardkit.protocol import HeaderPairs
from yardkit.recordings.base import Recorded, RecordingError
from yardkit.recordings.index import FetchIndex, Place

# Header of our own agents: the address after redirects that they followed.
FINAL_URI: Final = "Crawlyard-Final-URI"
_MOST_HEADER_BYTES: Final = 1024 * 1024


class WarcFile:
    """One file. Of its records, ``response``, ``revisit`` and ``request`` are read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def index(self, index: FetchIndex, file: int) -> None:
        with self._records(0) as records:
            for record in records:
                if record.rec_type in ("response", "revisit"):
                    self._add_response(index, record, Place(file, records.get_record_offset()))
                elif record.rec_type == "request":
                    _add_request(index, record)

    def _add_response(self, index: FetchIndex, record: Any, place: Place) -> None:
        headers = record.rec_headers
        url = headers.get_header("WARC-Target-URI") or ""
        digest = headers.get_header("WARC-Payload-Digest") or ""
        index.add_response(
            # Old writers put angle brackets around it.
            url.strip("<>"),
            place,
            record_id=headers.get_header("WARC-Record-ID") or "",
            concurrent_to=headers.get_header("WARC-Concurrent-To") or "",
            payload=digest if record.rec_type == "response" else "",
        )

    def read(self, place: Place, limit: int) -> tuple[Recorded, str]:
        with self._records(place.position) as records:
            record = next(records)
            status_line, headers = _http_head(record.raw_stream)
            protocol, _, rest = status_line.partition(" ")
            status = rest[:3]
            if not status.isdecimal():
                raise RecordingError(
                    f"{self._path}: no HTTP response at byte {place.position}: {status_line[:60]!r}"
                )
            body: Any = record.raw_stream
            if any(name.lower() == b"transfer-encoding" for name, _ in headers):
                # Reads bodies that the recorder has joined already, too.
                body = ChunkedDataReader(body)
            fields = record.rec_headers
            payload = ""
            if record.rec_type == "revisit":
                payload = fields.get_header("WARC-Payload-Digest") or ""
            recorded = Recorded(
                int(status),
                headers,
                _read(body, limit + 1),
                protocol=protocol,
                url=fields.get_header(FINAL_URI) or "",
                peer=fields.get_header("WARC-IP-Address") or "",
                cut=fields.get_header("WARC-Truncated") or "",
            )
            return recorded, payload

    def close(self) -> None:
        """Do nothing: the file is open only while it is read."""

    @contextmanager
    def _records(self, position: int) -> Iterator[Any]:
        try:
            with self._path.open("rb") as file:
                file.seek(position)
                yield ArchiveIterator(file, no_record_parse=True)
        except (ArchiveLoadFailed, OSError, EOFError, StopIteration) as error:
            text = str(error).strip().splitlines()
            raise RecordingError(f"{self._path}: {text[0] if text else 'no WARC file'}") from error


def _add_request(index: FetchIndex, record: Any) -> None:
    line, _ = _http_head(record.raw_stream)
    method = line.partition(" ")[0].upper()
    body = record.raw_stream.read()
    if method != "GET" or body:
        index.add_request(
            record.rec_headers.get_header("WARC-Record-ID") or "",
            record.rec_headers.get_header("WARC-Concurrent-To") or "",
            method,
            body,
        )


def _http_head(stream: Any) -> tuple[str, HeaderPairs]:
    """Read the first line and the headers, which are bytes as received."""
    first = stream.readline().decode("latin-1").strip()
    headers: HeaderPairs = []
    size = 0
    while (line := stream.readline()).strip() and size < _MOST_HEADER_BYTES:
        size += len(line)
        if line[:1] in b" \t" and headers:
            name, value = headers[-1]
            headers[-1] = (name, value + b" " + line.strip())
        else:
            name, _, value = line.partition(b":")
            headers.append((name.strip(), value.strip()))
    return first, headers


def _read(stream: Any, most: int) -> bytes:
    """Read up to ``most`` bytes; the readers of warcio return less than asked for."""
    parts = []
    while most > 0 and (part := stream.read(most)):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)
