"""WARC 1.1 records of downloads, each a gzip member of its own.

Written here and not by warcio: its headers are text, and what a site sends is bytes. Everything
that the index says of a page is in the headers of its records, so the index of a file left by a
killed process is read from the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any, Final
from urllib.parse import quote

from yardkit.fetched import Exchange, Fetched
from yardkit.names import CONTROL
from yardkit.protocol import DownloadRequest, FailureKind, HeaderPairs

_GZIP_WBITS: Final = 31
_READ_BYTES: Final = 64 * 1024
_MAX_HEAD_BYTES: Final = 64 * 1024
# Body's encoding that WARC readers would decode again.
_CHUNKED: Final = frozenset({b"transfer-encoding"})
_DECODED: Final = frozenset({b"transfer-encoding", b"content-encoding"})
_RENAMED: Final = b"X-Archive-Orig-"
# A kept page must not show what a job keeps secret.
_SECRET: Final = frozenset({b"cookie", b"authorization", b"proxy-authorization"})
_NOT_IN_A_HEADER: Final = re.compile(r"[\x00-\x20\x7f]")
_STATUS: Final = re.compile(rb"HTTP/[0-9.]+ ([0-9]{3})")
_TRUNCATED: Final = {FailureKind.DATA_LOSS: "disconnect", FailureKind.TOO_LARGE: "length"}
_TYPE_CHARACTERS: Final = 100


class DamagedRecord(ValueError):
    """Not a whole record, such as the last one of a killed process."""


@dataclass(frozen=True, slots=True)
class PageDownload:
    """One attempt of a request and its response. ``at``: Unix seconds."""

    request_id: int
    attempt: int
    request: DownloadRequest
    fetched: Fetched
    at: float
    agent: str

    @property
    def size(self) -> int:
        """Return about how many bytes of memory it takes."""
        exchange = self.fetched.exchange
        body = exchange.body if exchange is not None else self.fetched.body
        return len(body) + len(self.request.body) + len(self.fetched.screenshot)


def file_header(agent: str, run: int, at: float) -> bytes:
    """Return the first record of a file."""
    facts = [
        "software: Crawlyard",
        "format: WARC File Format 1.1",
        f"run: {run}",
        f"agent: {agent}",
    ]
    return _member(
        [
            ("WARC-Type", "warcinfo"),
            ("WARC-Record-ID", _record_id()),
            ("WARC-Date", _date(at)),
            ("Content-Type", "application/warc-fields"),
        ],
        "".join(f"{fact}\r\n" for fact in facts).encode(),
        level=6,
    )


def page_members(page: PageDownload) -> list[bytes]:
    """Return the members of a page: request, response and, if there is one, screenshot."""
    request_id, response_id = _record_id(), _record_id()
    url, date = _uri(page.request.url), _date(page.at)
    fetched, exchange = page.fetched, page.fetched.exchange or _decoded(page)
    members = [
        _member(
            [
                ("WARC-Type", "request"),
                ("WARC-Record-ID", request_id),
                ("WARC-Date", date),
                ("WARC-Target-URI", url),
                ("WARC-Concurrent-To", response_id),
                ("Content-Type", "application/http; msgtype=request"),
            ],
            _request_block(exchange, page.request.body),
            level=6,
        ),
        _member(
            [
                ("WARC-Type", "response"),
                ("WARC-Record-ID", response_id),
                ("WARC-Date", date),
                ("WARC-Target-URI", url),
                ("WARC-Concurrent-To", request_id),
                *_facts(page, exchange),
                ("Content-Type", "application/http; msgtype=response"),
            ],
            _response_block(fetched, exchange),
            # What is compressed already only costs time.
            level=1 if _names(exchange.headers) & {b"content-encoding"} else 6,
        ),
    ]
    if fetched.screenshot:
        members.append(_screenshot(fetched.screenshot, url, date, response_id))
    return members


def _facts(page: PageDownload, exchange: Exchange) -> Iterator[tuple[str, str]]:
    fetched = page.fetched
    yield "WARC-Payload-Digest", f"sha256:{hashlib.sha256(exchange.body).hexdigest()}"
    if fetched.peer:
        yield "WARC-IP-Address", fetched.peer
    truncated = _TRUNCATED.get(fetched.failure) or ("length" if fetched.truncated else "")
    if truncated:
        yield "WARC-Truncated", truncated
    yield "Crawlyard-Request", f"{page.request_id}/{page.attempt}"
    yield "Crawlyard-Agent", page.agent
    yield "Crawlyard-Method", exchange.method
    yield "Crawlyard-Elapsed-Ms", f"{fetched.elapsed_ms:.1f}"
    yield "Crawlyard-Size", str(len(exchange.body))
    if fetched.failure:
        yield "Crawlyard-Failure", str(fetched.failure)
    final = _uri(fetched.url)
    if final != _uri(page.request.url):
        yield "Crawlyard-Final-URI", final


def _decoded(page: PageDownload) -> Exchange:
    """Return the exchange of a fetcher that only gives what it has decoded or rendered."""
    request, fetched = page.request, page.fetched
    headers = request.headers
    pairs: HeaderPairs = (
        [(name.encode(), value.encode("utf-8", "replace")) for name, value in headers.items()]
        if isinstance(headers, dict)
        else headers
    )
    target = "/" + request.url.partition("://")[2].partition("/")[2].partition("#")[0]
    renamed = [
        (_RENAMED + name if name.lower() in _DECODED else name, value)
        for name, value in fetched.raw_headers
    ]
    return Exchange(request.method, target, pairs, "", renamed, fetched.body)


def _request_block(exchange: Exchange, body: bytes) -> bytes:
    headers = [
        (name, b"*" if name.lower() in _SECRET else value)
        for name, value in exchange.request_headers
    ]
    target = _NOT_IN_A_HEADER.sub(_quoted, exchange.target or "/")
    first = f"{exchange.method} {target} HTTP/1.1".encode("utf-8", "replace")
    return _head(first, headers) + body


def _response_block(fetched: Fetched, exchange: Exchange) -> bytes:
    protocol = fetched.protocol or "HTTP/1.1"
    reason = CONTROL.sub("", exchange.reason)
    first = f"{protocol} {fetched.status:03d} {reason}".encode("utf-8", "replace")
    headers = [
        (_RENAMED + name if name.lower() in _CHUNKED else name, value)
        for name, value in exchange.headers
    ]
    return _head(first, headers) + exchange.body


def _head(first: bytes, headers: HeaderPairs) -> bytes:
    lines = [first, *(name + b": " + value for name, value in headers)]
    # A folded or broken header must not end the head early.
    return b"".join(re.sub(rb"[\r\n]+", b" ", line) + b"\r\n" for line in lines) + b"\r\n"


def _screenshot(image: bytes, url: str, date: str, response_id: str) -> bytes:
    return _member(
        [
            ("WARC-Type", "resource"),
            ("WARC-Record-ID", _record_id()),
            ("WARC-Date", date),
            ("WARC-Target-URI", f"urn:screenshot:{url}"),
            ("WARC-Concurrent-To", response_id),
            ("Content-Type", "image/jpeg"),
        ],
        image,
        level=1,
    )


def _member(headers: Sequence[tuple[str, str]], block: bytes, *, level: int) -> bytes:
    lines = [f"{name}: {value}\r\n" for name, value in headers]
    head = f"WARC/1.1\r\n{''.join(lines)}Content-Length: {len(block)}\r\n\r\n"
    deflate = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WBITS)
    parts = [deflate.compress(head.encode("utf-8", "replace"))]
    parts += [deflate.compress(block), deflate.compress(b"\r\n\r\n"), deflate.flush()]
    return b"".join(parts)


def _names(headers: HeaderPairs) -> set[bytes]:
    return {name.lower() for name, _value in headers}


def _record_id() -> str:
    return f"<urn:uuid:{uuid.uuid4()}>"


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _uri(url: str) -> str:
    """Return an address that fits into a header."""
    return _NOT_IN_A_HEADER.sub(_quoted, url)


def _quoted(match: re.Match[str]) -> str:
    return quote(match[0])


# --- read back ------------------------------------------------------------------------------------


def read_index(file: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yield a row for each page of a file, without its key; ``end`` is the end of its last record.

    Ends at the first record that is not whole.
    """
    row: dict[str, Any] | None = None
    request_length, number = 0, 0
    with contextlib.suppress(DamagedRecord):
        for offset, length, headers, block in _members(file):
            kind = headers.get("warc-type")
            if kind == "request":
                if row is not None:
                    yield row
                    row = None
                request_length = length
            elif kind == "response":
                number += 1
                row = _row(headers, block)
                row |= {"record": number, "offset": offset, "length": length}
                row |= {"request_length": request_length, "end": offset + length}
            elif kind == "resource" and row is not None:
                row |= {"screenshot_offset": offset, "screenshot_length": length}
                row["end"] = offset + length
    if row is not None:
        yield row


