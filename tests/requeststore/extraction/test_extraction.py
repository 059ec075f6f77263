"""Pages become records by rules."""

from __future__ import annotations

from typing import Any

import pytest

from apps.requeststore.extraction import ResponsePage, compile_rules
from tests.requeststore.extraction.shortcuts import URL, extract, page, value

pytestmark = pytest.mark.covers("S4.5", "S4.20")

SHOP = """
<html><head><base href="/goods/"></head><body>
<div class=item id=i1><h2> Red  teapot </h2><span class=p>CNY 1,299.50</span>
  <a class=tag href=#>tea</a><a class=tag href=#>red</a><a class=more href="t/1?x=1#top">more</a>
  <time datetime="2024-05-06T07:08:09+08:00"></time>
  <table><tr><td>blue</td><td>3</td></tr><tr><td>green</td><td>none</td></tr></table></div>
<div class=item id=i2><h2>Cup</h2><span class=p>sold out</span></div>
</body></html>"""
ITEM: dict[str, Any] = {
    "each": "div.item",
    "fields": {
        "title": {"css": "h2", "required": True, "steps": ["collapse"]},
        "price": {"xpath": ".//span[@class='p']/text()", "regex": "([0-9,.]+)", "as": "number"},
        "tags": {"css": "a.tag::text", "list": True},
        "link": {"css": "a.more::attr(href)", "as": "url"},
        "at": {"css": "time::attr(datetime)", "as": "datetime"},
        "offers": {
            "css": "tr",
            "list": True,
            "fields": {
                "colour": "td:nth-child(1)",
                "left": {"css": "td:nth-child(2)", "as": "integer"},
            },
        },
        "page": {"page": "url"},
    },
}


def test_a_list_of_goods_becomes_records() -> None:
    """Records in records, lists, types, links joined with the base of the page."""
    found = extract(ITEM, SHOP)
    assert not found.failed
    assert found.matched == 2
    assert found.records == [
        {
            "title": "Red teapot",
            "price": 1299.5,
            "tags": ["tea", "red"],
            "link": "https://shop.example/goods/t/1?x=1",
            "at": "2024-05-05T23:08:09Z",
            "offers": [{"colour": "blue", "left": 3}, {"colour": "green", "left": None}],
            "page": URL,
        },
        {
            "title": "Cup",
            "price": None,
            "tags": [],
            "link": None,
            "at": None,
            "offers": [],
            "page": URL,
        },
    ]
    assert [str(each) for each in found.problems] == [
        "offers.left of record 1: 'none' is no number"
    ]


def test_a_required_field_that_is_missing_fails_the_request() -> None:
    found = extract(ITEM, SHOP.replace("<h2>Cup</h2>", ""))
    assert found.failed
    assert found.records == []
    assert found.reason == "title of record 2: required, and not on this page"


def test_a_required_field_of_the_wrong_type_fails_it_too() -> None:
    rule = {"fields": {"n": {"css": "b", "as": "integer", "required": True}}}
    found = extract(rule, "<b>many</b>")
    assert found.failed
    assert found.reason == "n: 'many' is no number"


def test_a_bad_value_becomes_the_default_and_a_problem() -> None:
    rule = {"fields": {"n": {"css": "b", "as": "integer", "default": -1}}}
    found = extract(rule, "<b>many</b>")
    assert (found.failed, found.records) == (False, [{"n": -1}])
    assert [each.code for each in found.problems] == ["bad_value"]


def test_defaults_are_never_shared_between_records() -> None:
    rule = {"each": "p", "fields": {"n": {"css": "b", "default": {"a": []}}}}
    found = extract(rule, "<p>1<p>2")
    found.records[0]["n"]["a"].append(1)
    assert found.records[1] == {"n": {"a": []}}


def test_a_layout_that_has_changed_is_told_of() -> None:
    """No records where some are expected: the request fails instead of being empty for good."""
    found = extract({**ITEM, "at_least": 3}, SHOP)
    assert found.failed
    assert found.reason == "2 records; at least 3 are expected"


def test_more_records_than_allowed_are_no_half_page() -> None:
    found = extract({**ITEM, "most": 1}, SHOP)
    assert (found.failed, found.records) == (True, [])
    assert found.problems[-1].code == "too_many"


