"""A spider without code: every page of one site."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yardspider.errors import BadInput
from yardspider.request import Request
from yardspider.response import Response
from yardspider.spider import Spider


class SiteSpider(Spider):
    """Follows every ``a[href]`` that stays on the site of the argument ``url``, breadth first.

    The site is that URL's scheme, host and port. Links are those of HTML answers with status
    200, resolved against the page's final address or its ``<base href>``, without fragment. One
    item a page: ``{"url", "status", "title", "links"}``, links being the number of different
    pages of the site it points to.

    Arguments:
        url: Address where the site begins.
    """

    name = "site"
    arguments = {"url": str}

    def __init__(self, arguments: dict[str, Any] | None = None) -> None:
        super().__init__(arguments)
        url = self.arguments.get("url")
        if not isinstance(url, str) or not url:
            raise BadInput('SiteSpider needs the argument "url": where the site begins')
        self._first = Request(url)
        self._site = self._first.url
        # The scheduler would drop repeated requests as well; most links of a page are
        # repeats, and this check saves making a request for each.
        self._known = {self._first.url}

    def start(self) -> Iterator[Request]:
        yield self._first

    def parse(self, response: Response) -> Iterator[Request | dict[str, Any]]:
        if response.status != 200 or not response.is_html:
            return
        links = response.links(same_origin=self._site)
        known = self._known
        for url in links:
            if url not in known:
                known.add(url)
                yield Request(url)
        title = response.document.css_first("title")
        yield {
            "url": response.request.url,
            "status": response.status,
            "title": " ".join(title.text().split()) if title is not None else "",
            "links": len(links),
        }
