#!/usr/bin/env python3
"""Kills one process of a box after the other, while all of it works, and says what came of it.

The box is `manage.py up`, of this checkout, on an installation made for this: see docs/runbook.md.
A crawl, seeds, routed items, stored requests and a harvest keep every process busy. Each kill is
SIGKILL. At the end the books of all must balance, and nothing may be there twice or not at all.

    CRAWLYARD_TOKEN=... python deploy/drill.py --up PID --url http://127.0.0.1:8100 [NAME ...]

NAME: center, agent-1, ... as the log of `up` calls them; without one, all of them in turn.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import psutil

ROOT = Path(__file__).resolve().parent.parent
PAGES = 100_000
RECORDS = 100_000
SLUG = "drill"
# The words of a command line by which a process is known.
WORDS = {
    "web": ("run_web",),
    "center": ("run_center",),
    "runner": ("run_runner",),
    "router": ("run_router",),
    "seeds": ("run_seeds",),
    "collector": ("run_collector",),
    "fetcher": ("run_fetcher",),
    "statistics": ("run_statistics",),
    "logs": ("run_log_ingester",),
    "datasets": ("run_dataset_writer",),
    "worker": ("run_worker", "celery.tasks"),
    "builds": ("run_worker", "celery.builds"),
    "beat": ("run_beat",),
    "monitor": ("run_monitor",),
    "agent-1": ("--id", "agent-1"),
}
RULES = """
project: drill
outbound:
  - name: pages
    selector: "kind == 'page'"
    class: requests.RequestStoreOutbound
    init: {biz: pages, data: url, rule: page}
"""
BIZ = """
bizzes:
  pages:
    take_seconds: 30
    fetch: {through: direct, concurrency: 4}
    rules: {page: {fields: {title: {css: 'h1::text', required: true}}}}
"""
SOURCE = """
sources:
  list:
    kind: json
    base_url: ADDRESS/records
    json: {total: total, records: rows, offset_parameter: skip, size_parameter: limit}
    id_field: id
    queue: drill_records
    rate_limit: 5
"""


class Site(BaseHTTPRequestHandler):
    """Pages that lead to the next ten, and an API of records."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/records":
            asked = {name: int(values[0]) for name, values in parse_qs(parts.query).items()}
            span = range(asked["skip"], min(asked["skip"] + asked["limit"], RECORDS))
            body = json.dumps({"total": RECORDS, "rows": [{"id": n} for n in span]})
            return self._answer(body, "application/json")
        number = int(parts.path.strip("/") or 0) if parts.path != "/robots.txt" else 0
        links = [n for n in range(number * 10 + 1, number * 10 + 11) if n < PAGES]
        body = f"<h1>{number}</h1>" + "".join(f'<a href="/{n}">{n}</a>' for n in links)
        return self._answer(body, "text/html")

    def _answer(self, body: str, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class Rest:
    """REST of the box. A call that gets no answer is made again, under the same key."""

    def __init__(self, address: str, token: str) -> None:
        self._address, self._token = address, token
        self.repeated = 0

    def call(self, path: str, body: Any = None) -> Any:
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "Idempotency-Key": uuid.uuid4().hex,
        }
        data = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + 120
        while True:
            request = urllib.request.Request(self._address + path, data, headers)  # noqa: S310
            try:
                with urllib.request.urlopen(request, timeout=40) as answer:  # noqa: S310
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                said = error.read().decode(errors="replace")
                if error.code not in (409, 429, 500, 502, 503) or time.monotonic() > deadline:
                    raise SystemExit(f"{path}: {error.code} {said[:500]}") from None
            except OSError as error:
                if time.monotonic() > deadline:
                    raise SystemExit(f"{path}: {error}") from None
            self.repeated += 1
            time.sleep(0.5)


