"""bench download: center, two agents and the SDK against Scrapy in one process."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.utils import timezone

from crawlyard.demo import job as demo_job
from crawlyard.supervisor import Supervisor, Unit
from crawlyard.units import box
from tools.benches import tap
from tools.benches.measuring import (
    PYTHON_PATH,
    BenchFailed,
    Usage,
    conditions,
    environment,
    helper,
    line_of,
    module,
    usage,
)
from yardkit.stop import Stop

AGENTS = 2
# Parts of a box that a crawl does without.
NOT_NEEDED = ("web", "worker", "beat", "router", "seeds", "fetcher", "collector", "monitor")
CONCURRENCY = 100
LIMIT_SECONDS = 300.0
# What the center may add to a request's way, at the median.
LIMIT_CENTER_MS = 10.0


def run(*, pages: int, scales: Sequence[int], peer: bool) -> dict[str, Any]:
    """Crawl ``pages`` pages times each of ``scales``, the first with both; the JSON object.

    Raises:
        BenchFailed: one of the two did not fetch every page exactly once.
    """
    before = conditions()
    steps, theirs = [], None
    for number, scale in enumerate(scales):
        with site(pages * scale) as url:
            steps.append(_ours(url, pages * scale))
            if peer and not number:
                theirs = _peer(url, pages * scale)
    ours, last = steps[0], steps[-1]
    result: dict[str, Any] = {
        "bench": "download",
        "pages": ours["pages"],
        "page_bytes": 8192,
        "links_per_page": 21,
        "concurrency": CONCURRENCY,
        **before,
        "ours": ours,
        "peer": theirs,
        "ratio": None,
        "limit": {"center_ms_p50": LIMIT_CENTER_MS},
        "limit_ratio": round(ours["center_ms"]["p50"] / LIMIT_CENTER_MS, 3),
        "growth": {
            "steps": steps,
            "cpu_ratio": round(_cpu_us(last) / _cpu_us(ours), 2),
            "rss_ratio": round(last["peak_rss_mb"] / ours["peak_rss_mb"], 2),
        },
    }
    if theirs is not None:
        ratio = ours["pages_per_second"] / theirs["pages_per_second"]
        result["ratio"] = round(ratio, 2)
    return result


def _cpu_us(step: dict[str, Any]) -> float:
    """Of all that work on a page."""
    return float(sum(step["cpu_us_per_page"].values()))


@contextmanager
def site(pages: int) -> Iterator[str]:
    """Serve the bench's pages until the end of the block; their first address."""
    with helper(module("tools.benches.pages", str(pages))) as process:
        yield f"http://127.0.0.1:{int(line_of(process))}/p/0.html"


def _ours(url: str, pages: int) -> dict[str, Any]:
    call_command("migrate", verbosity=0, interactive=False)
    lines: list[str] = []
    _tap_file().unlink(missing_ok=True)
    units = [
        _tapped(unit)
        for unit in box(host="", port=0, agents=AGENTS, builds_apart=False)
        if unit.name not in NOT_NEEDED
    ]
    supervisor = Supervisor(units, lambda name, line: lines.append(f"{name} {line}"))
    with Stop() as stop:
        supervisor.start()
        try:
            warm_up(supervisor, stop)
            return _measure(supervisor, stop, url, pages)
        except BenchFailed as failure:
            raise BenchFailed("\n".join([str(failure), *lines[-20:]])) from failure
        finally:
            supervisor.stop()


def _tap_file() -> Path:
    return Path(settings.DATA_DIR) / "bench-tap"


def _tapped(unit: Unit) -> Unit:
    """The center is measured from outside: when each request comes, and when it leaves."""
    if unit.name != "center":
        return unit
    argv = module("tools.benches.center", str(_tap_file()))
    return replace(unit, argv=argv, environment=PYTHON_PATH)


def warm_up(supervisor: Supervisor, stop: Stop) -> None:
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
    run = demo_job.start(job=job)
    deadline = time.monotonic() + LIMIT_SECONDS
    end = demo_job.look(run.pk)
    spider = Usage()
    while not end.over:
        supervisor.step(0.05)
        spider = usage(end.run.pid) or spider
        if stop.requested or time.monotonic() > deadline:
            raise BenchFailed(f"the run is {end.run.state}: {end.run.reason}")
        end = demo_job.look(run.pk)
    used = {
        name: Usage(after.cpu_seconds - before[name].cpu_seconds, after.rss_mb)
        for name, after in _usage(supervisor).items()
    }
    return _figures(end, used | {"spider": spider}, pages)


def _figures(end: demo_job.Progression, used: dict[str, Usage], pages: int) -> dict[str, Any]:
    if not end.succeeded() or end.books.pages != pages:
        raise BenchFailed(f"not every page exactly once: {end.report()}")
    told = json.loads((settings.RUNS_DIR / str(end.run.pk) / "exit.json").read_text())
    seconds = float(told["seconds"])
    passages = tap.read(_tap_file())
    cpu = sum(one.cpu_seconds for one in used.values())
    return {
        "pages": end.books.pages,
        "seconds": round(seconds, 3),
        "pages_per_second": round(pages / seconds, 1),
        "cpu_seconds": round(cpu, 2),
        "cores_used": round(cpu / seconds, 2),
        "cpu_us_per_page": {
            name: round(1e6 * one.cpu_seconds / pages) for name, one in used.items()
        },
        "peak_rss_mb": round(sum(one.rss_mb for one in used.values())),
        "center_ms": tap.percentiles(passages.total),
        "inside_center_ms": tap.percentiles(passages.inside),
        "agents": end.report()["agents"],
    }


def _usage(supervisor: Supervisor) -> dict[str, Usage]:
    """The daemons that do the work of a download; the runner only waits."""
    return {
        name: usage(pid) or Usage() for name, pid in supervisor.pids().items() if name != "runner"
    }


def _peer(url: str, pages: int) -> dict[str, Any]:
    done = subprocess.run(
        module("tools.benches.scrapy_peer", url, str(CONCURRENCY)),
        env=environment(),
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
