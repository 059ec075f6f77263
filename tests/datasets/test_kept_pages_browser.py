"""Kept pages in a real browser: nothing of a hostile page runs or is loaded."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from playwright.sync_api import Page, expect

from apps.access.states import Role
from apps.datasets.pages import kept_pages
from apps.jobs.models import Run
from apps.jobs.states import RunState
from tests.access.factories import enter, make_user
from tests.datasets.kept import keep as store_pages
from tests.datasets.kept import page_of
from tests.e2e.chromium import keep
from tests.jobs.factories import make_job, make_run
from tests.routing.test_explain_in_browser import browsing, fits

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.covers("OB.2"),
]


class Listener:
    """A server that counts connections, whatever they are for."""

    def __init__(self) -> None:
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            connection.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def evil() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


def hostile(evil: Listener) -> str:
    """A page that tries everything; ``E`` is the address that it wants to reach."""
    text = """<!doctype html><html manifest="E/m"><head><title>hostile</title>
<meta http-equiv="refresh" content="1;url=E/refresh"><base href="E/" target="_top">
<link rel="stylesheet" href="E/a.css"><link rel="icon" href="E/i"><link rel="prefetch" href="E/p">
<style>@import url("E/b.css"); @font-face { font-family: x; src: url("E/f.woff") }
body { background: url("E/c.png"); font-family: x }</style>
<script>fetch("E/s"); parent.document.title = "taken"; top.location = "E/top"</script>
<script src="E/t.js"></script></head>
<body onload="fetch('E/o')" background="E/bg.png"><p id="words">words</p>
<img src="E/img.png" srcset="E/img2.png 2x" onerror="fetch('E/e')">
<img src="data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='fetch(1)'/>">
<svg><script>fetch("E/svg")</script><image href="E/si.png"/><use href="E/u.svg#a"/></svg>
<iframe src="E/frame"></iframe><iframe srcdoc="<script>fetch('E/d')</script>"></iframe>
<object data="E/object"></object><embed src="E/embed"><video src="E/v" autoplay poster="E/vp">
</video><audio src="E/au" autoplay></audio>
<form action="E/form" method="post"><input name="a"><button id="send">send</button></form>
<a id="link" href="E/link" target="_top" ping="E/ping">link</a>
<a id="own" href="/admin/logout/" target="_top">own</a>
<details ontoggle="fetch('E/toggle')" open><summary>s</summary></details></body></html>"""
    return text.replace("E/", f"http://127.0.0.1:{evil.port}/")


@pytest.fixture
def run() -> Run:
    return make_run(job=make_job(name="News"), state=RunState.EXITED)


@pytest.fixture
def session(run: Run) -> Any:
    user = make_user(roles={run.job.project: Role.VIEWER})
    return enter(user).cookies[settings.SESSION_COOKIE_NAME]


def watched(page: Page) -> list[str]:
    """Addresses that the browser has loaded, and windows and dialogs that a page opens.

    What a policy blocks is reported as a request, too, but never finished.
    """
    seen: list[str] = []
    page.on("requestfinished", lambda request: seen.append(request.url))
    page.on("dialog", lambda dialog: seen.append(f"dialog {dialog.message}"))
    page.on("popup", lambda popup: seen.append(f"popup {popup.url}"))
    return seen


@pytest.mark.parametrize("layer", ["both", "policy alone"])
def test_a_hostile_page_does_nothing(
    layer: str,
    live_server: Any,
    session: Any,
    run: Run,
    evil: Listener,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if layer == "policy alone":
        monkeypatch.setattr(kept_pages, "inert_html", lambda text: text)
    warc = store_pages(run, [page_of(hostile(evil))], tmp_path)
    address = f"/runs/{run.pk}/pages/{warc}/1"
    problems: list[str] = []
    with browsing(live_server.url, session, "light", 1280, problems=problems) as page:
        seen = watched(page)
        page.goto(f"{address}?tab=rendered")
        frame = page.frame_locator("iframe.cy-kept-frame")
        expect(frame.locator("#words")).to_have_text("words")
        # Longer than the refresh.
        page.wait_for_timeout(1500)
        for place in ("#link", "#own", "#send", "summary"):
            if frame.locator(place).count():
                frame.locator(place).first.click(force=True)
        page.wait_for_timeout(500)
        assert "taken" not in page.title()
        assert page.url == f"{live_server.url}{address}?tab=rendered"
        assert len(page.context.pages) == 1
        foreign = [url for url in seen if not url.startswith((live_server.url, "data:"))]
        assert foreign == []
        assert not any("logout" in url for url in seen)
        if layer == "both":
            keep(page, "kept-page-rendered")
        assert evil.connections == 0
        # Without a frame and a policy it does reach it.
        page.goto("about:blank")
        page.set_content(hostile(evil), wait_until="commit")
        page.wait_for_timeout(500)
    assert evil.connections > 0


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("<script>top.location='/taken'</script>", "text/javascript"),
        ("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "image/svg+xml"),
        (
            "<?xml version='1.0'?><x:script xmlns:x='http://www.w3.org/1999/xhtml'>alert(1)</x:script>",
            "application/xhtml+xml",
        ),
        ("+ADw-script+AD4-alert(1)+ADw-/script+AD4-", "text/html; charset=utf-7"),
        (b"\x89PNG\r\n\x1a\n<script>alert(1)</script>", "text/html"),
        ("%PDF-1.4 <script>alert(1)</script>", "application/pdf"),
    ],
)
def test_a_wrong_type_does_nothing(
    body: str | bytes, content_type: str, live_server: Any, session: Any, run: Run, tmp_path: Path
) -> None:
    warc = store_pages(run, [page_of(body, content_type=content_type)], tmp_path)
    address = f"/runs/{run.pk}/pages/{warc}/1"
    with browsing(live_server.url, session, "light", 1280, problems=[]) as page:
        seen = watched(page)
        for tab in ("headers", "source", "rendered"):
            page.goto(f"{address}?tab={tab}")
        # Opened by itself it is refused, whatever it is.
        answer = page.goto(f"{address}/rendered")
        assert answer is not None
        assert answer.status == 403
        assert not [entry for entry in seen if entry.startswith(("dialog", "popup"))]
        assert not any("taken" in url for url in seen)


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_the_pages_fit(
    width: int, language: str, live_server: Any, session: Any, run: Run, tmp_path: Path
) -> None:
    other = make_run(job=run.job, state=RunState.EXITED)
    store_pages(other, [page_of("<h1>News</h1><p>old</p>", status=200)], tmp_path)
    long = "https://shop.example/" + "very-long-name-" * 20
    pages = [
        page_of("<h1>News</h1><p>new</p>", status=200),
        page_of("gone", url=long, status=404, number=2),
        page_of("<p>slow</p>", url="https://shop.example/slow", status=503, number=3),
    ]
    warc = store_pages(run, pages, tmp_path)
    with browsing(live_server.url, session, "light", width) as page:
        name, url = settings.LANGUAGE_COOKIE_NAME, live_server.url
        page.context.add_cookies([{"name": name, "value": language, "url": url}])
        page.goto(f"/runs/{run.pk}/pages")
        expect(page.locator("[data-kept-page]")).to_have_count(3)
        keep(page, f"kept-pages-{language}-{width}")
        assert fits(page)
        for tab in ("headers", "source", "rendered", "compare"):
            page.goto(f"/runs/{run.pk}/pages/{warc}/1?tab={tab}")
            keep(page, f"kept-page-{tab}-{language}-{width}")
            assert fits(page), tab
