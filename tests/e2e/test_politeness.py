"""Politeness with every process real: centers, agents, a spider, and a site that watches them."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e.counting_site import tree
from tests.e2e.daemon_processes import Daemons

RATE, AT_ONCE, PAGES = 50, 3, 120
FORBIDDEN = "/7.html"
CRAWL = """
import json, sys, time
from apps.agents.hosts.services import create_rule
from crawlyard.demo import job as demo
create_rule(actor=None, host="127.0.0.1", requests_per_second={rate}, concurrency={at_once})
time.sleep(1.5)
run = demo.start(job=demo.make_job(url={url!r}, name="spared"))
deadline = time.monotonic() + 90
while not (end := demo.look(run.pk)).over and time.monotonic() < deadline:
    time.sleep(0.1)
print(json.dumps(end.report()))
"""


class WatchedSite:
    """Remembers when each page was asked for, and how many were at once."""

    def __init__(self, pages: dict[str, str]) -> None:
        self.asked: list[tuple[float, str]] = []
        self.at_once = self.most = 0
        lock = threading.Lock()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                counts = self.path != "/robots.txt"
                with lock:
                    first = self.path not in [path for _at, path in site.asked]
                    site.asked.append((time.monotonic(), self.path))
                    site.at_once += counts
                    site.most = max(site.most, site.at_once)
                time.sleep(0.02)
                status, text = 200, pages.get(self.path, "")
                if self.path == "/robots.txt":
                    text = f"User-agent: *\nDisallow: {FORBIDDEN}\n"
                elif self.path == "/20.html" and first:
                    status = 503
                with lock:
                    site.at_once -= counts
                self.send_response(status)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(text)))
                if status == 503:
                    self.send_header("Retry-After", "2")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> WatchedSite:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def times(self) -> list[float]:
        return [at for at, path in self.asked if path != "/robots.txt"]


@pytest.fixture(
    params=[
        pytest.param("embedded", marks=pytest.mark.twin),
        pytest.param("services", marks=pytest.mark.services),
    ]
)
def daemons(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Daemons]:
    """Everything by itself, on servers with two centers."""
    environment = {}
    names = ["center-1", "runner", "statistics", "agent-1", "agent-2"]
    if request.param == "services":
        names.insert(0, "center-2")
        environment = {
            "DATABASE_URL": request.getfixturevalue("postgres_database"),
            "BROKER_URL": request.getfixturevalue("new_rabbit_vhost"),
            "REDIS_URL": request.getfixturevalue("redis_url"),
        }
    daemons = Daemons(tmp_path, **environment)
    daemons.migrate()
    try:
        for name in names:
            command = [f"run_{name.partition('-')[0]}", "--name", name]
            daemons.start(name, *command, *(["--id", name] if "agent" in name else []))
        for name in names:
            daemons.until_logged(name, "serves" if "agent" in name else "is running", 90)
        yield daemons
    finally:
        daemons.end()


@pytest.mark.covers("S1.34", "S1.48")
def test_a_host_is_spared_by_all_centers_and_agents_together(daemons: Daemons) -> None:
    with WatchedSite(tree(PAGES)) as site:
        script = CRAWL.format(rate=RATE, at_once=AT_ONCE, url=site.url)
        done = daemons.manage("shell", "-v0", "-c", script)
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["state"] == "exited", report
    assert report["balanced"], report
    # All pages and the first one, but for the forbidden page and what it alone might link to.
    assert (report["pages"], report["failed"], report["left"]) == (PAGES, 1, 0), report
    paths = [path for _at, path in site.asked]
    assert FORBIDDEN not in paths
    assert paths[0] == "/robots.txt"
    assert paths.count("/robots.txt") <= 2
    assert site.most <= AT_ONCE
    times = site.times()
    busy = next(at for at, path in site.asked if path == "/20.html")
    # Those that were under way come yet, then nothing for as long as the host asked.
    quiet = max(later - earlier for earlier, later in itertools.pairwise(times))
    assert quiet >= 1.5
    assert any(at > busy + 1.5 for at in times)
    # All of it took as long as the rate says; a busy machine may let two seconds arrive as one.
    assert times[-1] - times[0] - quiet >= 0.8 * (len(times) / RATE - 1)
    for index, at in enumerate(times):
        within = sum(at <= other < at + 1.0 for other in times[index : index + 3 * RATE])
        assert within <= 2 * RATE
