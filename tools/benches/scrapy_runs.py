"""bench scrapy: the same Scrapy project plain and as a run of the platform, in turns."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from django.core.management import call_command

from apps.jobs.models import Job
from crawlyard.demo import job as demo_job
from crawlyard.supervisor import Supervisor, Unit
from crawlyard.units import box
from tools.benches.download import AGENTS, LIMIT_SECONDS, NOT_NEEDED, site, warm_up
from tools.benches.measuring import BenchFailed, conditions
from yardkit.stop import Stop

ROUNDS: Final = 3
LIMITS: Final = {"ratio": 1.0, "memory_ratio": 1.1}
_PROJECT: Final = Path(__file__).parent / "scrapy_project"


def run(*, pages: int, scales: Sequence[int], peer: bool) -> dict[str, Any]:
    """Crawl ``pages`` pages plain and by the platform in turns, then times each of ``scales``.

    Ratios are the median of those of the rounds.

    Raises:
        BenchFailed: one of the two did not fetch every page exactly once.
    """
    before = conditions()
    call_command("migrate", verbosity=0, interactive=False)
    with tempfile.TemporaryDirectory(prefix="crawlyard-bench-") as folder, Stop() as stop:
        crawls = _Box(Path(folder), stop)
        try:
            rounds = [
                _round(crawls, pages * scales[0], plain=peer, first_plain=bool(number % 2))
                for number in range(ROUNDS)
            ]
            ours = _median([each["ours"] for each in rounds])
            steps = [
                ours,
                *(_crawls(crawls, pages * scale, ["ours"])["ours"] for scale in scales[1:]),
            ]
        except BenchFailed as failure:
            raise BenchFailed("\n".join([str(failure), *crawls.lines[-20:]])) from failure
        finally:
            crawls.supervisor.stop()
    found: dict[str, Any] = dict.fromkeys([*LIMITS, "cpu_ratio", "limit_ratio"])
    if peer:
        found = _ratios(rounds)
        used = (LIMITS["ratio"] / found["ratio"], found["memory_ratio"] / LIMITS["memory_ratio"])
        found["limit_ratio"] = round(max(used), 3)
    return {
        "bench": "scrapy",
        "version": version("scrapy"),
        **before,
        **found,
        "ours": ours,
        "peer": _median([each["plain"] for each in rounds]) if peer else None,
        "rounds": rounds,
        "limit": LIMITS,
        "growth": {
            "steps": steps,
            "cpu_ratio": round(steps[-1]["cpu_us_per_page"] / steps[0]["cpu_us_per_page"], 2),
            "rss_ratio": round(steps[-1]["peak_rss_mb"] / steps[0]["peak_rss_mb"], 2),
        },
    }


def _round(crawls: _Box, pages: int, *, plain: bool, first_plain: bool) -> dict[str, Any]:
    """Crawl the same site by each side; the order alternates, since the machine's load drifts."""
    sides = ["plain", "ours"] if first_plain else ["ours", "plain"]
    return _crawls(crawls, pages, [side for side in sides if plain or side == "ours"])


def _crawls(crawls: _Box, pages: int, sides: Sequence[str]) -> dict[str, Any]:
    found = {}
    with site(pages) as url:
        for side in sides:
            crawl = crawls.ours if side == "ours" else crawls.plain
            figures = crawl(url)
            if figures["pages"] != pages:
                raise BenchFailed(f"{side}: {figures['pages']} of {pages} pages")
            figures["pages_per_second"] = round(pages / figures["seconds"], 1)
            figures["cpu_us_per_page"] = round(1e6 * figures["cpu_seconds"] / pages)
            found[side] = figures
    return found


def _median(figures: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {name: statistics.median(each[name] for each in figures) for name in figures[0]}


def _ratios(rounds: Sequence[dict[str, Any]]) -> dict[str, float]:
    names = {"ratio": "pages_per_second", "memory_ratio": "peak_rss_mb", "cpu_ratio": "cpu_seconds"}
    return {
        ratio: round(
            statistics.median(each["ours"][name] / each["plain"][name] for each in rounds), 3
        )
        for ratio, name in names.items()
    }


class _Box:
    """Center, two agents, and what stores the run; a runner that finds the project."""

    def __init__(self, folder: Path, stop: Stop) -> None:
        self.lines: list[str] = []
        self._folder = folder
        self._stop = stop
        self._crawls = 0
        units = [
            _with_project(unit)
            for unit in box(host="", port=0, agents=AGENTS, builds_apart=False)
            if unit.name not in NOT_NEEDED
        ]
        self.supervisor = Supervisor(units, lambda name, line: self.lines.append(f"{name} {line}"))
        self.supervisor.start()
        try:
            warm_up(self.supervisor, stop)
        except BaseException:
            self.supervisor.stop()
            raise

    def ours(self, url: str) -> dict[str, Any]:
        """Run the project as a job."""
        report = self._report()
        job = demo_job.make_job(url=url, name=report.stem)
        Job.objects.filter(pk=job.pk).update(
            spider="pages", arguments={"url": url, "report": str(report)}, agents=AGENTS
        )
        job.refresh_from_db()
        run = demo_job.start(job=job)
        self._until(lambda: demo_job.look(run.pk).over, f"the run {run.pk}")
        end = demo_job.look(run.pk)
        if not end.succeeded():
            raise BenchFailed(f"the run has not succeeded: {end.report()}")
        return _read(report)

    def plain(self, url: str) -> dict[str, Any]:
        """Run the project as ``scrapy crawl``. It stores its items, too."""
        report = self._report()
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "scrapy", "crawl", "pages"),
                *("-a", f"url={url}", "-a", f"report={report}"),
                *("-O", f"{report.with_suffix('.items')}:jsonlines"),
            ],
            cwd=_PROJECT,
            env={"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._until(lambda: process.poll() is not None, "plain Scrapy")
        finally:
            process.kill()
            process.wait()
        return _read(report)

    def _report(self) -> Path:
        self._crawls += 1
        return self._folder / f"crawl-{self._crawls}.json"

    def _until(self, is_over: Callable[[], bool], name: str) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not is_over():
            self.supervisor.step(0.05)
            if self._stop.requested or time.monotonic() > deadline:
                raise BenchFailed(f"{name} did not end")


def _with_project(unit: Unit) -> Unit:
    if unit.name != "runner":
        return unit
    return replace(unit, environment={"SPIDERS_DIR": str(_PROJECT)})


def _read(report: Path) -> dict[str, Any]:
    if not report.exists():
        raise BenchFailed("a crawl has ended without its report: is Scrapy installed?")
    figures: dict[str, Any] = json.loads(report.read_text())
    return figures
