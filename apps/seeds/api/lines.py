"""JSON lines: streamed from a request body without buffering it, and written for exports."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Final

import msgspec
from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from apps.access.api.parsers import BodyTooLarge
from apps.seeds.api.shapes import shown_known
from apps.seeds.engine.limits import MAX_IMPORT_BYTES
from apps.seeds.engine.seeds import URGENT_DUE
from yardkit.protocol.seeds import KnownSeed

# Limit of a decompressed body.
MAX_PLAIN_BYTES: Final = 4 * 1024 * 1024 * 1024
MAX_LINE_BYTES: Final = 512 * 1024
# Millions of empty lines would keep a process busy for minutes.
MAX_MEMBERS: Final = 20_000
_PIECE: Final = 64 * 1024
_SPOOLED: Final = 1024 * 1024
JSON_LINES: Final = "application/x-ndjson"
_encode: Final = msgspec.json.Encoder().encode


class Lines:
    """Lines of a request body. ``plain``: each line is a seed's data instead of JSON."""

    def __init__(self, stream: IO[bytes], *, compressed: bool, plain: bool) -> None:
        self._stream = stream
        self._kept: SpooledTemporaryFile[bytes] | None = None
        self._compressed = compressed
        self.plain = plain

    def __iter__(self) -> Iterator[bytes | None]:
        """Yield each line without its line break; None for one that is too long.

        Raises:
            ParseError: the body does not have the compression that its header states.
            BodyTooLarge
        """
        pieces = self._unpacked() if self._compressed else self._pieces()
        return _lines(pieces)

    def fingerprint(self) -> str:
        """Return the hash of the whole body, which can still be read. Raises ``BodyTooLarge``."""
        self._kept = SpooledTemporaryFile(_SPOOLED)  # noqa: SIM115  # ``close`` does
        digest = hashlib.sha256(f"{self._compressed} {self.plain} ".encode())
        for piece in self._pieces():
            digest.update(piece)
            self._kept.write(piece)
        self._kept.seek(0)
        self._stream = self._kept
        return digest.hexdigest()

    def close(self) -> None:
        """Delete the temporary copy of the body."""
        if self._kept is not None:
            self._kept.close()

    def _pieces(self) -> Iterator[bytes]:
        read = 0
        while piece := self._stream.read(_PIECE):
            read += len(piece)
            if read > MAX_IMPORT_BYTES:
                raise BodyTooLarge
            yield piece

    def _unpacked(self) -> Iterator[bytes]:
        unpack = zlib.decompressobj(wbits=31)
        written = members = 0
        is_open = False
        for piece in self._pieces():
            while piece:
                try:
                    plain = unpack.decompress(piece, _PIECE)
                except zlib.error as error:
                    raise _not_gzip(error) from None
                written += len(plain)
                if written > MAX_PLAIN_BYTES:
                    raise BodyTooLarge
                yield plain
                is_open, piece = True, unpack.unconsumed_tail
                if unpack.eof:
                    # A gzip file may consist of several members.
                    members += 1
                    if members > MAX_MEMBERS:
                        raise _not_gzip(
                            _("more than %(count)d gzip members") % {"count": MAX_MEMBERS}
                        )
                    is_open, piece = False, unpack.unused_data
                    unpack = zlib.decompressobj(wbits=31)
        if is_open:
            yield unpack.flush()
            if not unpack.eof:
                raise _not_gzip(_("unexpected end of file"))


def _not_gzip(error: object) -> ParseError:
    return ParseError(_("Not gzip: %(error)s") % {"error": error})


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes | None]:
    kept: list[bytes] = []
    size = 0
    for piece in pieces:
        first, *others = piece.split(b"\n")
        size += len(first)
        if size <= MAX_LINE_BYTES:
            kept.append(first)
        for other in others:
            yield b"".join(kept) if size <= MAX_LINE_BYTES else None
            size = len(other)
            kept = [other]
    if size:
        yield b"".join(kept) if size <= MAX_LINE_BYTES else None


class _LinesParser(BaseParser):
    """Leave the body unread; the view reads it line by line."""

    plain = False

    def parse(  # type: ignore[override]  # nothing is parsed before it is worked on
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Lines:
        """Return the unread body as ``Lines``."""
        request = (parser_context or {})["request"]
        encoding = request.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in ("", "identity", "gzip"):
            raise ParseError(_("Unsupported Content-Encoding: only gzip is supported."))
        return Lines(stream, compressed=encoding == "gzip", plain=self.plain)


class NdjsonParser(_LinesParser):
    """Parser of ``application/x-ndjson``."""

    media_type = JSON_LINES


class JsonlParser(_LinesParser):
    """Parser of ``application/jsonl``."""

    media_type = "application/jsonl"


class TextParser(_LinesParser):
    """Parser of ``text/plain``: each line is the data of a seed."""

    media_type = "text/plain"
    plain = True


def written(known: KnownSeed) -> bytes:
    """Return one export line, line break included."""
    shown = shown_known(known)
    if known.due == URGENT_DUE:
        shown["urgent"] = True
    return _encode(shown) + b"\n"
