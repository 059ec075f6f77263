"""The site spider finds what a plain walk finds, on a site full of odd links."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.yardspider.commands import run_command
from tests.yardspider.reference import walk
from tests.yardspider.sites import HTML, Reply, serve
from yardspider.spiders import SiteSpider
from yardspider.testing import Page, PageLike, run_spider

_ODD = """<!doctype html><title> An
 odd   page </title>
<a href="b.html">relative</a> <a href="./b.html">dot</a> <a href="../up.html">up</a>
<a href="../../../../root.html">above the root</a> <a href="deep/er/c.html?x=1&amp;y=2#z">query</a>
<a href="?page=2">query only</a> <a href="#top">fragment only</a> <a href="">empty</a> <a href>-</a>
<a href=" \n /spaced.html ">blanks</a> <a href="/in\nside.html">line break</a>
<A HREF='/UPPER.html'>upper case</A> <a href="HTTP://{host}/scheme.html">scheme</a>
<a href="http://{host}/absolute.html">absolute</a> <a href="//{host}/network.html">network</a>
<a href="mailto:a@b.example">mail</a> <a href="javascript:go('/no.html')">script</a>
<a href="tel:123">phone</a> <a href="data:text/html,x">data</a> <a href="ftp://{host}/ftp">ftp</a>
<a href="http://other.invalid/x.html">another host</a> <a href="https://{host}/tls.html">tls</a>
<a href="http://127.0.0.1:1/port.html">another port</a> <a href="http://[bad/">malformed</a>
<a href="/caf&eacute;/中文.html">unicode</a> <a href="/quoted%20name.html">quoted</a>
<a href="/blank name.html">blank</a> <a href="/%7Euser/">tilde</a> <a href="/a//b.html">slashes</a>
<a href="missing.html">broken</a> <a href="/gone">gone</a> <a href="/moved">redirect</a>
<a href="/folder">folder</a> <a href="/image.png">image</a> <a href="/text.txt">text</a>
<a href="/based.html">base</a> <a href="x;y=1">parameter</a> <a href="a:b">colon</a>
<a href="1:2">no scheme</a> <a href="/xhtml">xhtml</a> <area href="/area.html">
<link href="/style.css"> <script>document.write('<a href="/written.html">')</script>
<!-- <a href="/comment.html">comment</a> --> <p><a href="/open.html"><b>text<a href="/next.html">
<svg><a href="/svg.html">in a drawing</a></svg> <noscript><a href="/noscript.html">n</a></noscript>
<a name=x title="<a href='/title.html'>" href="/attribute.html">x</a> <a href="/%zz.html">quote</a>
"""


def odd_site(path: str) -> Reply:
    """Whatever is not special is a small page that links on, for a while."""
    special: dict[str, Reply] = {
        "/dir/": (200, HTML, _ODD.replace("{host}", odd_site.host).encode()),  # type: ignore[attr-defined]
        "/gone": (410, HTML, b"<a href=/from-gone.html>"),
        "/dir/missing.html": (404, HTML, b"<a href=/from-missing.html>"),
        "/moved": (302, {"Location": "/moved/here/"}, b"<a href=/from-redirect.html>"),
        "/moved/here/": (200, HTML, b"<a href=next.html>relative to the new place</a>"),
        "/folder": (301, {"Location": "/folder/"}, b""),
        "/image.png": (200, {"Content-Type": "image/png"}, b"<a href=/from-image.html>"),
        "/text.txt": (200, {"Content-Type": "text/plain"}, b"<a href=/from-text.html>"),
        "/based.html": (200, HTML, b"<base href='/other/base/'><a href=x.html><a href='#y'>"),
        "/~user/": (200, HTML, b"<a href=home.html>"),
        "/%7Euser/": (200, HTML, b"<a href=home.html>"),
        quote("/café/中文.html"): (200, HTML, "<a href='é.html'>é</a>".encode()),
    }
    if path in special:
        return special[path]
    name = path.partition("?")[0].rpartition("/")[2]
    step = int(name[2]) if name.startswith("on") else 0
    links = f"<a href='on{step + 1}.html'>on</a>" if step < 3 else ""
    return (200, HTML, f"<p>{links}<a href='/dir/'>home</a>".encode())


def random_site(seed: int) -> Callable[[str], Reply]:
    """Pages in folders that link to each other, mostly, in every relative form."""
    random_ = random.Random(seed)
    folders = ["/", "/a/", "/a/b/", "/a/b/c/", "/d/"]
    paths = [f"{random_.choice(folders)}p{number}.html" for number in range(100)]
    site: dict[str, bytes] = {}
    for path in ["/", *paths]:
        links = []
        for _ in range(random_.randint(2, 6)):
            target = random_.choice(paths)
            ups = "../" * path.count("/")
            form = random_.choice(["{t}", "{u}{s}", "./{u}{s}#f", "{t}?q={n}", "gone{n}.html"])
            links.append(form.format(t=target, u=ups, s=target[1:], n=random_.randint(0, 3)))
        site[path] = "".join(f"<li><a href='{link}'>{link}</a>" for link in links).encode()

    def reply(path: str) -> Reply:
        body = site.get(path.partition("?")[0])
        return (404, HTML, b"<a href=/never.html>") if body is None else (200, HTML, body)

    return reply


def crawl_site(first: str, folder: Path) -> tuple[set[str], set[str], dict[str, object]]:
    """(URLs asked for, pages found, summary) of the real command."""
    done = run_command("yardspider.spiders:SiteSpider", f"url={first}", folder=folder)
    assert done.status == 0, done.errors
    items = done.items()
    pages = [item["url"] for item in items]
    assert len(pages) == len(set(pages)), "a page was reported twice"
    return set(pages), {note["url"] for note in done.summary["failures"]}, done.summary


@pytest.mark.slow("1 s")
def test_the_odd_site(tmp_path: Path) -> None:
    with serve(odd_site) as site:
        odd_site.host = site.url.removeprefix("http://")  # type: ignore[attr-defined]
        first = site.url + "/dir/"
        reference = walk(first)
        site.paths.clear()
        pages, failed, summary = crawl_site(first, tmp_path)
    assert pages == reference.pages
    assert failed == reference.failed
    assert summary["total"] == len(reference.urls)
    assert summary["pages"] == len(reference.pages)
    assert summary["left"] == 0
    assert summary["success"] == len(reference.urls) - len(reference.failed)
    assert len(pages) > 60


@pytest.mark.slow("3 s")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_sites(seed: int, tmp_path: Path) -> None:
    with serve(random_site(seed)) as site:
        reference = walk(site.url + "/")
        site.paths.clear()
        pages, failed, summary = crawl_site(site.url + "/", tmp_path)
        asked = len(site.paths)
    assert pages == reference.pages
    assert failed <= reference.failed
    assert summary["failed"] == len(reference.failed)
    assert summary["total"] == len(reference.urls) == asked
    assert len(pages) > 60


def test_items_and_order() -> None:
    pages: dict[str, PageLike] = {
        "http://h/": "<title>H</title><a href=1><a href=2><a href=1#x><a href=http://o/>",
        "http://h/1": "<a href=3>",
        "http://h/2": "<title>\n Two  words </title>",
        "http://h/3": Page(headers={"Content-Type": "text/plain"}, body="<a href=4>"),
    }
    result = run_spider(SiteSpider, pages, arguments={"url": "http://h/#x"})
    assert [request.url for request in result.requests] == [f"http://h/{n}" for n in ("", 1, 2, 3)]
    assert result.items == [
        {"url": "http://h/", "status": 200, "title": "H", "links": 2},
        {"url": "http://h/1", "status": 200, "title": "", "links": 1},
        {"url": "http://h/2", "status": 200, "title": "Two words", "links": 0},
    ]
