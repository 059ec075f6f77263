"""Links: the short ways give what ``urljoin`` gives, and nothing unfetchable comes out."""

from __future__ import annotations

from urllib.parse import urljoin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yardspider.links import Resolver, checked_url, clean_href, origin_of, resolve_all

_BASES = [
    "http://h/",
    "http://h",
    "http://h/a/b/c.html",
    "http://h/a//b/c",
    "http://h/a/../b/",
    "http://h:80/x?y=/z/",
    "http://H/x;p/y",
    "HTTP://h/a/b",
    "http://u:p@h/a/b/",
    "https://h/é/page.html",
]
_PARTS = st.sampled_from(
    [
        *("a", "b.html", "..", ".", "?", "x%20y", "é", ";p", "?q=1", "?q=a//b", ":", "a:b", "/"),
        *("//", "../", "./", "http:", "https://h", "...", ".x", "&", "%7E"),
    ]
)
_HREFS = st.lists(_PARTS, max_size=6).map("".join)


@pytest.mark.slow("3 s")
@settings(max_examples=2000, deadline=None)
@given(base=st.sampled_from(_BASES), href=_HREFS)
def test_resolves_as_urljoin_does(base: str, href: str) -> None:
    resolved = Resolver(base).resolve(clean_href(href))
    joined = urljoin(base, clean_href(href))
    if resolved is None:
        assert origin_of(joined) is None
    else:
        assert resolved == (joined, origin_of(joined))


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("b.html", ["http://h/x/b.html"]),
        ("b.html#part", ["http://h/x/b.html"]),
        ("#part", ["http://h/x/y.html"]),
        ("", ["http://h/x/y.html"]),
        (None, ["http://h/x/y.html"]),
        ("../up.html", ["http://h/up.html"]),
        ("../../../up.html", ["http://h/up.html"]),
        ("/root?q=1#z", ["http://h/root?q=1"]),
        ("?page=2", ["http://h/x/y.html?page=2"]),
        ("  /a\n b.html\t", ["http://h/a b.html"]),
        ("HTTP://h/up", ["http://h/up"]),
        ("//other/x", ["http://other/x"]),
        ("mailto:a@b.example", []),
        ("javascript:alert(1)", []),
        ("JavaScript:alert(1)", []),
        ("data:text/html,x", []),
        ("ftp://h/x", []),
        ("http://[bad/", []),
        ("https:///x", []),
        ("http://h:99999/", []),
        ("http://exa mple/", []),
        ("http://h/\x01x", []),
    ],
)
def test_what_an_href_leads_to(href: str | None, expected: list[str]) -> None:
    assert resolve_all("http://h/x/y.html", [href]) == expected


def test_links_come_once_and_in_order() -> None:
    hrefs: list[str | None] = ["b", "a", "b#2", "/x/a", "c"]
    assert resolve_all("http://h/x/", hrefs) == ["http://h/x/b", "http://h/x/a", "http://h/x/c"]


def test_an_origin_is_scheme_host_and_port() -> None:
    hrefs: list[str | None] = ["/a", "http://h:80/b", "http://H/c", "https://h/d", "http://h:81/e"]
    found = resolve_all("http://h/", hrefs, only=origin_of("http://h"))
    assert found == ["http://h/a", "http://h:80/b", "http://H/c"]


@pytest.mark.parametrize(
    "url",
    [
        *("", "/x", "ftp://h/x", "mailto:a@b", "http://", "http:///x", "http://h:port/"),
        *("http://[1/", "http://a b/", "http://h/\x00x", "http://h/\ud800", "http://./"),
        "http://h:70000/",
    ],
)
def test_a_bad_url_is_refused_by_name(url: str) -> None:
    with pytest.raises(ValueError, match="URL") as refused:
        checked_url(url)
    assert repr(url) in str(refused.value)


def test_a_good_url_loses_only_its_fragment() -> None:
    assert checked_url(" HTTP://Host:80/A/../b?#x ") == ("HTTP://Host:80/A/../b?", "host")
    assert checked_url("http://[::1]:8000/")[1] == "::1"
    assert checked_url("http://bücher.example/ä b")[1] == "bücher.example"
