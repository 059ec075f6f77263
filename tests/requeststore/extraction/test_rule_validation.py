"""Rules that are refused: where, why, and at which character."""

from __future__ import annotations

from typing import Any

import pytest

from apps.requeststore.extraction import InvalidExtractionRules, check_rules, compile_rules
from tests.requeststore.extraction.shortcuts import codes

pytestmark = pytest.mark.covers("S4.5")


def of_field(field: Any, kind: str = "html") -> list[tuple[str, str, int | None]]:
    found = codes({"r": {"type": kind, "fields": {"v": field}}})
    return [(place.removeprefix("r.fields.v."), code, offset) for place, code, offset in found]


@pytest.mark.parametrize(
    ("field", "place", "code", "offset"),
    [
        ({"css": "a!b"}, "css", "bad_css", 1),
        ({"css": "a >"}, "css", "bad_css", 3),
        ({"css": "a::shout"}, "css", "bad_css", None),
        ({"css": ""}, "css", "bad_css", 0),
        ({"css": "a\x00b"}, "css", "bad_css", 1),
        ({"css": 7}, "css", "bad_text", None),
        ({"css": "a" * 1001}, "css", "bad_text", None),
        ({"xpath": "//a[@x==1]"}, "xpath", "bad_xpath", 7),
        ({"xpath": "//标题[@x==1]"}, "xpath", "bad_xpath", 8),
        ({"xpath": "//a]"}, "xpath", "bad_xpath", 3),
        ({"xpath": "//a[$x]"}, "xpath", "bad_xpath", 4),
        ({"xpath": "//a[re:test(., '(a+)+$')]"}, "xpath", "bad_xpath", 4),
        ({"xpath": "//a[shout(.)]"}, "xpath", "bad_xpath", 4),
        ({"xpath": "//a[contains(.)]"}, "xpath", "bad_xpath", 4),
        ({"xpath": "document('file:///etc/passwd')"}, "xpath", "bad_xpath", 0),
        ({"xpath": "//svg:a"}, "xpath", "bad_xpath", 2),
        ({"xpath": "//a[.//b[.//c[.//d]]]"}, "xpath", "bad_xpath", 15),
        ({"css": "a:has(b:has(c:has(d)))"}, "css", "bad_css", None),
        ({"regex": "(a"}, "regex", "bad_regex", None),
        ({"regex": "a(?=b)"}, "regex", "bad_regex", 1),
        ({"regex": "((a{100}){100}){100}"}, "regex", "bad_regex", 3),
        ({"css": "a", "regex": "x["}, "regex", "bad_regex", 1),
        ({"css": "a", "xpath": "//a"}, "", "two_sources", None),
        ({"as": "text"}, "", "no_source", None),
        ({"css": "a", "as": "money"}, "as", "unknown_as", None),
        ({"css": "a", "zone": "Asia/Nowhere", "as": "datetime"}, "zone", "bad_zone", None),
        ({"css": "a", "format": "%Q %", "as": "datetime"}, "format", "bad_format", None),
        ({"css": "a", "format": "%Y"}, "format", "no_use", None),
        ({"css": "a", "lst": True}, "lst", "unknown_key", None),
        ({"css": "a", "list": 1}, "list", "bad_truth", None),
        ({"css": "a", "steps": ["shout"]}, "steps[0]", "unknown_step", None),
        ({"css": "a", "steps": ["strip", {"regex": "["}]}, "steps[1].regex", "bad_regex", 0),
        ({"css": "a", "steps": [{"replace": "a"}]}, "steps[0].replace", "bad_text", None),
        ({"css": "a", "default": float("nan")}, "default", "bad_value", None),
        ({"const": {"a": 2**70}}, "const", "bad_value", None),
        ({"css": "a", "fields": {}}, "fields", "empty_rule", None),
        ({"css": "a", "fields": {"b": "c"}, "as": "text"}, "as", "no_use", None),
        ({"page": "body"}, "page", "unknown_page", None),
        ({"header": ""}, "header", "bad_text", None),
        ({"jmespath": "a"}, "jmespath", "wrong_language", None),
        (7, "", "no_object", None),
    ],
)  # fmt: skip
def test_a_bad_field(field: Any, place: str, code: str, offset: int | None) -> None:
    found = of_field(field)
    assert (place or "r.fields.v", code, offset) in found
    with pytest.raises(InvalidExtractionRules) as caught:
        compile_rules({"r": {"fields": {"v": field}}})
    assert caught.value.problems