def _members(file: IO[bytes]) -> Iterator[tuple[int, int, dict[str, str], bytes]]:
    """Yield (offset, length, headers in lower case, first 64 KiB of the block)."""
    offset, rest = 0, b""
    while rest or (rest := file.read(_READ_BYTES)):
        inflate = zlib.decompressobj(_GZIP_WBITS)
        length, text = 0, b""
        while not inflate.eof:
            if not rest and not (rest := file.read(_READ_BYTES)):
                raise DamagedRecord(f"the record at {offset} has no end")
            try:
                part = inflate.decompress(rest)
            except zlib.error as error:
                raise DamagedRecord(f"the record at {offset}: {error}") from error
            length += len(rest) - len(inflate.unused_data)
            rest = inflate.unused_data
            if len(text) < 2 * _MAX_HEAD_BYTES:
                text += part
        head, _, block = text.partition(b"\r\n\r\n")
        lines = [line.partition(":") for line in head.decode("utf-8", "replace").split("\r\n")[1:]]
        headers = {name.lower(): value.strip() for name, _colon, value in lines}
        yield offset, length, headers, block[:_MAX_HEAD_BYTES]
        offset += length


def _row(headers: dict[str, str], block: bytes) -> dict[str, Any]:
    status = _STATUS.match(block)
    request, _, attempt = headers.get("crawlyard-request", "0/0").partition("/")
    url = headers["warc-target-uri"]
    return {
        "url": url,
        "final_url": headers.get("crawlyard-final-uri", url),
        "method": headers.get("crawlyard-method", ""),
        "status": int(status[1]) if status else 0,
        "failure": headers.get("crawlyard-failure", ""),
        "type": _content_type(block),
        "size": int(headers.get("crawlyard-size", "0")),
        "sha256": headers.get("warc-payload-digest", "").partition(":")[2],
        "truncated": "warc-truncated" in headers,
        "elapsed_ms": float(headers.get("crawlyard-elapsed-ms", "0")),
        "request": int(request),
        "attempt": int(attempt),
        "agent": headers.get("crawlyard-agent", ""),
        "at": headers["warc-date"],
    }


def _content_type(block: bytes) -> str:
    for line in block.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-type":
            text = value.decode("latin-1").partition(";")[0].strip().lower()
            return text[:_TYPE_CHARACTERS]
    return ""
