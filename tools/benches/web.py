"""bench download --profile web: a crawl as of the real web, by the platform and by two peers.

TLS, compressed pages of 100 KB on 5,000 hosts, of which some are dead or slow, and politeness. The
sides take turns on the same two servers: the platform (center, agents, object server, a run),
Scrapy, and a client that only fetches and parses.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
from django.conf import settings
from django.core.management import call_command
from django.utils import timezone

from apps.agents.models import HostRule
from apps.jobs.models import Job, Run
from apps.jobs.services import stop_run
from crawlyard.demo import job as demo_job
from crawlyard.supervisor import Supervisor, Unit
from crawlyard.units import box, object_server
from tools.benches import broker_bytes, web_pages
from tools.benches.download import AGENTS, NOT_NEEDED, warm_up
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
from tools.benches.web_figures import EARLY_PAGES, memory_mb
from tools.benches.web_pages import Web
from yardkit.stop import Stop

PAGES: Final = 3000
ROUNDS: Final = 3
SERVERS: Final = 2
LIMITS: Final = {
    "ratio": 3.0,
    "bare_ratio": 0.5,
    "broker_bytes_per_page": 2048,
    "memory_growth": 1.1,
}
_SIDES: Final = ("ours", "scrapy", "bare")
_LOOK_SECONDS: Final = 0.5
# On a busy machine pages time out, on each side.
_LEAST_SHARE: Final = 0.95
# A crawl without a new page for so long has what it can get.
_SILENCE_SECONDS: Final = 30.0


def run(*, pages: int | None, peer: bool, rounds: int | None) -> dict[str, Any]:
    """Crawl by each side in turns; ratios are medians of those of the rounds.

    Raises:
        BenchFailed: a side lost many pages, or fetched one that robots.txt forbids.
    """
    before = conditions()
    call_command("migrate", verbosity=0, interactive=False)
    done = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="crawlyard-bench-"))
        stop = stack.enter_context(Stop())
        crawls = _Crawls(Path(folder), _Servers(stack, pages or PAGES), stop)
        for number in range(rounds or ROUNDS):
            turn = _SIDES[number % 3 :] + _SIDES[: number % 3]
            sides = [side for side in turn if peer or side == "ours"]
            done.append({side: crawls.crawl(side) for side in sides})
    ours = _median([each["ours"] for each in done])
    ratios = _ratios(done) if peer else {"ratio": None, "bare_ratio": None}
    return {
        "bench": "download",
        "profile": "web",
        **before,
        "hosts": web_pages.HOSTS,
        "dead_hosts": web_pages.DEAD_HOSTS,
        "slow_hosts": web_pages.LIVING_HOSTS // web_pages.SLOW_EVERY,
        "concurrency": web_pages.CONCURRENCY,
        **ratios,
        "broker_bytes_per_page": ours["broker_bytes_per_page"],
        "memory_growth": ours["memory_growth"],
        "limit": LIMITS,
        "limit_ratio": _limit_ratio({**ours, **ratios}),
        "ours": ours,
        "peer": _median([each["scrapy"] for each in done]) if peer else None,
        "bare": _median([each["bare"] for each in done]) if peer else None,
        "rounds": done,
    }


def _ratios(rounds: Sequence[dict[str, Any]]) -> dict[str, float]:
    faster = [one["ours"]["pages_per_second"] / one["scrapy"]["pages_per_second"] for one in rounds]
    per_core = [one["bare"]["cpu_us_per_page"] / one["ours"]["cpu_us_per_page"] for one in rounds]
    return {
        "ratio": round(statistics.median(faster), 2),
        "bare_ratio": round(statistics.median(per_core), 3),
    }


def _limit_ratio(found: dict[str, Any]) -> float:
    """Return how much of the nearest limit is used; above 1: a goal is missed."""
    used: list[float] = [found["broker_bytes_per_page"] / LIMITS["broker_bytes_per_page"]]
    used += [LIMITS[name] / found[name] for name in ("ratio", "bare_ratio") if found[name]]
    if found["memory_growth"]:
        used.append(found["memory_growth"] / LIMITS["memory_growth"])
    return round(max(used), 3)


def _median(figures: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of each figure, also of those in a dictionary."""
    found: dict[str, Any] = {}
    for name, value in figures[0].items():
        # A queue without a message in one of the rounds has no figure there.
        values = [each[name] for each in figures if name in each]
        if isinstance(value, dict):
            found[name] = _median(values)
        elif None in values:
            found[name] = None
        else:
            found[name] = statistics.median(values)
    return found


class _Servers:
    """The processes that serve the web."""

    def __init__(self, stack: ExitStack, pages: int) -> None:
        self._processes = [
            stack.enter_context(helper(module("tools.benches.web_site"))) for _ in range(SERVERS)
        ]
        ports = [json.loads(line_of(process)) for process in self._processes]
        self.web = Web(pages, [one[0] for one in ports], ports[0][1], ports[0][2])
        for process in self._processes:
            self._write(process, msgspec.json.encode(self.web).decode())

    def counts(self) -> dict[str, float]:
        """Return what was served since the last call, and the CPU seconds of the servers so far."""
        counts: dict[str, float] = {}
        for process in self._processes:
            self._write(process, "count")
            for name, value in json.loads(line_of(process)).items():
                counts[name] = counts.get(name, 0) + value
        return counts

    def _write(self, process: subprocess.Popen[str], line: str) -> None:
        assert process.stdin is not None  # noqa: S101 - helper() asks for a pipe
        process.stdin.write(line + "\n")
        process.stdin.flush()


