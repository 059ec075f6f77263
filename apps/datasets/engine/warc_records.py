"""Records of WARC files: what a site has sent, read for people."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from apps.datasets.engine.errors import PageUnavailable
from yardkit import charsets
from yardkit.content import BadContent, decode

# Of the file, as an agent writes it.
MAX_RECORD_BYTES: Final = 64 * 1024 * 1024
# Unpacked.
_MAX_BYTES: Final = 72 * 1024 * 1024
_MAX_TEXT_BYTES: Final = 8 * 1024 * 1024
_GZIP_WBITS: Final = 31
# Written before the names of headers that WARC readers would act upon.
_RENAMED: Final = "x-archive-orig-"
_IMAGES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_AVIF: Final = (b"ftypavif", b"ftypavis")


@dataclass(frozen=True)
class HttpMessage:
    """A request or response. ``headers`` in order, as text; ``body`` as received."""

    first_line: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def header(self, name: str) -> str:
        """Return the first value of a header, given in lower case; "" without one."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    @cached_property
    def content(self) -> bytes:
        """Return the body, decoded by its ``Content-Encoding`` as far as that is possible."""
        encoding = self.header("content-encoding")
        try:
            return decode(self.body, encoding, _MAX_TEXT_BYTES, partial=True)[0]
        except BadContent:
            return self.body

    @cached_property
    def text(self) -> str:
        """Return the body as text."""
        return charsets.decode(self.content[:_MAX_TEXT_BYTES], self.header("content-type"))[0]

    @property
    def is_text(self) -> bool:
        """Whether the body can be shown as text."""
        return b"\0" not in self.content[:4096] and not image_type(self.content)


def block_of(member: bytes) -> bytes:
    """Return the block of a record. Raises ``PageUnavailable``."""
    inflate = zlib.decompressobj(_GZIP_WBITS)
    try:
        record = inflate.decompress(member, _MAX_BYTES)
    except zlib.error as error:
        raise PageUnavailable(f"its record is damaged: {error}") from error
    head, separator, block = record.partition(b"\r\n\r\n")
    if not head.startswith(b"WARC/") or not separator or not inflate.eof:
        raise PageUnavailable("its record is damaged")
    return block.removesuffix(b"\r\n\r\n")


def message_of(member: bytes) -> HttpMessage:
    """Return the request or response of a record. Raises ``PageUnavailable``."""
    head, _, body = block_of(member).partition(b"\r\n\r\n")
    first, *lines = head.decode("utf-8", "replace").split("\r\n")
    pairs = [line.partition(":") for line in lines]
    headers = [(_named(name.strip()), value.strip()) for name, _colon, value in pairs]
    return HttpMessage(first, headers, body)


def image_type(content: bytes) -> str:
    """Return the type of a raster image by its first bytes, "" for anything else.

    What a site says of it is not used: an image with scripts, such as SVG, is none here.
    """
    for mark, kind in _IMAGES.items():
        if content.startswith(mark):
            return kind
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return "image/avif" if content[4:12] in _AVIF else ""


def _named(name: str) -> str:
    return name[len(_RENAMED) :] if name.lower().startswith(_RENAMED) else name