@pytest.mark.parametrize(("status", "failed"), [(200, True), (404, False), (410, False)])
def test_a_rule_says_which_statuses_are_pages(status: int, failed: bool) -> None:
    rule = {"status": ["4xx"], "fields": {"gone": {"page": "status"}}}
    found = extract(rule, "", status=status)
    assert found.failed is failed
    assert found.records == ([] if failed else [{"gone": status}])


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ("<meta charset=gb2312><h1>镕基与龘</h1>".encode("gb18030"), []),
        ("<h1>镕基与龘</h1>".encode("gb18030"), [("content-TYPE", "text/html; charset=GBK")]),
        ("\ufeff<h1>镕基与龘</h1>".encode(), [("Content-Type", "text/html; charset=gbk")]),
        ("<h1>镕基与龘</h1>".encode("utf-16"), []),
    ],
)
def test_chinese_pages_in_every_encoding(body: bytes, headers: list[tuple[str, str]]) -> None:
    assert value("h1::text", body, headers=headers) == "镕基与龘"


def test_a_rule_may_know_the_encoding_better_than_the_page() -> None:
    rule = {"encoding": "gbk", "fields": {"v": "h1", "e": {"page": "encoding"}}}
    found = extract(rule, "<meta charset=utf-8><h1>中文</h1>".encode("gbk"))
    assert found.records == [{"v": "中文", "e": "gb18030"}]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("p", "one two"),
        ("p::text", "one"),
        ({"css": "p", "as": "html"}, '<p class="b c" title="a &amp; b">one <b>two</b></p>'),
        ({"css": "p::text", "list": True}, ["one", "three"]),
        ({"xpath": "//p", "list": True}, ["one two", "three"]),
        ({"xpath": "count(//p)", "as": "integer"}, 3),
        ({"xpath": "boolean(//p)", "as": "boolean"}, True),
        ({"xpath": "number('x')", "default": "none"}, "none"),
        ({"xpath": "//p[has-class('c')]/@title"}, "a & b"),
        ({"css": "p", "list": True, "steps": [{"join": "; "}]}, ["one two; three"]),
        ({"css": "p", "steps": [{"join": "; "}, "upper"]}, "ONE TWO; THREE"),
        ({"css": "p", "steps": ["last"]}, "three"),
        ({"css": "p", "steps": [{"sub": ["[aeiou]", "*"]}, {"prefix": "<"}, {"suffix": ">"}]},
         "<*n* tw*>"),
        ({"css": "p::attr(title)", "steps": [{"split": "&"}], "list": True}, ["a", "b"]),
        ({"css": "p", "steps": [{"replace": ["one", "1"]}], "list": True}, ["1 two", "three"]),
        ({"css": "p", "steps": [{"regex": "t(.)"}, "unique"], "list": True}, ["w", "h"]),
        ({"css": "script::text", "steps": [{"jmespath": "a[].b"}], "list": True}, [1, 2]),
        ({"css": "script", "as": "json"}, {"a": [{"b": 1}, {"b": 2}]}),
        ({"regex": "two</b>\\s*(<)"}, "<"),
        ({"const": {"k": [1, None]}}, {"k": [1, None]}),
        ({"header": "content-type"}, "text/html"),
        ({"meta": "n"}, 7),
        ({"meta": "none"}, None),
        ({"page": "status"}, 200),
    ],
)  # fmt: skip
def test_a_field(field: Any, expected: Any) -> None:
    body = (
        "<p class='b c' title='a &amp; b'>one <b>two</b></p><p> three</p><p> </p>"
        '<script>{"a": [{"b": 1}, {"b": 2}]}</script>'
    )
    kind: dict[str, Any] = {"as": "any"} if "jmespath" in str(field) else {}
    if isinstance(field, dict):
        field = {**kind, **field}
    assert value(field, body, meta={"n": 7}) == expected


def test_json_is_asked_by_jmespath() -> None:
    rule = {
        "type": "json",
        "each": "data.items",
        "fields": {
            "id": {"jmespath": "id", "as": "integer", "required": True},
            "name": "name",
            "tags": {"jmespath": "tags[].name", "list": True},
            "maker": {"jmespath": "maker", "fields": {"country": "address.country"}},
        },
    }
    body = """{"data": {"items": [
        {"id": "12", "name": "茶壶", "tags": [{"name": "a"}, {"name": "b"}],
         "maker": {"address": {"country": "CN"}}},
        {"id": 13, "name": null}]}}"""
    found = extract(rule, body)
    assert not found.problems
    assert found.records == [
        {"id": 12, "name": "茶壶", "tags": ["a", "b"], "maker": {"country": "CN"}},
        {"id": 13, "name": None, "tags": [], "maker": None},
    ]