class Work:
    """What keeps the box busy until ``end()``."""

    def __init__(self, rest: Rest, site: str) -> None:
        self.rest, self.site = rest, site
        known = [each for each in rest.call("/api/v1/projects")["results"] if each["slug"] == SLUG]
        self.project = (
            known[0]
            if known
            else rest.call(
                "/api/v1/projects",
                {"name": "Drill", "slug": SLUG, "allowed_networks": ["127.0.0.0/8"]},
            )
        )
        pk = self.project["id"]
        for kind, text in (("biz", BIZ), ("routing", RULES), ("sources", SOURCE)):
            configure(kind, text.replace("ADDRESS", site))
        stamp = time.strftime("%H%M%S")
        self.frontier = rest.call(
            "/api/v1/frontiers",
            {"project": pk, "name": f"drill-{stamp}", "segments": "none", "time_zone": "UTC"},
        )["id"]
        self.job = rest.call(
            "/api/v1/jobs",
            {
                "project": pk,
                "name": f"drill {stamp}",
                "spider": "yardspider.spiders:SiteSpider",
                "arguments": {"url": site},
                "speed": 10,
            },
        )["id"]
        self.run = rest.call(f"/api/v1/jobs/{self.job}/start", {})["id"]
        self.before = self.items()
        self.seeds = self.sent = 0
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._every, args=(0.5, each), daemon=True)
            for each in (self._add_seeds, self._send_items)
        ]
        for thread in self._threads:
            thread.start()

    def books(self) -> dict[str, Any]:
        found: dict[str, Any] = self.rest.call(f"/api/v1/runs/{self.run}/counters")
        return found

    def items(self) -> dict[str, Any]:
        pk = self.project["id"]
        found: dict[str, Any] = self.rest.call(f"/api/v1/routing/projects/{pk}/books")
        return found

    def requests(self) -> dict[str, Any]:
        found: dict[str, Any] = self.rest.call(f"/api/v1/bizzes/{self.project['id']}.pages")
        return found["books"]

    def data(self) -> dict[str, Any]:
        """What became of the items that the run has yielded."""
        found: dict[str, Any] = self.rest.call(f"/api/v1/runs/{self.run}/items/accounting")
        return found

    def stored(self) -> int:
        """Items of the run that are really there, whatever the accounting says."""
        number, cursor = 0, ""
        while True:
            page = self.rest.call(f"/api/v1/runs/{self.run}/items?limit=1000{cursor}")
            number += len(page["results"])
            if not page["next"]:
                return number
            cursor = f"&cursor={quote(page['next'])}"

    def added(self) -> int:
        found = self.rest.call(f"/api/v1/frontiers/{self.frontier}/stats")["totals"]
        return int(found["added"])

    def harvests(self) -> list[dict[str, Any]]:
        pk = self.project["id"]
        rows: list[dict[str, Any]] = self.rest.call(f"/api/v1/harvests?project={pk}")["results"]
        return rows

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(150)
        self.rest.call(f"/api/v1/runs/{self.run}/stop", {})

    def _every(self, seconds: float, action: Callable[[int], None]) -> None:
        for number in itertools.count():
            if self._ending.wait(seconds):
                return
            action(number)

    def _add_seeds(self, number: int) -> None:
        rows = [f"{self.site}/{n}" for n in range(number * 10, number * 10 + 10)]
        self.rest.call(f"/api/v1/frontiers/{self.frontier}/add", rows)
        self.seeds += len(rows)

    def _send_items(self, number: int) -> None:
        rows = [{"kind": "page", "url": f"{self.site}/{number % 9000 * 10 + n}"} for n in range(10)]
        pk = self.project["id"]
        self.rest.call(f"/api/v1/routing/projects/{pk}/task", rows)
        self.sent += len(rows)


