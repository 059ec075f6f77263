"""Monitor processes for fault tests, and checks of the notifications afterwards."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.plugins.measurements import Measured
from tests.plugins.migrated_databases import fill_data_folder
from tests.runtime.processes import Place

AS_DAEMON = {"DJANGO_SETTINGS_MODULE": "crawlyard.settings.daemon"}
RULES = """
from django.utils import timezone
from apps.configcenter.services import activate, save_version
from apps.alerts.models import Channel
Channel.objects.create(name="ops", kind="mail", settings={"to": ["ops@example.com"]})
data = {"defaults": {"tell": ["ops"]}, "rules": [
    {"name": "dead letters held", "event": "dead_letters.held", "repeat_seconds": 3600}]}
now = timezone.now()
saved = save_version(kind="alerts", project_id=None, data=data, actor=None, now=now)
activate(version=saved.version, actor=None, now=now)
"""
# One event, one new condition, one ended and one long-lasting condition; and a run that ended long
# enough ago that its last counters are not awaited.
TROUBLE = """
from datetime import timedelta
from django.utils import timezone
from apps.alerts.models import Incident
from apps.jobs.models import Job, Run, RunMove
from apps.projects.models import Project
from apps.runtime.models import DeadLetter
now, n = timezone.now(), {number}
project, _made = Project.objects.get_or_create(slug="p", defaults={{"name": "p"}})
job = Job.objects.create(project=project, name=f"job {{n}}", spider="a:B")
earlier = now - timedelta(minutes=11)
Run.objects.create(job=job, state="failed", created_at=earlier, ended_at=earlier)
run = Run.objects.create(job=job, state="failed", created_at=now, ended_at=now)
RunMove.objects.create(run=run, to_state="failed", at=now)
DeadLetter.objects.create(message_id=str(n), queue=f"q{{n}}", body=b"", body_size=0, died_at=now)
DeadLetter.objects.filter(queue=f"q{{n - 2}}").update(state="dropped", resolved_at=now)
Incident.objects.filter(key=f"q{{n - 2}}").update(seen_at=now - timedelta(minutes=1))
Incident.objects.filter(key=f"q{{n - 1}}", state="open").update(told_at=now - timedelta(hours=2))
"""
# A killed monitor keeps its lease until it expires.
NEXT_LOOK = """
from django.core.management import call_command
from apps.runtime.models import WorkerLease
WorkerLease.objects.filter(purpose="monitor").delete()
call_command("run_monitor", "--once")
"""
TOLD = """
import json
from apps.alerts.models import Incident
print(json.dumps([
    [row.rule, row.key, row.state, row.count,
     sorted(row.notices.values_list("kind", flat=True)),
     list(row.notes.order_by("pk").values_list("what", flat=True))]
    for row in Incident.objects.order_by("pk")]))
"""
YIELDS = """
import json
from apps.alerts.models import JobYield
from apps.jobs.models import Run
runs = Run.objects.filter(moves__isnull=True)
print(json.dumps([list(runs.values_list("pk", flat=True)),
                  list(JobYield.objects.values_list("run", flat=True))]))
"""
SAMPLED = """
from apps.queuestats.models import Sample
rows = Sample.objects.filter(step=1, series__name="monitor.sampled").order_by("second")
print(list(rows.values_list("second", flat=True)))
"""
_CONSOLE = """
import contextlib, io, json, sys, traceback
import django
django.setup()
for line in sys.stdin:
    said, problem = io.StringIO(), ""
    with contextlib.redirect_stdout(said):
        try:
            exec(json.loads(line), {"__name__": "console"})
        except BaseException:
            problem = traceback.format_exc()
    print(json.dumps([said.getvalue(), problem]), flush=True)
