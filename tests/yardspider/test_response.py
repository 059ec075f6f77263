"""Responses: text in any encoding, selectors, links, headers."""

from __future__ import annotations

import pytest

from yardspider import Request, Response

HTML = [("Content-Type", "text/html")]


def page(
    body: str | bytes, *, url: str = "http://h/x/y.html", content_type: str = "text/html"
) -> Response:
    raw = body.encode() if isinstance(body, str) else body
    return Response(url, headers=[("Content-Type", content_type)], body=raw)


@pytest.mark.parametrize(
    ("body", "content_type", "text", "encoding"),
    [
        ("中文é".encode(), "text/html", "中文é", "utf-8"),
        ("中文".encode("gbk"), "text/html; charset=GB2312", "中文", "gb18030"),
        ("é€".encode("cp1252"), 'text/html; charset="iso-8859-1"', "é€", "cp1252"),
        ("é".encode("cp1252"), "text/html", "é", "cp1252"),
        ("\ufeff中".encode(), "text/html; charset=gbk", "中", "utf-8"),
        ("\ufeff中".encode("utf-16-le"), "text/html", "中", "utf-16-le"),
        (b"<meta charset='gbk'>" + "中".encode("gbk"), "text/html", None, "gb18030"),
        (
            b'<meta http-equiv="Content-Type" content="text/html; charset=Shift_JIS">\x93\xfa',
            "text/html",
            None,
            "cp932",
        ),
        (b'<?xml version="1.0" encoding="big5"?><a/>', "text/xml", None, "big5hkscs"),
        (b"<meta charset='utf-16'>x", "text/html", None, "utf-8"),
        (b"\xff\xfeab", "text/html", "\u6261", "utf-16-le"),
        (b"ab\xff", "text/html; charset=utf-8", "ab\ufffd", "utf-8"),
        ("é".encode(), "text/html; charset=base64", "é", "utf-8"),
        ("é".encode(), "text/html; charset=utf-7", "é", "utf-8"),
        ("é".encode(), "text/html; charset=idna", "é", "utf-8"),
        (b"", "", "", "utf-8"),
    ],
)
def test_text_is_read_in_its_encoding(
    body: bytes, content_type: str, text: str | None, encoding: str
) -> None:
    response = page(body, content_type=content_type)
    assert response.encoding == encoding
    if text is not None:
        assert response.text == text


def test_headers_ignore_letter_case_and_keep_repeats() -> None:
    response = Response("http://h/", headers=[("Set-Cookie", "a"), ("SET-COOKIE", "b"), ("X", "1")])
    headers = response.headers
    assert headers.get("set-cookie") == headers["Set-Cookie"] == "a"
    assert headers.get_all("SET-cookie") == ["a", "b"]
    assert (headers.get("none"), headers.get("none", "d")) == ("", "d")
    assert "x" in headers
    assert "y" not in headers
    assert (list(headers), len(headers)) == (["set-cookie", "x"], 2)
    with pytest.raises(KeyError):
        headers["none"]


def test_selectors() -> None:
    response = page("<p class=a>one</p><p>two <b>three</b></p>")
    assert response.css("p::text").getall() == ["one", "two "]
    assert response.xpath("//p[@class=$c]/text()", c="a").get() == "one"
    feed = page("<rss><Item>1</Item></rss>", content_type="application/xml")
    assert feed.xpath("//Item/text()").get() == "1"


def test_links_of_a_page() -> None:
    response = page(
        """<a href="/a">1</a> <a href='b.html#x'>2</a> <a href=../c?d=1&amp;e=2>3</a>
        <A HREF=" /a ">again</A> <a>none</a> <area href=/area> <a href="mailto:x@y">m</a>
        <a href="https://h/s">s</a> <a href="http://other/o">o</a> <div><a href="/é">é</a></div>"""
    )
    own = ["http://h/a", "http://h/x/b.html", "http://h/c?d=1&e=2", "http://h/é"]
    everything = [*own[:3], "https://h/s", "http://other/o", own[3]]
    assert response.links() == everything
    assert response.links(same_origin=True) == own
    assert response.links(same_origin="https://h/anything") == ["https://h/s"]
    assert response.links("area[href]") == ["http://h/area"]
    with pytest.raises(ValueError, match="'nonsense'"):
        response.links(same_origin="nonsense")


@pytest.mark.parametrize(
    ("base", "link"),
    [
        ("<base href=/deep/er/>", "http://h/deep/er/z"),
        ("<base href='http://other/d/'>", "http://other/d/z"),
        ("<base target=_top><base href=/1/><base href=/2/>", "http://h/1/z"),
        ("<base href='  '>", "http://h/x/z"),
        ("<base href='javascript:x'>", "http://h/x/z"),
        ("<base href='http://[bad'>", "http://h/x/z"),
    ],
)
def test_links_are_relative_to_base(base: str, link: str) -> None:
    response = page(f"<head>{base}</head><a href=z>z</a>")
    assert response.links() == [link]
    assert response.urljoin(" z ") == link
    assert response.follow("z", depth=2).url == link


def test_what_is_no_html_has_no_links() -> None:
    assert page("<a href=/a>", content_type="text/plain").links() == []
    assert page("<a href=/a>", content_type="application/xhtml+xml; x=1").links() == ["http://h/a"]
    assert Response("http://h/", body=b"<a href=/a>").links() == []


def test_links_in_another_encoding() -> None:
    body = '<meta charset="gbk"><a href="/中文">x</a>'.encode("gbk")
    assert page(body).links() == ["http://h/中文"]


def test_json() -> None:
    assert page('{"a": [1]}').json() == {"a": [1]}
    with pytest.raises(ValueError, match=r"http://h/x/y\.html is no JSON"):
        page("{").json()


def test_meta_is_the_one_of_the_request() -> None:
    request = Request("http://h/", meta={"a": 1})
    assert Response("http://h/", request=request).meta is request.meta
