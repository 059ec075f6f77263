"""A fetched page, as a callback gets it. Expensive attributes are computed at the first access."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import msgspec

from yardkit import charsets
from yardkit.protocol import HeaderPairs, header_pairs, header_texts
from yardspider.links import origin_of, resolve_all
from yardspider.request import Callback, Request

if TYPE_CHECKING:
    from parsel import Selector, SelectorList
    from selectolax.lexbor import LexborHTMLParser

    from yardspider.seeds.task import SeedTask
    from yardspider.transports.bodies import BodyFile

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})


class Headers:
    """Response headers as text: repeated names are kept, letter case of names is ignored.

    ``raw``: the same as they were received, in bytes.
    """

    __slots__ = ("_pairs", "_received")

    def __init__(self, pairs: Sequence[tuple[str | bytes, str | bytes]]) -> None:
        self._received = pairs
        self._pairs = header_texts(pairs)

    @property
    def raw(self) -> HeaderPairs:
        return header_pairs(self._received)

    def get(self, name: str, default: str = "") -> str:
        """Return the first value of ``name``."""
        return next(iter(self._values(name)), default)

    def get_all(self, name: str) -> list[str]:
        """Return every value of ``name``, in order."""
        return list(self._values(name))

    def items(self) -> list[tuple[str, str]]:
        return list(self._pairs)

    def _values(self, name: str) -> Iterator[str]:
        wanted = name.lower()
        return (value for key, value in self._pairs if key.lower() == wanted)

    def __getitem__(self, name: str) -> str:
        for value in self._values(name):
            return value
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(True for _ in self._values(name))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(key.lower() for key, _ in self._pairs))

    def __len__(self) -> int:
        return len(set(self))

    def __repr__(self) -> str:
        return f"<Headers {list(self._pairs)!r}>"


class Response:
    """A response with an HTTP status.

    Attributes:
        url: final URL after redirects.
        status: HTTP status.
        headers: ``Headers``.
        body: bytes, after HTTP decompression. Of a body over 16 MiB, which is a file, each access
            reads the whole file: use ``chunks`` or ``save``.
        request, meta: the request, and its ``meta``.
        seed: the ``SeedTask`` of the request; None if it belongs to none.
        agent: id of the agent that fetched it.
        elapsed: seconds that the agent needed.
        latency: seconds until the response headers.
        truncated: the body was longer than the run allows and was cut.
        protocol: "HTTP/1.1"; "" if the downloader does not know it.
        peer: IP address of the server; "" behind a proxy.
        certificate: of the server as DER; b"" unless the run asked for certificates.
    """

    __slots__ = (
        "_body",
        "_content_type",
        "_decoded",
        "_document",
        "_file",
        "_selector",
        "agent",
        "certificate",
        "elapsed",
        "headers",
        "latency",
        "peer",
        "protocol",
        "request",
        "status",
        "truncated",
        "url",
    )

    def __init__(
        self,
        url: str,
        *,
        request: Request | None = None,
        status: int = 200,
        headers: Sequence[tuple[str | bytes, str | bytes]] = (),
        body: bytes = b"",
        agent: str = "",
        elapsed: float = 0.0,
        truncated: bool = False,
        latency: float = 0.0,
        protocol: str = "",
        peer: str = "",
        certificate: bytes = b"",
        file: BodyFile | None = None,
    ) -> None:
        self.url = url
        self.request = request if request is not None else Request(url)
        self.status = status
        self.headers = Headers(headers)
        self._body = body
        self._file = file
        self.agent = agent
        self.elapsed = elapsed
        self.truncated = truncated
        self.latency = latency
        self.protocol = protocol
        self.peer = peer
        self.certificate = certificate
        self._content_type: str | None = None
        self._decoded: tuple[str, str] | None = None
        self._document: LexborHTMLParser | None = None
        self._selector: Selector | None = None

    @property
    def body(self) -> bytes:
        if self._file is None:
            return self._body
        return b"".join(self.chunks())

    @body.setter
    def body(self, body: bytes) -> None:
        self._body, self._file = body, None

    @property
    def size(self) -> int:
        """Bytes of the body, without reading it."""
        return len(self._body) if self._file is None else self._file.size

    def chunks(self, size: int = 1024 * 1024) -> Iterator[bytes]:
        """Yield the body in pieces: one of some GiB is never in memory whole."""
        if self._file is None:
            for start in range(0, len(self._body), size):
                yield self._body[start : start + size]
            return
        yield from self._file.chunks(size)

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write the body into a file; return its size in bytes. Raises ``OSError``."""
        with open(path, "wb") as file:
            return sum(map(file.write, self.chunks()))

    @property
    def meta(self) -> dict[str, Any]:
        return self.request.meta

    @property
    def seed(self) -> SeedTask | None:
        return self.request.seed

    @property
    def content_type(self) -> str:
        """``text/html`` of ``Text/HTML; charset=utf-8``; "" when the server sent none."""
        if self._content_type is None:
            value = self.headers.get("content-type")
            self._content_type = value.partition(";")[0].strip().lower()
        return self._content_type

    @property
    def is_html(self) -> bool:
        """Whether the content type is HTML."""
        return self.content_type in _HTML_TYPES

    @property
    def is_page(self) -> bool:
        """Whether it counts as a page: HTML, or without a content type."""
        return self.is_html or not self.content_type

    @property
    def text(self) -> str:
        """The body as text; bytes invalid in its encoding become U+FFFD."""
        return self._decode()[0]

    @property
    def encoding(self) -> str:
        """Encoding of ``text``: from byte-order mark, header, ``<meta>``, else a guess."""
        return self._decode()[1]

    def _decode(self) -> tuple[str, str]:
        if self._decoded is None:
            self._decoded = charsets.decode(self.body, self.headers.get("content-type"))
        return self._decoded

    @property
    def document(self) -> LexborHTMLParser:
        """The parsed page (selectolax): the fast way to search it."""
        if self._document is None:
            # Imported at the first use: runs of Scrapy projects parse by other means.
            from selectolax.lexbor import LexborHTMLParser

            self._document = LexborHTMLParser(self.text)
        return self._document

    @property
    def selector(self) -> Selector:
        """The parsed page as a parsel selector."""
        if self._selector is None:
            # Imported late: lxml is a quarter of the start time of a spider that does not use it.
            from parsel import Selector

            is_xml = self.content_type.endswith("xml") and not self.is_html
            kind = "xml" if is_xml else "html"
            self._selector = Selector(text=self.text, type=kind, base_url=self.url)
        return self._selector

    def css(self, query: str) -> SelectorList[Selector]:
        """Select elements by CSS, with ``::text`` and ``::attr(name)``."""
        return self.selector.css(query)

    def xpath(self, query: str, **variables: Any) -> SelectorList[Selector]:
        """Select elements by XPath."""
        return self.selector.xpath(query, **variables)

    def json(self) -> Any:
        """Return the body parsed as JSON. Raises ``ValueError`` with the position of the error."""
        try:
            return msgspec.json.decode(self.text)
        except msgspec.DecodeError as error:
            raise ValueError(f"{self.url} is no JSON: {error}") from error

    @property
    def base_url(self) -> str:
        """URL against which links are resolved: ``<base href>``, else the URL of the page."""
        base = self.document.css_first("base[href]") if self.is_html else None
        href = (base.attributes.get("href") or "").strip() if base is not None else ""
        if not href:
            return self.url
        try:
            joined = urljoin(self.url, href)
        except ValueError:
            return self.url
        return joined if origin_of(joined) is not None else self.url

    def links(self, selector: str = "a[href]", *, same_origin: bool | str = False) -> list[str]:
        """Return the links of an HTML page: absolute, http(s), no fragment, each once.

        Args:
            selector: CSS of the elements whose ``href`` counts.
            same_origin: True keeps links to the page's own scheme, host and port; a URL keeps
                those to the origin of that URL.

        In the order of the page. Empty for other content types.
        """
        if not self.is_html:
            return []
        only = None
        if same_origin:
            own = same_origin if isinstance(same_origin, str) else self.url
            only = origin_of(own)
            if only is None:
                raise ValueError(f"not an http or https URL: {own!r}")
        hrefs = [node.attributes.get("href") for node in self.document.css(selector)]
        return resolve_all(self.base_url, hrefs, only=only)

    def urljoin(self, url: str) -> str:
        """Resolve an address against this page."""
        return urljoin(self.base_url, url.strip())

    def follow(self, url: str, callback: Callback | None = None, **options: Any) -> Request:
        """Return a ``Request`` for an address of this page; ``options`` as of ``Request``."""
        return Request(self.urljoin(url), callback, **options)

    def __repr__(self) -> str:
        return f"<Response {self.status} {self.url}>"
