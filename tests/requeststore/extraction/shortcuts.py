"""Short words for the tests of extraction rules."""

from __future__ import annotations

from typing import Any

from apps.requeststore.extraction import Extracted, ResponsePage, check_rules, compile_rules

URL = "https://shop.example/list?page=1"


def page(body: str | bytes, **more: Any) -> ResponsePage:
    """A page of that body, status 200."""
    raw = body if isinstance(body, bytes) else body.encode()
    more.setdefault("headers", [("Content-Type", "text/html")])
    return ResponsePage(url=more.pop("url", URL), body=raw, **more)


def extract(rule: dict[str, Any], body: str | bytes, **more: Any) -> Extracted:
    """What one rule finds."""
    return compile_rules({"r": rule}).extract("r", page(body, **more))


def value(field: Any, body: str | bytes, kind: str = "html", **more: Any) -> Any:
    """What one field finds on a page that gives no problem."""
    found = extract({"type": kind, "fields": {"v": field}}, body, **more)
    assert not found.problems, found.problems
    return found.records[0]["v"]


def codes(rules: Any) -> list[tuple[str, str, int | None]]:
    """What is wrong with a rule map: places without "rules.", codes, offsets."""
    return [
        (each.place.removeprefix("rules."), each.code, each.offset) for each in check_rules(rules)
    ]