class _Crawls:
    """Runs the crawls and checks what the servers have counted."""

    def __init__(self, folder: Path, servers: _Servers, stop: Stop) -> None:
        self._folder = folder
        self._servers = servers
        self._stop = stop
        self._number = 0

    def crawl(self, side: str) -> dict[str, Any]:
        """Crawl the web once."""
        self._number += 1
        report = self._folder / f"{self._number}-{side}.json"
        cpu_before = self._servers.counts()["cpu_seconds"]
        figures = self._ours(report) if side == "ours" else self._peer(side, report)
        served = self._servers.counts()
        wanted, pages = self._servers.web.pages, figures["pages"]
        if not _LEAST_SHARE * wanted <= pages <= wanted or served.get("forbidden"):
            raise BenchFailed(f"{side}: {pages} of {wanted} pages; served: {served}")
        return {
            **figures,
            "lost_pages": wanted - pages,
            "pages_per_second": round(pages / figures["seconds"], 1),
            "cpu_us_per_page": round(1e6 * figures["cpu_seconds"] / pages),
            "cores_used": round(figures["cpu_seconds"] / figures["seconds"], 2),
            "fetched_again": served["pages"] - pages,
            "slow_pages": served.get("slow", 0),
            "robots": served.get("robots", 0),
            "connections": served["connections"],
            "wire_bytes_per_page": round(served["bytes"] / served["pages"]),
            "servers_cpu_seconds": round(served["cpu_seconds"] - cpu_before, 2),
        }

    def _peer(self, side: str, report: Path) -> dict[str, Any]:
        name = {"scrapy": "web_scrapy", "bare": "web_client"}[side]
        argv = module(f"tools.benches.{name}", self._servers.web.first, str(report))
        with (self._folder / "peer.log").open("w+") as log:
            process = subprocess.Popen(argv, env=environment(), stdout=log, stderr=log)
            try:
                while process.poll() is None and not self._stop.requested:
                    time.sleep(0.1)
            finally:
                process.kill()
                process.wait()
            if self._stop.requested:
                raise BenchFailed("stopped")
            if process.returncode:
                log.seek(0)
                raise BenchFailed(f"{side} failed: {log.read()[-500:]}")
        figures = _read(report)
        return {**figures, "unanswered": figures.pop("failed"), "memory_growth": _growth(figures)}

    def _ours(self, report: Path) -> dict[str, Any]:
        with _platform(self._folder) as platform:
            supervisor, lines = platform
            try:
                warm_up(supervisor, self._stop)
                return _Run(supervisor, self._stop, self._servers.web, self._folder).crawl(report)
            except BenchFailed as failure:
                raise BenchFailed("\n".join([str(failure), *lines[-20:]])) from failure


@contextmanager
def _platform(folder: Path) -> Iterator[tuple[Supervisor, list[str]]]:
    """Run center, agents, object server and what else a run needs."""
    HostRule.objects.update_or_create(
        host="*.localhost",
        defaults={
            "requests_per_second": web_pages.REQUESTS_PER_SECOND,
            "concurrency": web_pages.HOST_CONCURRENCY,
        },
    )
    objects = object_server(
        os.environ,
        url=settings.OBJECTS_URL,
        public_url=settings.OBJECTS_PUBLIC_URL,
        listen=settings.OBJECTS_LISTEN,
    )
    lines: list[str] = []
    units = [
        _counted(unit, folder)
        for unit in box(host="", port=0, agents=AGENTS, builds_apart=False, objects=objects)
        if unit.name not in NOT_NEEDED
    ]
    supervisor = Supervisor(units, lambda name, line: lines.append(f"{name} {line}"))
    supervisor.start()
    try:
        yield supervisor, lines
    finally:
        supervisor.stop()


def _counted(unit: Unit, folder: Path) -> Unit:
    """Return the unit with its messages counted. An agent is started without Django."""
    program: Sequence[str] = unit.argv[1:]
    own = dict(PYTHON_PATH)
    if "run_agent" in program:
        program = ["apps.agents.downloader", *program[2:]]
        own |= {"BROKER_URL": settings.BROKER_URL, "CRAWLYARD_DATA": str(settings.DATA_DIR)}
    file = str(folder / f"{unit.name}.traffic")
    return replace(unit, argv=module("tools.benches.broker_bytes", file, *program), environment=own)