"""


class Alone(Place):
    """Test processes with all apps and, for the monitor, the settings of daemons."""

    def environment(self, **extra: str) -> dict[str, str]:
        mine = {
            "DJANGO_SETTINGS_MODULE": "crawlyard.settings.base",
            "CRAWLYARD_DATA": str(self.folder / "data"),
            "DEBUG": "1",
        }
        return super().environment(**(mine | extra))


BOTH = [
    pytest.param("sqlite", marks=pytest.mark.twin),
    pytest.param("postgresql", marks=pytest.mark.services),
]


def place_on(database: str, folder: Path, request: pytest.FixtureRequest) -> Place:
    """Create an empty database of this kind and its own broker."""
    if database == "postgresql":
        url = request.getfixturevalue("postgres_database")
    else:
        fill_data_folder(folder / "data")
        url = f"sqlite:///{folder / 'data' / 'crawlyard.sqlite3'}"
    return Alone(
        database_url=url, broker_url=f"sqlite:///{folder / 'broker.sqlite3'}", folder=folder
    )


class Console:
    """Long-running Python process that executes scripts, faster than a new process for each."""

    def __init__(self, place: Place) -> None:
        self._log = place.folder / "console.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CONSOLE],
                env=place.environment(),
                cwd=place.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def do(self, code: str) -> str:
        """Run ``code`` and return its output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._log.read_text(errors="replace")[-3000:]
        said, problem = json.loads(line)
        assert not problem, problem
        return str(said)

    def said(self, code: str) -> Any:
        """Run ``code`` and return the last line of its output, parsed as JSON."""
        return json.loads(self.do(code).splitlines()[-1])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def done(process: Any) -> str:
    assert process.returncode == 0, process.stdout + process.stderr
    return str(process.stdout)


def wake(process: subprocess.Popen[str]) -> None:
    """Resume the process now instead of at the end of its failpoint."""
    for waker in psutil.Process(process.pid).children():
        waker.kill()
    process.send_signal(signal.SIGCONT)


def seconds_unwatched(place: Place, since: float) -> float:
    """Return the seconds from ``since`` to the next sampling; infinite if there was none."""
    seconds = json.loads(done(place.python(SAMPLED)).splitlines()[-1])
    return min((each + 1 - since for each in seconds if each >= since), default=math.inf)


def compared(rows: list[list[Any]], jobs: int, queues: list[int]) -> dict[str, int]:
    """Return the numbers of lost and duplicate incidents of these jobs and queues."""
    expected = {("run failed", f"job:{number + 1}") for number in range(jobs)}
    expected |= {("dead letters held", f"q{number}") for number in queues}
    found = [(row[0], row[1]) for row in rows if (row[0], row[1]) in expected]
    told = sum(max(0, row[4].count("opened") - 1) for row in rows)
    return {
        "of": len(expected),
        "lost": len(expected - set(found)),
        "twice": len(found) - len(set(found)) + told,
    }


def check_books(console: Console, number_of: int, measured: Measured) -> None:
    """Check incidents and notifications after ``number_of`` rounds, each followed by a pass."""
    rows = console.said(TOLD)
    measured(**compared(rows, number_of, list(range(number_of))))
    failed = [row for row in rows if row[0] == "run failed"]
    assert sorted(row[1] for row in failed) == sorted(f"job:{n + 1}" for n in range(number_of))
    for _rule, _key, state, count, notices, steps in failed:
        assert (state, count, notices, steps) == ("open", 1, ["opened"], ["opened"])
    held = {row[1]: row[2:] for row in rows if row[0] == "dead letters held"}
    assert len(held) == len([row for row in rows if row[0] == "dead letters held"]) == number_of
    last = number_of - 1
    for number in range(number_of):
        repeated = number < last
        recovered = number < last - 1
        assert held[f"q{number}"] == [
            "recovered" if recovered else "open",
            1,
            ["opened", *["recovered"] * recovered, *["repeated"] * repeated],
            ["opened", *["repeated"] * repeated, *["recovered"] * recovered],
        ]
    ended, written = console.said(YIELDS)
    lost, twice = len(set(ended) - set(written)), len(written) - len(set(written))
    measured(of=len(ended), lost=lost, twice=twice)
    assert sorted(written) == sorted(ended)
