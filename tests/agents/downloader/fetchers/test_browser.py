"""What only a browser does: scripts, parts of pages, crashes, and processes to leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from apps.agents.downloader.fetchers import available_types
from apps.agents.downloader.fetchers.chromium import BrowserOptions, find_chromium
from tests.agents.downloader.agent_peer import AgentPeer
from tests.agents.downloader.fetchers.conftest import Opener, get
from tests.agents.downloader.fetchers.test_types import HTML
from tests.plugins.markers import CHROMIUM
from tests.yardkit.web_server import Seen, WebServer, page, serve
from tools.requirement_marks import ROOT
from yardkit.protocol import DownloaderType, FailureKind, KeepPages, PagePolicy

pytestmark = pytest.mark.browser
SCRIPTED = b"""<!doctype html><title>t</title><p id=a>before</p>
<script>document.getElementById("a").textContent = "made " + "by a script"</script>"""


@pytest.fixture
async def site() -> AsyncIterator[WebServer]:
    async with serve({"/": page(SCRIPTED, headers=HTML)}) as server:
        yield server


@pytest.mark.covers("S1.30")
async def test_scripts_make_the_page(site: WebServer, opener: Opener) -> None:
    fetched = await get(opener("browser"), site.url("/"))
    assert fetched.body.startswith(b"<!DOCTYPE html>\n<html>")
    assert b'<p id="a">made by a script</p>' in fetched.body
    agent = site.seen[0].headers["user-agent"]
    assert "Chrom" in agent
    own = await get(opener("browser", user_agent="Yard/1"), site.url("/"))
    assert own.status == 200
    assert site.seen[-1].headers["user-agent"] == "Yard/1"


@pytest.mark.covers("OB.2")
async def test_a_page_that_is_kept_has_a_screenshot(site: WebServer, opener: Opener) -> None:
    kept = await get(opener("browser", pages=PagePolicy(keep=KeepPages.ALL)), site.url("/"))
    assert kept.screenshot.startswith(b"\xff\xd8\xff")
    failed = opener("browser", pages=PagePolicy(keep=KeepPages.FAILED))
    assert (await get(failed, site.url("/"))).screenshot == b""
    assert (await get(failed, site.url("/missing"))).screenshot.startswith(b"\xff\xd8\xff")


async def test_the_main_request_alone_has_the_headers(site: WebServer, opener: Opener) -> None:
    site.answers["/"] = page(b'<img src="/part.png">', headers=HTML)
    site.answers["/part.png"] = page(b"", headers={"Content-Type": "image/png"})
    await get(opener("browser"), site.url("/"), headers={"Authorization": "Bearer x"})
    seen = {one.path: one.headers for one in site.seen}
    assert seen["/"]["authorization"] == "Bearer x"
    assert "authorization" not in seen["/part.png"]


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "image/png"])
async def test_what_is_no_page_comes_as_it_was_sent(
    kind: str, site: WebServer, opener: Opener
) -> None:
    body = b'{"a": 1}' if kind != "image/png" else b"\x89PNG\r\n\x1a\n" + b"\0" * 100
    site.answers["/data"] = page(body, headers={"Content-Type": kind})
    fetched = await get(opener("browser"), site.url("/data"))
    assert (fetched.status, fetched.body, fetched.truncated) == (200, body, False), fetched


async def test_a_download_is_no_page(site: WebServer, opener: Opener) -> None:
    site.answers["/zip"] = page(b"PK", headers={"Content-Type": "application/zip"})
    fetched = await get(opener("browser"), site.url("/zip"))
    assert fetched.failure == FailureKind.BAD_CONTENT, fetched


async def test_what_a_page_changes_in_its_own_world_fools_nobody(
    site: WebServer, opener: Opener
) -> None:
    site.answers["/"] = page(
        b"""<p>real</p><script>
        Object.defineProperty(Element.prototype, "outerHTML", {get: () => "x".repeat(1e8)})
        Object.defineProperty(document, "documentElement", {get: () => null})
        String.prototype.slice = () => "sliced"
        window.open("/popup"); alert(1); onbeforeunload = () => "stay"
        </script>""",
        headers=HTML,
    )
    fetched = await get(opener("browser"), site.url("/"))
    assert fetched.status == 200
    assert b"<p>real</p>" in fetched.body
    assert len(fetched.body) < 10_000


# --- the guard ----------------------------------------------------------------------------------


PARTS = """<p id=a></p>
<link rel=preconnect href="http://127.0.0.2:{port}/"><link rel=dns-prefetch href="//inside.example">
<img src="http://127.0.0.2:{port}/img"><iframe src="http://localhost:{port}/frame"></iframe>
<iframe src="http://inside.example:{port}/frame"></iframe><iframe src="file:///etc/passwd"></iframe>
<script>
const tries = ["http://127.0.0.2:{port}/fetch", "http://[::1]:{port}/fetch",
    "https://127.0.0.2:{port}/tls", "http://inside.example:{port}/fetch"]
    .map(url => fetch(url, {{mode: "no-cors"}}).then(() => "tried", () => "tried"))
