"""A plain breadth-first walk over one site, from the standard library alone.

It shares no line with the spider it is compared with: html.parser and urllib against lexbor, the
SDK's own resolver and aiohttp.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections import deque
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import quote, urldefrag, urljoin, urlsplit

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_BLANKS = "".join(map(chr, range(33)))


@dataclass
class Walk:
    """Every URL the walk met, and those that were HTML pages with status 200."""

    urls: set[str] = field(default_factory=set)
    pages: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.hrefs: list[str] = []
        self.base: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "href" and tag == "a":
                self.hrefs.append(value or "")
            if name == "href" and tag == "base" and self.base is None:
                self.base = value or ""


def walk(first: str) -> Walk:
    """Walk from ``first`` over everything of its scheme, host and port."""
    found = Walk(urls={first})
    queue = deque([first])
    while queue:
        url = queue.popleft()
        links = _fetch(url, found)
        for link in links:
            if _origin(link) == _origin(first) and link not in found.urls:
                found.urls.add(link)
                queue.append(link)
    return found


def _fetch(url: str, found: Walk) -> list[str]:
    try:
        with _OPENER.open(quote(url, safe="%/:?&=#;,+@!$'()*~[]"), timeout=30) as answer:
            body, final, status = answer.read(), answer.geturl(), answer.status
            html = answer.headers.get_content_type() == "text/html"
    except urllib.error.HTTPError as error:
        error.close()
        found.failed.add(url)
        return []
    if status != 200 or not html:
        return []
    found.pages.add(url)
    parser = _Links()
    parser.feed(body.decode("utf-8", "replace"))
    parser.close()
    base = urljoin(final, parser.base) if parser.base is not None else final
    return [link for href in parser.hrefs if (link := _resolve(base, href))]


def _resolve(base: str, href: str) -> str | None:
    href = href.strip(_BLANKS).replace("\n", "").replace("\t", "").replace("\r", "")
    try:
        link = urldefrag(urljoin(base, href)).url
        parts = urlsplit(link)
        _ = parts.port
    except ValueError:
        return None
    return link if parts.scheme in ("http", "https") and parts.hostname else None


def _origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}[parts.scheme]
