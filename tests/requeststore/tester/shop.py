"""A biz that reads a shop, and pages of it."""

from __future__ import annotations

from typing import Any, Final

from apps.projects.models import Project
from apps.requeststore.extraction import ResponsePage
from apps.requeststore.models import SamplePage
from apps.requeststore.services.sample_pages import keep_page

RULE: Final[dict[str, Any]] = {
    "each": "div.item",
    "fields": {
        "title": {"css": "h2::text", "required": True},
        "price": {"css": ".p::text", "as": "number"},
    },
    "follow": [{"css": "a.next::attr(href)", "rule": "other"}],
}
BIZ: Final[dict[str, Any]] = {
    "rules": {"list": RULE, "other": {"type": "text", "fields": {"v": ".+"}}}
}


def shop(*titles: str, price: str = "12") -> ResponsePage:
    """A page of a shop, in GBK."""
    items = "".join(
        f"<div class=item><h2>{title}</h2><b class=p>{price}</b></div>" for title in titles
    )
    return ResponsePage(
        url="https://shop.example/list",
        headers=[("Content-Type", "text/html; charset=gbk"), ("Set-Cookie", "session=hunter2")],
        body=f"<html><body>{items}<a class=next href=?page=2>n</a></body></html>".encode("gbk"),
    )


def make_sample(project: Project, page: ResponsePage | None = None) -> SamplePage:
    """A kept page with two goods, or another one."""
    page = page or shop("茶壶", "杯子")
    return keep_page(project=project, biz="news", rule="list", page=page, actor=None)