class _Run:
    """One run of the platform, watched from outside."""

    def __init__(self, supervisor: Supervisor, stop: Stop, web: Web, folder: Path) -> None:
        self._supervisor = supervisor
        self._stop = stop
        self._web = web
        self._folder = folder
        self._memory: dict[str, tuple[float, float]] = {}
        self._early: dict[str, tuple[float, float]] = {}
        self._spider = Usage()

    def crawl(self, report: Path) -> dict[str, Any]:
        job = self._job(report)
        before, traffic = self._usage(), self._traffic()
        run = demo_job.start(job=job)
        # Requests to dead hosts wait for one or two minutes longer, while their robots.txt is
        # tried again: nothing that the peers do.
        end = self._until(
            run, lambda end: end.books.success >= self._web.pages or end.over, silent=True
        )
        unanswered = end.books.total - end.books.success
        if not end.over:
            stop_run(run=run, now=timezone.now(), actor=None)
            end = self._until(run, lambda end: end.over)
        used = {
            name: after.cpu_seconds - before[name].cpu_seconds
            for name, after in self._usage().items()
        }
        if not report.exists():
            raise BenchFailed(f"the run is {end.run.state}: {end.run.reason} {end.report()}")
        figures = _read(report)
        figures.pop("failed")
        used["spider"] = figures["cpu_seconds"]
        sent = self._traffic() - traffic
        pages = max(1, figures["pages"])
        return {
            **figures,
            "cpu_seconds": round(sum(used.values()), 2),
            "cpu_us_by_process": {
                name: round(1e6 * seconds / pages) for name, seconds in used.items()
            },
            "peak_rss_mb": round(sum(peak for _, peak in self._memory.values()), 1),
            "peak_mb_by_process": {name: peak for name, (_, peak) in self._memory.items()},
            "early_rss_mb": round(sum(now for now, _ in self._early.values()), 1),
            "end_rss_mb": round(sum(now for now, _ in self._memory.values()), 1),
            "memory_growth": self._growth(),
            "growth_by_process": {
                name: round(self._memory[name][0] / now, 2)
                for name, (now, _) in self._early.items()
            },
            "broker_bytes_per_page": round(sent.total() / pages),
            "broker_bytes_by_queue": {name: round(size / pages) for name, size in sent.items()},
            # Addresses of dead hosts, lost ones, and those that robots.txt forbids.
            "unanswered": unanswered,
        }

    def _job(self, report: Path) -> Job:
        job = demo_job.make_job(url=self._web.first, name=report.stem)
        Job.objects.filter(pk=job.pk).update(
            spider="tools.benches.web_spider:WebSpider",
            arguments={
                "url": self._web.first,
                "report": str(report),
                "traffic": str(self._folder / "spider.traffic"),
            },
            verify_tls=False,
            use_cookies=False,
            timeout_seconds=web_pages.TIMEOUT_SECONDS,
            user_agent=web_pages.USER_AGENT,
            concurrency=web_pages.CONCURRENCY,
        )
        job.refresh_from_db()
        return job

    def _until(
        self, run: Run, is_over: Callable[[demo_job.Progression], bool], *, silent: bool = False
    ) -> demo_job.Progression:
        """Watch the run; with ``silent`` only until it makes no more pages.

        Raises:
            BenchFailed: it stands still.
        """
        done, moved_at = -1, time.monotonic()
        while True:
            self._supervisor.step(_LOOK_SECONDS)
            end = demo_job.look(run.pk)
            self._note(end)
            if is_over(end):
                return end
            if end.books.success != done:
                done, moved_at = end.books.success, time.monotonic()
            stands = time.monotonic() - moved_at > _SILENCE_SECONDS
            if stands and silent and done > 0:
                return end
            if stands or self._stop.requested:
                raise BenchFailed(f"the run stands still: {end.run.state} {end.report()}")

    def _note(self, end: demo_job.Progression) -> None:
        """Note the memory of each process; it is gone with the process."""
        for name, pid in {**self._pids(), "spider": end.run.pid}.items():
            if pid:
                try:
                    self._memory[name] = memory_mb(pid)
                except (OSError, KeyError):
                    continue  # it has just ended
        if not self._early and end.books.success >= EARLY_PAGES:
            self._early = dict(self._memory)

    def _growth(self) -> float | None:
        early = sum(now for now, _ in self._early.values())
        return round(sum(now for now, _ in self._memory.values()) / early, 3) if early else None

    def _pids(self) -> dict[str, int | None]:
        return {name: pid for name, pid in self._supervisor.pids().items() if name != "runner"}

    def _usage(self) -> dict[str, Usage]:
        return {name: usage(pid) or Usage() for name, pid in self._pids().items()}

    def _traffic(self) -> Counter[str]:
        totals: Counter[str] = Counter()
        for path in self._folder.glob("*.traffic"):
            totals += broker_bytes.total(path)
        return totals


def _read(report: Path) -> dict[str, Any]:
    if not report.exists():
        raise BenchFailed("a crawl has ended without its report: is Scrapy installed?")
    figures: dict[str, Any] = json.loads(report.read_text(encoding="ascii"))
    return figures


def _growth(figures: dict[str, Any]) -> float | None:
    early = figures["early_rss_mb"]
    return round(figures["end_rss_mb"] / early, 3) if early else None
