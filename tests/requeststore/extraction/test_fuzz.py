"""Arbitrary rules and arbitrary pages: an answer each time, and nothing raised."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.requeststore.extraction import (
    InvalidExtractionRules,
    ResponsePage,
    RuleMap,
    check_rules,
    compile_rules,
)
from apps.requeststore.extraction.limits import MAX_RESULT_BYTES
from apps.requeststore.extraction.matches import explain

pytestmark = pytest.mark.covers("S4.5", "S4.20")

FEW: Final = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
RULES: Final[dict[str, Any]] = {
    "html": {
        "status": ["1xx", "2xx", "3xx", "4xx", "5xx"],
        "each": {"xpath": "//* | //text() | //@* | //comment()"},
        "fields": {
            "t": ".",
            "i": {"xpath": ".", "as": "integer"},
            "n": {"xpath": "string(.)", "as": "number"},
            "d": {"xpath": ".", "as": "datetime"},
            "u": {"xpath": ".//@href", "as": "url", "list": True},
            "h": {"xpath": "*", "as": "html", "list": True},
            "j": {"xpath": ".", "as": "json", "steps": ["collapse"]},
            "b": {"xpath": ".", "as": "boolean"},
            "r": {"xpath": ".//text()", "regex": "(.)(.)", "list": True, "steps": [{"split": "a"}]},
            "x": {"xpath": "sum(.//b)", "as": "any"},
        },
        "follow": [{"xpath": "//@href", "rule": "json"}],
    },
    "json": {
        "type": "json",
        "each": "[@, *, [*], a[]][]",
        "fields": {
            "v": "@",
            "l": {"jmespath": "sort(keys(@))", "list": True},
            "n": {"jmespath": "to_number(@)", "as": "number"},
            "s": {"jmespath": "to_string(@)", "as": "integer"},
            "c": {"jmespath": "ceil(@)"},
        },
    },
    "xml": {"type": "xml", "each": {"xpath": "//*"}, "fields": {"t": {"xpath": "."}}},
    "text": {"type": "text", "each": {"regex": "(?s).{1,9}"}, "fields": {"t": "^(.)", "all": ".+"}},
}
RULES["html"]["fields"]["t"] = {"xpath": "."}
MAP: Final = compile_rules(RULES)

markup = st.lists(
    st.sampled_from(
        ["<p>", "</p>", "<a href=", "'", '"', ">", "<b>1</b>", "&#xd800;", "&#0;", "<!DOCTYPE x [",
         "<!ENTITY a '&a;&a;'>]>", "&a;", "<base href='//['>", "<![CDATA[", "]]>", "<?pi ?>",
         "<!--", "-->", "\x00", "\ufffe", "中文", "1e999", "<svg:a xmlns:svg='x'>", "<br/>",
         "<?xml version='1.0' encoding='", "utf-16'?>", "<meta charset=", "hz>", "9" * 40, "٣",
         "http://[::1", "https://a.cn:99999/", "2024-02-31", "{\"a\":[1,", "NaN", "]}"]
    ) | st.text(max_size=8),
    max_size=30,
).map("".join)  # fmt: skip
bodies = (
    st.binary(max_size=200)
    | markup.map(lambda text: text.encode("utf-8", "surrogatepass"))
    | markup.map(lambda text: text.encode("utf-16", "replace"))
    | markup.map(lambda text: text.encode("gb18030", "replace"))
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
documents = plain.map(lambda value: repr(value).replace("'", '"').encode("utf-8", "replace"))
headers = st.lists(
    st.tuples(
        st.sampled_from(["Content-Type", "content-type", "x"]) | st.text(max_size=5),
        st.sampled_from(
            ["text/html; charset=utf-7", "text/html; charset=rot13", "a; charset=base64",
             "charset=hz", "charset=utf-16", "charset=idna", "charset=\x00", "charset=undefined"]
        )
        | st.text(max_size=20),
    ),
    max_size=2,
)  # fmt: skip


def read(rules: RuleMap, name: str, page: ResponsePage) -> None:
    found = rules.extract(name, page)
    raw = msgspec.json.encode(found)
    assert len(raw) < 10 * MAX_RESULT_BYTES
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=type(found)) == found
    assert found.failed == any(each.fatal for each in found.problems) or found.hidden
    assert not (found.failed and (found.records or found.follow))
    msgspec.json.encode(explain(rules, name, page))


@pytest.mark.slow("1 s")
@FEW
@given(st.sampled_from(sorted(RULES)), bodies | documents, headers, st.integers(0, 700))
def test_any_page(name: str, body: bytes, head: list[tuple[str, str]], status: int) -> None:
    read(MAP, name, ResponsePage(url="http://a.cn/x", body=body, headers=head, status=status))


@pytest.mark.slow("1 s")
@FEW
@given(st.text(max_size=40), markup)
def test_any_address(url: str, body: str) -> None:
    read(MAP, "html", ResponsePage(url=url, body=body.encode("utf-8", "replace")))


expressions = st.text(
    alphabet=st.sampled_from("ab/.:@*[]()'\"|$,&=!<> 0129-+~^{}`?\\#\n中\x00\ud800"), max_size=12
) | st.sampled_from(
    ["//a", "a", "@", "a[*]", "*", "..", "namespace::*", "//@*", "string()", "position()",
     "id('a')", "lang('a')", "sum(//a)", "//a[last()]", "(a|b)", ":not(a)", "a:nth-of-type(2n+1)",
     "a:root", "a:lang(zh)", ":contains('x')", "a::attr(x)", "::text", "*[a|b]", "a|b",
     "sort_by(@, &a)",
     "max_by(@, &a)", "map(&a, @)", "avg(@)", "not_null(a, b)", "a[::0]", "a[::-1]", "{a: a, b: b}",
     "(?i)a", "(?P<x>a)|b", "()", "$", "^", "\\C", "\\pN"]
)  # fmt: skip
sources = st.sampled_from(["css", "xpath", "jmespath", "regex"])
steps = st.lists(
    st.sampled_from(["strip", "collapse", "lower", "unique", "first", "last", "x"])
    | st.builds(
        lambda name, text: {name: text},
        st.sampled_from(["regex", "jmespath", "split", "join", "prefix", "replace", "sub"]),
        expressions | st.tuples(expressions, expressions).map(list),
    ),
    max_size=3,
)
types = st.sampled_from(
    ["any", "text", "integer", "number", "boolean", "url", "json", "html", "datetime", "x"]
)
fields = st.recursive(
    expressions
    | st.builds(
        lambda source, expression, more: {source: expression, **more},
        sources,
        expressions,
        st.fixed_dictionaries(
            {},
            optional={
                "as": types, "steps": steps, "list": st.booleans(), "required": st.booleans(),
                "default": plain, "regex": expressions, "format": expressions,
            },
        ),
    ),
    lambda inner: st.builds(
        lambda source, expression, name, field: {source: expression, "fields": {name: field}},
        sources, expressions, st.sampled_from(["a", "b", "1", "中"]), inner,
    ),
    max_leaves=3,
)  # fmt: skip
rule_maps = st.dictionaries(
    st.sampled_from(["r", "7", "a b"]),
    st.builds(
        lambda kind, each, names, follow: {
            "type": kind,
            "fields": names,
            **({"each": each} if each else {}),
            **({"follow": follow} if follow else {}),
        },
        st.sampled_from(["html", "xml", "json", "text", "x"]),
        st.none() | expressions,
        st.dictionaries(st.sampled_from(["a", "b", "c"]), fields, max_size=3),
        st.none() | st.lists(st.builds(lambda css: {"css": css, "rule": "r"}, expressions)),
    ),
    max_size=2,
)


@pytest.mark.slow("3 s")
@FEW
@given(rule_maps, bodies | documents)
def test_any_rules(rules: Any, body: bytes) -> None:
    """Either they are refused, with places, or they read whatever comes."""
    problems = check_rules(rules)
    if any(not each.warning for each in problems):
        assert all(each.place.startswith("rules") and each.code for each in problems)
        with pytest.raises(InvalidExtractionRules):
            compile_rules(rules)
        return
    compiled = compile_rules(rules)
    for name in [*compiled.names, ""]:
        read(compiled, name, ResponsePage(url="http://a.cn/", body=body))


@pytest.mark.slow("1 s")
@FEW
@given(expressions, sources, bodies)
def test_any_expression(expression: str, source: str, body: bytes) -> None:
    kinds = {"css": ("html", "xml"), "xpath": ("html", "xml"), "jmespath": ("json",)}
    for kind in kinds.get(source, ("text",)):
        rules = {"r": {"type": kind, "fields": {"v": {source: expression, "list": True}}}}
        problems = check_rules(rules)
        for each in problems:
            assert each.offset is None or 0 <= each.offset <= len(expression)
        if not problems:
            read(compile_rules(rules), "r", ResponsePage(url="http://a.cn/", body=body))


@pytest.mark.slow("5 s")
@FEW
@given(plain)
def test_anything_is_no_rule_map(data: Any) -> None:
    for each in check_rules(data):
        assert each.place
        assert each.text
        str(each).encode()
