"""bench download: center, two agents and the SDK against Scrapy in one process."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
from django.conf import settings
from django.core.management import call_command
from django.utils import timezone

from crawlyard.demo import job as demo_job
from crawlyard.settings.paths import ROOT
from crawlyard.supervisor import Supervisor
from crawlyard.units import box
from yardkit.stop import Stop

AGENTS = 2
CONCURRENCY = 100
LIMIT_SECONDS = 300.0


class BenchFailed(Exception):
    """The measurement is void; the text says why."""


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds and peak memory of a set of processes."""

    cpu_seconds: float
    rss_mb: float


def run(*, pages: int, peer: bool) -> dict[str, Any]:
    """Crawl ``pages`` pages with both; the JSON object of the result.

    Raises:
        BenchFailed: one of the two did not fetch every page exactly once.
    """
    with _site(pages) as url:
        ours = _ours(url, pages)
        theirs = _peer(url, pages) if peer else None
    result: dict[str, Any] = {
        "bench": "download",
        "pages": pages,
        "page_bytes": 8192,
        "links_per_page": 21,
        "concurrency": CONCURRENCY,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "ours": ours,
        "peer": theirs,
        "ratio": None,
    }
    if theirs is not None:
        ratio = ours["pages_per_second"] / theirs["pages_per_second"]
        result["ratio"] = round(ratio, 2)
    return result


@contextmanager
def _site(pages: int) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "crawlyard.benches.pages", str(pages)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_environment(),
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - pipes
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/p/0.html"
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")])}


def _ours(url: str, pages: int) -> dict[str, Any]:
    call_command("migrate", verbosity=0, interactive=False)
    lines: list[str] = []
    units = [unit for unit in box(host="", port=0, agents=AGENTS) if unit.name != "web"]
    supervisor = Supervisor(units, lambda name, line: lines.append(f"{name} {line}"))
    with Stop() as stop:
        supervisor.start()
        try:
            _warm_up(supervisor, stop)
            return _measure(supervisor, stop, url, pages)
        except BenchFailed as failure:
            raise BenchFailed("\n".join([str(failure), *lines[-20:]])) from failure
        finally:
            supervisor.stop()


def _warm_up(supervisor: Supervisor, stop: Stop) -> None:
    """Until every agent has registered, so that start-up is not measured."""
    began = timezone.now()
    deadline = time.monotonic() + 60
    while demo_job.agents_since(began) < AGENTS:
        supervisor.step(0.1)
        if stop.requested or time.monotonic() > deadline:
            raise BenchFailed("the agents did not register in time")


def _measure(supervisor: Supervisor, stop: Stop, url: str, pages: int) -> dict[str, Any]:
    job = demo_job.make_job(url=url, name=f"bench {pages}")
    before = _usage(supervisor)
    run = demo_job.start(job=job, username="")
    deadline = time.monotonic() + LIMIT_SECONDS
    end = demo_job.look(run.pk)
    spider = Usage(0.0, 0.0)
    while not end.over:
        supervisor.step(0.05)
        spider = _spider_usage(end.run.pid) or spider
        if stop.requested or time.monotonic() > deadline:
            raise BenchFailed(f"the run is {end.run.state}: {end.run.reason}")
        end = demo_job.look(run.pk)
    after = _usage(supervisor)
    return _figures(end, before, after, spider, pages)


def _figures(
    end: demo_job.Progression, before: Usage, after: Usage, spider: Usage, pages: int
) -> dict[str, Any]:
    if not end.succeeded() or end.books.pages != pages:
        raise BenchFailed(f"not every page exactly once: {end.report()}")
    told = json.loads((settings.RUNS_DIR / str(end.run.pk) / "exit.json").read_text())
    seconds = float(told["seconds"])
    cpu = after.cpu_seconds - before.cpu_seconds + spider.cpu_seconds
    return {
        "pages": end.books.pages,
        "seconds": round(seconds, 3),
        "pages_per_second": round(pages / seconds, 1),
        "cpu_seconds": round(cpu, 2),
        "cores_used": round(cpu / seconds, 2),
        "peak_rss_mb": round(after.rss_mb + spider.rss_mb),
        "broker": settings.BROKER_URL.partition(":")[0],
        "database": settings.DATABASE_URL.partition(":")[0],
        "agents": end.report()["agents"],
    }


def _usage(supervisor: Supervisor) -> Usage:
    """The daemons that do the work of a download; the runner only waits."""
    cpu = rss = 0.0
    for name, pid in supervisor.pids().items():
        if name == "runner":
            continue
        try:
            process = psutil.Process(pid)
            times = process.cpu_times()
            cpu += times.user + times.system
            rss += process.memory_info().rss / 2**20
        except psutil.Error:
            continue
    return Usage(cpu, rss)


def _spider_usage(pid: int | None) -> Usage | None:
    if not pid:
        return None
    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        return Usage(times.user + times.system, process.memory_info().rss / 2**20)
    except psutil.Error:
        return None


def _peer(url: str, pages: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "crawlyard.benches.scrapy_peer", url, str(CONCURRENCY)],
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    if "No module named 'scrapy'" in done.stderr:
        raise BenchFailed("the peer is not installed: pip install -r requirements-bench.txt")
    if done.returncode:
        raise BenchFailed(f"the peer failed: {done.stderr.strip()[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if result["pages"] != pages:
        raise BenchFailed(f"the peer fetched {result['pages']} of {pages} pages")
    result["cores_used"] = round(result["cpu_seconds"] / result["seconds"], 2)
    return result