tries.push(new Promise(done => {{
    const socket = new WebSocket("ws://127.0.0.2:{port}/socket")
    socket.onopen = () => done("in"); socket.onerror = () => done("out")
}}))
tries.push(new Promise(done => {{
    const peer = new RTCPeerConnection({{iceServers: [{{urls: "stun:127.0.0.2:{udp}"}}]}})
    peer.createDataChannel("x"); peer.onicegatheringstatechange = () =>
        peer.iceGatheringState === "complete" && done("out")
    peer.createOffer().then(offer => peer.setLocalDescription(offer))
    setTimeout(() => done("out"), 1500)
}}))
try {{ navigator.sendBeacon("http://127.0.0.2:{port}/beacon", "x") }} catch {{}}
Promise.all(tries).then(all => {{
    document.getElementById("a").textContent = all.join(" ")
    const image = new Image(); image.src = "/done"
}})
</script><img src="/wait">"""


@pytest.mark.covers("S1.30")
async def test_no_part_of_a_page_gets_inside(opener: Opener, names: dict[str, list[str]]) -> None:
    names |= {"inside.example": ["127.0.0.2"], "localhost": ["127.0.0.1"]}
    done = asyncio.Event()

    async def wait(seen: Seen) -> bytes:
        await asyncio.wait_for(done.wait(), 30)
        return page(b"")

    async def finish(seen: Seen) -> bytes:
        done.set()
        return page(b"")

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stun:
        stun.bind(("127.0.0.2", 0))
        stun.setblocking(False)
        async with serve({}) as site, serve({}, host="127.0.0.2") as inside:
            text = PARTS.format(port=inside.port, udp=stun.getsockname()[1])
            site.answers |= {"/": page(text.encode(), headers=HTML), "/wait": wait, "/done": finish}
            fetcher = opener("browser", allowed_networks=["127.0.0.1/32"])
            fetched = await get(fetcher, site.url("/"))
            # What the gate refuses of plain HTTP is an opaque answer to a script: its own.
            assert b'<p id="a">tried tried tried tried out out</p>' in fetched.body, fetched
            assert (inside.connections, inside.seen) == (0, [])
            assert b"root:" not in fetched.body
        with pytest.raises(BlockingIOError):
            stun.recv(100)


# --- the browser as a process -------------------------------------------------------------------


async def test_few_pages_at_once(opener: Opener) -> None:
    running = most = 0
    two = asyncio.Event()

    async def slow(seen: Seen) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            two.set()
        # On a busy machine the second page may come late; then a third one has its chance.
        await asyncio.wait_for(two.wait(), 60)
        await asyncio.sleep(0.05)
        running -= 1
        return page(b"<p>x</p>", headers=HTML)

    async with serve({f"/{number}": slow for number in range(8)}) as site:
        opener.equip(browser=BrowserOptions(CHROMIUM, pages=2, sandbox=False))
        fetchers = [opener("browser"), opener("browser")]
        answers = await asyncio.gather(
            *(get(fetchers[one % 2], site.url(f"/{one}")) for one in range(8))
        )
    assert [one.status for one in answers] == [200] * 8
    assert most == 2


async def test_a_browser_that_crashed_is_started_again(site: WebServer, opener: Opener) -> None:
    fetcher = opener("browser")
    assert (await get(fetcher, site.url("/"))).status == 200
    for process in browsers_below(os.getpid()):
        process.kill()
    async with asyncio.timeout(60):
        while (fetched := await get(fetcher, site.url("/"))).status != 200:
            assert fetched.failure == FailureKind.CONNECTION, fetched


async def test_a_browser_that_cannot_start(site: WebServer, opener: Opener, tmp_path: Path) -> None:
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    opener.equip(browser=BrowserOptions(str(broken), sandbox=False))
    fetched = await get(opener("browser"), site.url("/"))
    assert fetched.failure == FailureKind.CONNECTION


async def test_what_is_missing_is_named(opener: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_chromium(CHROMIUM)
    assert find_chromium("/no/such") == ""
    assert DownloaderType.BROWSER in available_types()
    equipment = opener.equip(browser=BrowserOptions("/no/such"))
    assert DownloaderType.BROWSER not in available_types(equipment.options)
    with pytest.raises(
        ValueError, match=r"cannot make downloaders of type browser: install .*and Chromium"
    ):
        opener("browser", equipment)
    found = {"playwright": None, "curl_cffi": None}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: found.get(name, ROOT))
    assert available_types() == (DownloaderType.HTTP, DownloaderType.REPLAY)
    with pytest.raises(ValueError, match=r"type impersonate: install .*\.\[impersonate\]"):
        opener("impersonate")


@pytest.fixture
def launch(sqlite_broker_url: str, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    processes: list[subprocess.Popen[bytes]] = []

    def launch() -> subprocess.Popen[bytes]:
        environ = os.environ | {
            "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
            "BROKER_URL": sqlite_broker_url,
            "CRAWLYARD_DATA": str(tmp_path),
            "AGENT_BROWSER": CHROMIUM,
            "AGENT_BROWSER_SANDBOX": "false",
        }
        command = [sys.executable, "-m", "apps.agents.downloader", "--id", "agent-1"]
        processes.append(subprocess.Popen(command, cwd=ROOT, env=environ))
        return processes[-1]

    yield launch
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.fault
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
async def test_no_browser_outlives_its_agent(
    launch: Callable[[], Any], site: WebServer, other: AgentPeer, signum: signal.Signals
) -> None:
    process = launch()
    ready = await other.allocate(type="browser", timeout_seconds=60.0)
    assert ready.ok, ready
    other.download([site.url("/")])
    assert b"made by a script" in (await other.results(1))[0].body
    below = psutil.Process(process.pid).children(recursive=True)
    assert browsers_below(process.pid)
    began = time.monotonic()
    process.send_signal(signum)
    status = await asyncio.to_thread(process.wait, 60)
    if signum == signal.SIGTERM:
        assert status == 0
        assert time.monotonic() - began < 5
    async with asyncio.timeout(30):
        while any(lives(one) for one in below):
            await asyncio.sleep(0.05)


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def browsers_below(pid: int) -> list[psutil.Process]:
    """Chromium's own process, which has started all its others."""
    found = []
    for one in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie has no command line either
            line = " ".join(one.cmdline())
            if "--remote-debugging-pipe" in line and "--type=" not in line:
                found.append(one)
    return found