def configure(kind: str, text: str) -> None:
    """As a person does it."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        argv = [sys.executable, str(ROOT / "manage.py"), "config", "apply", kind, file.name]
        subprocess.run([*argv, "--project", SLUG], check=True, stdout=subprocess.DEVNULL)


def find(up: psutil.Process, name: str) -> psutil.Process | None:
    """The child of `up` that has this name."""
    for child in up.children():
        try:
            line = child.cmdline()
        except psutil.Error:
            continue
        if all(word in line for word in WORDS[name]):
            return child
    return None


def until(what: str, ready: Callable[[], Any], seconds: float = 120.0) -> float:
    """How long it took."""
    began = time.monotonic()
    while not ready():
        if time.monotonic() - began > seconds:
            raise SystemExit(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.2)
    return time.monotonic() - began


def say(line: str) -> None:
    """At once, also into a file."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def kill(up: psutil.Process, name: str, work: Work) -> None:
    """One line of the report."""
    old = find(up, name)
    if old is None:
        raise SystemExit(f"{name}: `up` has no such process")
    pages = work.books()["success"]
    items, seeds = work.sent, work.seeds
    os.kill(old.pid, signal.SIGKILL)
    again = until(f"a new {name}", lambda: (new := find(up, name)) and new.pid != old.pid)
    moved = until("more pages", lambda: work.books()["success"] > pages + 20)
    until("more items and seeds", lambda: work.sent > items and work.seeds > seeds)
    say(f"{name:<11} started again after {again:4.1f} s; crawl went on after {moved:5.1f} s")


def report(work: Work) -> bool:
    """Whether all books balance."""
    run = work.rest.call(f"/api/v1/runs/{work.run}")
    until("the end of the run", lambda: work.rest.call(f"/api/v1/runs/{work.run}")["ended_at"])
    until("its last report", lambda: work.books()["final"])
    books = work.books()
    until("an empty router", lambda: not any(work.items()["in_flight"].values()))
    until("no requests left", lambda: work.requests()["new"] + work.requests()["taken"] == 0, 240)
    until("the items of the run", lambda: not work.data()["in_flight"])
    data, there = work.data(), work.stored()
    items, requests = work.items(), work.requests()
    received = items["received"] - work.before["received"]
    until("the seeds' books", lambda: work.added() == work.seeds)
    harvests = work.harvests()
    read = sum(each["read"] for each in harvests)
    parts = ("published", "filtered", "re_read", "refused")
    accounted = sum(each[part] for each in harvests for part in parts)
    verdicts = {
        f"run {run['id']}: total {books['total']} = success {books['success']} + failed "
        f"{books['failed']} + left {books['left']}": books["balanced"],
        f"data: {data['yielded']} yielded = stored {data['stored']} + rejected "
        f"{data['rejected']} + dropped {data['dropped']}, {there} there": data["yielded"]
        == data["stored"] + data["rejected"] + data["dropped"]
        and there == data["stored"] > 0,
        f"items: {work.sent} sent, {received} received, none in flight": items["balanced"]
        and received == work.sent,
        f"requests: stored {requests['stored']} = processed {requests['processed']}": requests[
            "balanced"
        ]
        and requests["stored"] == requests["processed"],
        f"seeds: {work.seeds} sent, {work.added()} added": work.added() == work.seeds,
        f"harvests: {read} read, {accounted} accounted for": read == accounted,
    }
    for text, holds in verdicts.items():
        say(f"{'ok' if holds else 'WRONG':<6} {text}")
    say(f"calls made again because the web was away: {work.rest.repeated}")
    return all(verdicts.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*WORDS, []])
    parser.add_argument("--up", type=int, required=True, help="process id of manage.py up")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--site-port", type=int, default=8199, help="of the pages that are crawled")
    options = parser.parse_args()
    up = psutil.Process(options.up)
    site = ThreadingHTTPServer(("127.0.0.1", options.site_port), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    rest = Rest(options.url, os.environ["CRAWLYARD_TOKEN"])
    work = Work(rest, f"http://127.0.0.1:{site.server_address[1]}")
    until("the first pages", lambda: work.books()["success"] > 20)
    for name in options.names or WORDS:
        kill(up, name, work)
    work.end()
    return 0 if report(work) else 1


if __name__ == "__main__":
    sys.exit(main())
