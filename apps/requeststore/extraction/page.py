"""Downloaded page, parsed at the first use by a rule."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import msgspec
from lxml import etree

from apps.requeststore.extraction.limits import MAX_PAGE_BYTES, MAX_URL
from apps.requeststore.extraction.problems import PageError
from yardkit import charsets
from yardkit.nesting import check_json

_SCHEMES: Final = frozenset({"http", "https"})
# Control characters that XML forbids; libxml2 would stop at the first.
_NO_NULL: Final = {0: None}
_ERRORS_LOOKED_AT: Final = 1000


class ResponsePage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Downloaded page. ``url``: after redirects; ``body``: without HTTP compression.

    ``meta`` and ``depth`` (links followed to this page) come from the request. ``truncated``: the
    downloader has cut the body.
    """

    url: str
    status: int = 200
    headers: list[tuple[str, str]] = []
    body: bytes = b""
    meta: dict[str, Any] = {}
    depth: int = 0
    truncated: bool = False

    def header(self, name: str) -> str | None:
        """Return the first header of this name, ignoring case."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)


class Document:
    """Page as text, tree or data. Raises ``PageError`` when it cannot be parsed."""

    __slots__ = (
        "_base",
        "_data",
        "_decoded",
        "_encoding",
        "_has_data",
        "_root",
        "_xml",
        "cut_at",
        "page",
    )

    def __init__(self, page: ResponsePage, *, encoding: str = "", xml: bool = False) -> None:
        if len(page.body) > MAX_PAGE_BYTES:
            text = f"the page has {len(page.body)} bytes; rules read at most {MAX_PAGE_BYTES}"
            raise PageError("page_too_large", text)
        self.page = page
        self._encoding = encoding
        self._xml = xml
        self._decoded: tuple[str, str] | None = None
        self._root: Any = None
        self._data: Any = None
        self._has_data = False
        self._base: str | None = None
        # Why the tree is incomplete; "" if it is complete.
        self.cut_at = ""

    @property
    def text(self) -> str:
        return self._decode()[0]

    @property
    def encoding(self) -> str:
        return self._decode()[1]

    def _decode(self) -> tuple[str, str]:
        if self._decoded is None:
            kind = self.page.header("content-type") or ""
            if self._encoding and not charsets.has_mark(self.page.body):
                kind = charsets.declaring(kind, self._encoding)
            self._decoded = charsets.decode(self.page.body, kind)
        return self._decoded

    @property
    def root(self) -> Any:
        """Return the lxml tree of an HTML or XML page."""
        if self._root is None:
            self._root = self._parse()
        return self._root

    def _parse(self) -> Any:
        raw = self.text.translate(_NO_NULL).strip().encode("utf-8", "replace")
        options: dict[str, Any] = {
            "recover": True, "huge_tree": False, "no_network": True, "encoding": "utf-8",
            "remove_pis": True,
        }  # fmt: skip
        parser: Any
        if self._xml:
            # Custom entities are not expanded: they may name files or grow exponentially.
            parser = etree.XMLParser(resolve_entities=False, load_dtd=False, **options)
        else:
            parser = etree.HTMLParser(**options)
        try:
            root = etree.fromstring(raw or b"<html/>", parser)
        except (etree.LxmlError, ValueError, AssertionError) as error:
            root = None
            reason = str(error)[:200]
        else:
            reason = "nothing of it could be read"
        if root is None:
            if self._xml:
                raise PageError("no_xml", f"the page is no XML: {reason}")
            root = etree.fromstring(b"<html/>", etree.HTMLParser())
        declared = root.getroottree().docinfo.internalDTD if self._xml else None
        if declared is not None and next(declared.iterentities(), None) is not None:
            # XPath's string() would expand the entities that the parser has kept.
            raise PageError("xml_entities", "the page declares entities of its own")
        for entry in list(parser.error_log)[:_ERRORS_LOOKED_AT]:
            if entry.level_name == "FATAL" and "XML_PARSE_HUGE" in entry.message:
                self.cut_at = entry.message.partition(", use ")[0]
                break
        return root.getroottree()

    @property
    def data(self) -> Any:
        """Return the page parsed as JSON."""
        if not self._has_data:
            try:
                text = self.text.lstrip("\ufeff")
                check_json(text.encode())
                self._data = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeError) as error:
                raise PageError("no_json", f"the page is no JSON: {str(error)[:200]}") from None
            self._has_data = True
        return self._data

    @property
    def base_url(self) -> str:
        """Return the base of relative links: ``<base href>``, else the page's URL."""
        if self._base is None:
            self._base = self.page.url
            if not self._xml and self._root is not None:
                base = self._root.find(".//base[@href]")
                href = (base.get("href") or "").strip() if base is not None else ""
                self._base = absolute(self.page.url, href) or self.page.url
        return self._base


def absolute(base: str, link: str) -> str | None:
    """Resolve ``link`` against ``base``, without fragment; None unless http or https."""
    try:
        joined = urljoin(base, link.strip())
        parts = urlsplit(joined)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        return None
    if parts.scheme not in _SCHEMES or not host or len(joined) > MAX_URL:
        return None
    if any(ord(character) < 0x20 or character == "\x7f" for character in joined):
        return None
    return joined.partition("#")[0]
