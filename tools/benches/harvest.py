"""bench harvest: records of a local API with a latency and a limit, through a whole collector.

The limit is the time its requests take at the API's own rate, one evenly after the other: a
harvester that waited for each answer and each confirm in turn would take twice that. Afterwards
more records without a limit, to see that memory does not grow with their number.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from crawlyard.units import manage
from tools.benches import record_api
from tools.benches.measuring import (
    BenchFailed,
    conditions,
    environment,
    helper,
    line_of,
    module,
    usage,
)
from tools.benches.router_stores import lend_stores

RECORDS: Final = 27_000
BATCH: Final = 100
LATENCY_SECONDS: Final = 0.05
# What the vendor allows, and a rate that no harvest reaches here.
LIMIT: Final = 20.0
NO_LIMIT: Final = 1000.0
LIMIT_RATIO: Final = 1.1
_LOOK_SECONDS: Final = 0.2
_PATIENCE_SECONDS: Final = 900.0
_MAKE: Final = """
from apps.projects.models import Project
from apps.sources.services import save_credential
project = Project.objects.create(name="bench", slug="bench")
save_credential(project_id=project.pk, name="bench", actor=None,
                values={"username": "bench", "password": "bench"})
"""
_ASK: Final = """
import json
from apps.runtime.services import shared_broker
from apps.sources.models import Harvest
row = Harvest.objects.latest("pk")
print(json.dumps({
    "state": row.state, "error": row.error, "published": row.published, "batches": row.batches,
    "ended_at": row.ended_at.timestamp() if row.ended_at else 0,
    "waiting": shared_broker().depth("bench_records").ready,
}))
shared_broker().purge("bench_records")
"""


def run(*, records: int, scales: Sequence[int], servers: bool) -> dict[str, Any]:
    """Harvest ``records`` at the limit, then ``records`` times each of ``scales`` without one.

    ``servers``: on PostgreSQL and RabbitMQ, in a database and a virtual host of its own.

    Raises:
        BenchFailed: a record was lost, or a server lends nothing.
    """
    before = conditions()
    with _box(servers) as box:
        limited = _measure(box, records, LIMIT, LATENCY_SECONDS)
        steps = [_measure(box, records * scale, NO_LIMIT, 0.0) for scale in scales]
    # The total, the token, and the batches; the last answer takes its time.
    requests = limited["requests"]
    ideal = (requests - 1) / LIMIT + LATENCY_SECONDS
    return {
        "bench": "harvest",
        **before,
        "broker": "amqp" if servers else "sqlite",
        "database": "postgresql" if servers else "sqlite",
        "batch": BATCH,
        "latency_seconds": LATENCY_SECONDS,
        "requests_per_second": LIMIT,
        "ours": limited | {"ideal_seconds": round(ideal, 2)},
        "peer": None,
        "ratio": None,
        "limit": {"times_the_ideal": LIMIT_RATIO},
        "limit_ratio": round(limited["seconds"] / ideal, 3),
        "growth": {
            "steps": steps,
            "rss_ratio": round(steps[-1]["peak_rss_mb"] / steps[0]["peak_rss_mb"], 2),
            "cpu_ratio": round(steps[-1]["cpu_us_per_record"] / steps[0]["cpu_us_per_record"], 2),
        },
    }


def _measure(box: _Box, records: int, rate: float, latency: float) -> dict[str, Any]:
    limit = rate if rate <= LIMIT else 0.0
    api = module(record_api.__name__, str(records), str(latency), str(limit))
    with helper(api) as server:
        return box.harvest(line_of(server), records, rate)


@contextmanager
def _box(servers: bool) -> Iterator[_Box]:
    folder = Path(tempfile.mkdtemp(prefix="crawlyard-bench-"))
    stores = lend_stores() if servers else nullcontext()
    try:
        with stores as lent:
            made = _Box(folder, lent.environment if lent is not None else {})
            made.manage("migrate", "-v0")
            made.manage("shell", "-v0", "-c", _MAKE)
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Box:
    """An installation of its own."""

    folder: Path
    stores: Mapping[str, str]

    def harvest(self, url: str, records: int, rate: float) -> dict[str, Any]:
        """Have a collector harvest it all, as a source of its own."""
        self._configure(url, rate)
        cpu, peak = self._collect()
        found = json.loads(self.manage("shell", "-v0", "-c", _ASK).splitlines()[-1])
        asked = _stats(url)
        if (found["published"], found["waiting"]) != (records, records):
            raise BenchFailed(f"{records} records, but {found}")
        if asked["refused"]:
            raise BenchFailed(f"{asked['refused']} requests were over the API's limit")
        seconds = found["ended_at"] - asked["first_at"]
        return {
            "records": records,
            "requests": asked["asked"],
            "seconds": round(seconds, 2),
            "records_per_second": round(records / seconds),
            "cpu_us_per_record": round(1e6 * cpu / records, 1),
            "peak_rss_mb": round(peak),
        }

    def _configure(self, url: str, rate: float) -> None:
        octoparse = {"base_url": url, "task_id": record_api.TASK, "rate_limit": rate}
        # Octoparse allows no more than its limit; read as any JSON API it is as fast as it can.
        plain = {
            "kind": "json",
            "base_url": f"{url}/all",
            "json": {"total": "data.total", "records": "data.dataList"},
            "rate_limit": rate,
        }
        source = {
            **(octoparse if rate <= LIMIT else plain),
            "credentials": "bench",
            "date_field": "发布时间",
            "filter_days": 36_500,
            "queue": "bench_records",
        }
        file = self.folder / "sources.json"
        file.write_text(
            json.dumps({"sources": {f"bench-{time.monotonic_ns()}": source}}), encoding="utf-8"
        )
        self.manage("config", "apply", "sources", str(file), "--project", "bench")

    def _collect(self) -> tuple[float, float]:
        """Seconds of CPU and the peak of memory, in MB, of a collector that does it."""
        peak = cpu = 0.0
        end = time.monotonic() + _PATIENCE_SECONDS
        with self._collector() as process:
            while process.poll() is None:
                if time.monotonic() > end:
                    raise BenchFailed("the collector does not end")
                now = usage(process.pid)
                if now is not None:
                    peak, cpu = max(peak, now.rss_mb), max(cpu, now.cpu_seconds)
                time.sleep(_LOOK_SECONDS)
            if process.returncode:
                raise BenchFailed(f"the collector ended with status {process.returncode}")
        return cpu, peak

    @contextmanager
    def _collector(self) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / "collector.log").open("wb") as log:
            process = subprocess.Popen(
                manage("run_collector", "--once"), env=self._environment(), stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def manage(self, *arguments: str) -> str:
        """What a command writes. Raises ``BenchFailed``."""
        done = subprocess.run(
            manage(*arguments), env=self._environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise BenchFailed(f"{arguments[0]} failed: {done.stderr.strip()[-500:]}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        ours = {"DATABASE_URL", "BROKER_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE"}
        kept = {
            name: value
            for name, value in environment().items()
            if name not in ours and not name.startswith("CRAWLYARD_")
        }
        return {
            **kept,
            "CRAWLYARD_DATA": str(self.folder / "data"),
            "SOURCES_ALLOWED_NETWORKS": "127.0.0.0/8",
            **self.stores,
        }


def _stats(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/stats", timeout=10) as answer:  # noqa: S310 - our own
        found: dict[str, Any] = json.loads(answer.read())
    return found