@pytest.mark.parametrize(
    ("expression", "offset"),
    [
        ("a.b[", 4),
        ("a[?b==", 6),
        ("shout(@)", None),
        ("length(@, @)", None),
        ("", 0),
        # Doubled so often, a small page would become larger than any memory.
        ("|".join(["[@,@]"] * 12), None),
        ("|".join(["join('', [to_string(@), to_string(@)])"] * 5), None),
    ],
)
def test_a_bad_jmespath(expression: str, offset: int | None) -> None:
    assert ("jmespath", "bad_jmespath", offset) in of_field({"jmespath": expression}, "json")


@pytest.mark.parametrize(
    ("rules", "place", "code"),
    [
        ([], "rules", "bad_rules"),
        ({"a b": {}}, "rules", "bad_name"),
        ({"a": 3}, "a", "no_object"),
        ({"a": {}}, "a", "empty_rule"),
        ({"a": {"each": "p"}}, "a", "empty_rule"),
        ({"a": {"each": "p", "fields": {"b c": "a"}}}, "a.fields", "bad_name"),
        ({"a": {"type": "pdf"}}, "a.type", "unknown_type"),
        ({"a": {"encoding": "utf-7", "fields": {"b": "a"}}}, "a.encoding", "bad_encoding"),
        ({"a": {"status": [99], "fields": {"b": "a"}}}, "a.status", "bad_status"),
        ({"a": {"status": [], "fields": {"b": "a"}}}, "a.status", "bad_status"),
        ({"a": {"at_least": 1, "fields": {"b": "a"}}}, "a.at_least", "no_each"),
        ({"a": {"most": 0, "fields": {"b": "a"}}}, "a.most", "bad_number"),
        ({"a": {"namespaces": {"x": "y"}, "fields": {"b": "a"}}}, "a.namespaces", "bad_namespaces"),
        ({"a": {"follow": [{"css": "a", "rule": "z"}]}}, "a.follow[0].rule", "unknown_rule"),
        ({"a": {"follow": {}}}, "a.follow", "bad_follow"),
        ({"a": {"fields": {"b": "a"}, "feilds": {}}}, "a.feilds", "unknown_key"),
    ],
)
def test_a_bad_rule(rules: Any, place: str, code: str) -> None:
    assert (place, code) in [(where, what) for where, what, _ in codes(rules)]


def test_a_path_that_leaves_its_record_is_warned_of() -> None:
    """The usual slip: //a inside a record finds the first link of the page each time."""
    rules = {"r": {"each": "p", "fields": {"v": {"xpath": "//a"}}}}
    found = check_rules(rules, "bizzes.news.rules")
    assert [(each.place, each.code, each.warning) for each in found] == [
        ("bizzes.news.rules.r.fields.v.xpath", "from_the_page", True)
    ]
    assert compile_rules(rules).names == ["r"]


def test_records_in_records_have_an_end() -> None:
    field: dict[str, Any] = {"css": "a"}
    for _ in range(6):
        field = {"css": "a", "fields": {"v": field}}
    assert "too_deep" in [code for _, code, _ in codes({"r": {"fields": {"v": field}}})]


def test_a_rule_map_has_an_end() -> None:
    rule = {"fields": {"v": "a"}}
    assert codes({str(number): rule for number in range(501)}) == [("rules", "too_many", None)]
    wide = {"fields": {f"f{number}": "a" for number in range(201)}}
    assert [code for _, code, _ in codes({"r": wide})] == ["too_many"]
