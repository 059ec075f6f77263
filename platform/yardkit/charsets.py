"""Character set detection and decoding by the rules of browsers, shared by agents and spiders."""

from __future__ import annotations

import codecs
import re
from functools import lru_cache
from typing import Final

# Possessive quantifiers (*+): thousands of blanks must not cause quadratic backtracking.
_HEADER: Final = re.compile(r"charset\s*+=\s*+(?:[\"']\s*+)?([^\s\"';]+)", re.IGNORECASE)
_META: Final = re.compile(
    rb"<meta[^>]*?charset\s*+=\s*+(?:[\"']\s*+)?([a-zA-Z0-9_:.\-]+)", re.IGNORECASE
)
_XML: Final = re.compile(rb"^\s*<\?xml[^>]*?encoding\s*=\s*[\"']([a-zA-Z0-9_:.\-]+)")
_META_BYTES: Final = 4096
_PLAIN: Final = "text/plain"
_FALLBACK: Final = "utf-8"
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Pages that name the smaller set use the larger one, and browsers decode them so.
_WIDER: Final = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
# Python codecs that no page may choose: some raise, some allow to smuggle markup.
_NEVER: Final = frozenset({"idna", "punycode", "utf-7", "unicode_escape", "raw_unicode_escape"})


@lru_cache(maxsize=256)
def known(label: str) -> str | None:
    """Return the codec of a label; None for an unknown or unsafe one."""
    try:
        codec = codecs.lookup(label.strip())
        b"a".decode(codec.name, "replace")
    except (LookupError, ValueError):
        return None
    name = codec.name.replace("-escape", "_escape").replace("raw-", "raw_")
    return None if name in _NEVER else _WIDER.get(name, name)


def decode(body: bytes, content_type: str = "") -> tuple[str, str]:
    """Return (text, encoding) by byte-order mark, header, ``<meta>``, else UTF-8, else
    windows-1252.

    Never raises: invalid bytes become U+FFFD.
    """
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace"), name
    declared = _declared(body, content_type)
    if declared is not None:
        return body.decode(declared, "replace"), declared
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return body.decode("cp1252", "replace"), "cp1252"


def _declared(body: bytes, content_type: str) -> str | None:
    match = _HEADER.search(content_type) if content_type else None
    label = match.group(1) if match else None
    if label is None:
        declaration = _META.search(body, 0, _META_BYTES) or _XML.match(body, 0, _META_BYTES)
        label = declaration.group(1).decode("ascii") if declaration else None
    name = known(label) if label else None
    # A <meta> that is readable as ASCII cannot be UTF-16: browsers use UTF-8.
    return "utf-8" if name and name.startswith("utf-16") and match is None else name


def declaring(content_type: str, encoding: str) -> str:
    """Return ``content_type`` changed so that ``decode`` reads a body without a mark as
    ``encoding``.
    """
    match = _HEADER.search(content_type)
    if match is None:
        return f"{content_type or _PLAIN}; charset={encoding}"
    if known(match[1]) == known(encoding):
        return content_type
    return f"{content_type[: match.start(1)]}{encoding}{content_type[match.end(1) :]}"


def encode(text: str, encoding: str) -> tuple[bytes, str]:
    """Return (bytes, encoding) that ``decode`` reads as ``text`` when that encoding is declared.

    Uses ``encoding`` if it has all characters, else UTF-8. ``text`` has no lone surrogates.
    """
    name = known(encoding) or _FALLBACK
    if name != _FALLBACK:
        try:
            body = text.encode(name)
        except UnicodeEncodeError:
            pass
        else:
            if decode(body, declaring("", name))[0] == text:
                return body, name
    body = text.encode()
    # The reader takes a leading U+FEFF for a byte-order mark, so one is written before it.
    return (codecs.BOM_UTF8 + body if body.startswith(codecs.BOM_UTF8) else body), _FALLBACK


def has_mark(body: bytes) -> bool:
    """Return whether the body begins with a byte-order mark, which overrides declarations."""
    return any(body.startswith(mark) for mark, _ in _MARKS)