def test_xml_has_namespaces() -> None:
    rule = {
        "type": "xml",
        "namespaces": {"a": "http://www.w3.org/2005/Atom"},
        "each": {"xpath": "//a:entry"},
        "fields": {"title": {"xpath": "a:title"}, "link": {"xpath": "a:link/@href", "as": "url"}},
    }
    body = (
        '<?xml version="1.0" encoding="gb2312"?><feed xmlns="http://www.w3.org/2005/Atom">'
        '<entry><title>中文</title><link href="/e/1"/></entry></feed>'
    ).encode("gb2312")
    found = extract(rule, body, headers=[])
    assert found.records == [{"title": "中文", "link": "https://shop.example/e/1"}]


def test_text_is_matched_line_by_line() -> None:
    rule = {
        "type": "text",
        "each": {"regex": "(?m)^[^#\\n].*$"},
        "fields": {"key": "^(\\w+)", "value": {"regex": "=\\s*(\\d+)", "as": "integer"}},
    }
    found = extract(rule, "# comment\na = 1\nb = 22\n")
    assert found.records == [{"key": "a", "value": 1}, {"key": "b", "value": 22}]


def test_pages_that_are_none_of_their_kind_fail_with_a_code() -> None:
    for kind, body, code in (
        ("json", "<html>", "no_json"),
        ("json", b"\xff\xfe", "no_json"),
        ("json", "[" * 100_000, "no_json"),
        ("xml", "no markup", "no_xml"),
    ):
        found = extract({"type": kind, "fields": {"v": {"const": 1}}}, body)
        assert (found.failed, found.problems[0].code) == (True, code)


def test_links_to_follow() -> None:
    """Each once, http alone, with the rule that reads them, and never deeper than allowed."""
    rules = compile_rules(
        {
            "list": {
                "follow": [
                    {"css": "a.d::attr(href)", "rule": "detail", "most": 2},
                    {"css": "a.next::attr(href)", "rule": "list", "depth": 3, "keep_meta": False},
                ]
            },
            "detail": {"fields": {"t": "h1"}},
        }
    )
    body = (
        "<a class=d href=/1>1</a><a class=d href=/1#x>1</a><a class=d href=/2>2</a>"
        "<a class=d href=/3>3</a><a class=next href=?page=2>n</a>"
    )
    found = rules.extract("list", page(body, meta={"who": "me"}))
    assert found.records == []
    assert [(each.url, each.rule, each.depth, each.meta) for each in found.follow] == [
        ("https://shop.example/1", "detail", 1, {"who": "me"}),
        ("https://shop.example/2", "detail", 1, {"who": "me"}),
        ("https://shop.example/list?page=2", "list", 1, {}),
    ]
    deeper = rules.extract("list", page(body, depth=2))
    assert [(each.rule, each.depth) for each in deeper.follow] == [("list", 3)]
    assert rules.extract("list", page(body, depth=3)).follow == []
    away = rules.extract("list", page("<a class=d href=javascript:alert(1)>x</a>"))
    assert (away.follow, away.failed) == ([], False)
    assert away.problems[0].code == "bad_value"


def test_which_rule_reads_a_request() -> None:
    """By name or number; without one the rule ``default``, or the only one."""
    one: dict[str, Any] = {"fields": {"v": {"const": 1}}}
    two: dict[str, Any] = {"fields": {"v": {"const": 2}}}
    answer = page("x")
    assert compile_rules({"7": one}).extract("7", answer).records == [{"v": 1}]
    assert compile_rules({"7": one}).extract("", answer).records == [{"v": 1}]
    both = compile_rules({"7": one, "default": two})
    assert both.extract("", answer).records == [{"v": 2}]
    assert both.extract("8", answer).reason == "the biz has no rule '8'"
    assert compile_rules({"7": one, "8": two}).extract("", answer).failed
    assert compile_rules({}).extract("", ResponsePage(url=URL)).failed
