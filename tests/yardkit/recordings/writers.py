"""A writer of WARC files for tests, byte by byte: warcio's own leaves temporary files open."""

from __future__ import annotations

import base64
import gzip
import hashlib
import itertools
from pathlib import Path

Headers = tuple[tuple[str, str], ...]
HTML: Headers = (("Content-Type", "text/html"),)


class WarcRecorder:
    """Appends fetches to a WARC file: one gzip member a record if its name ends in .gz."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = itertools.count()
        path.touch()

    def add(
        self,
        url: str,
        body: bytes = b"",
        *,
        status: str = "200 OK",
        headers: Headers = HTML,
        method: str = "",
        sent: bytes = b"",
        request_first: bool = False,
        revisits: bytes = b"",
        **fields: str,
    ) -> None:
        """Add a response; with a request record if ``method`` is given.

        ``revisits``: the body is that of another record. ``fields``: with "_" for "-".
        """
        block = f"HTTP/1.1 {status}\r\n".encode() + _lines(headers) + b"\r\n" + body
        of_response = {
            "WARC-Type": "revisit" if revisits else "response",
            "WARC-Target-URI": url,
            "WARC-Payload-Digest": _sha1(revisits or body),
            **{name.replace("_", "-"): value for name, value in fields.items()},
        }
        if not method:
            self._write(of_response, block)
            return
        asked = f"{method} /asked HTTP/1.1\r\nHost: h\r\n\r\n".encode() + sent
        of_request = {"WARC-Type": "request", "WARC-Target-URI": url}
        if request_first:
            name = self._write(of_request, asked)
            self._write({**of_response, "WARC-Concurrent-To": name}, block)
        else:
            name = self._write(of_response, block)
            self._write({**of_request, "WARC-Concurrent-To": name}, asked)

    def _write(self, fields: dict[str, str], block: bytes) -> str:
        name = f"<urn:uuid:{next(self._numbers)}>"
        fields = {"WARC-Record-ID": name, **fields, "Content-Length": str(len(block))}
        record = b"WARC/1.0\r\n" + _lines(tuple(fields.items())) + b"\r\n" + block + b"\r\n\r\n"
        with self._path.open("ab") as file:
            file.write(gzip.compress(record, 1) if self._path.suffix == ".gz" else record)
        return name


def _lines(headers: Headers) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in headers).encode()


def _sha1(body: bytes) -> str:
    digest = hashlib.sha1(body, usedforsecurity=False).digest()
    return f"sha1:{base64.b32encode(digest).decode()}"
