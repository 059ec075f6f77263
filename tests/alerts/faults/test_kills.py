"""A monitor that is killed anywhere loses no incident, opens none twice, and is followed soon."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.processes import PATIENCE_SECONDS, Place, wait_for

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]

POINTS = (
    "alerts.before_sampling",
    "alerts.before_evaluating",
    "alerts.events_before_commit",
    "alerts.events_after_commit",
    "alerts.opened",
    "alerts.after_open",
    "alerts.after_recover",
    "alerts.after_follow_up",
)

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
# Something happens, something begins to be so, something ends, something has lasted for long.
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
run = Run.objects.create(job=job, state="failed", created_at=now, ended_at=now)
RunMove.objects.create(run=run, to_state="failed", at=now)
DeadLetter.objects.create(message_id=str(n), queue=f"q{{n}}", body=b"", body_size=0, died_at=now)
DeadLetter.objects.filter(queue=f"q{{n - 2}}").update(state="dropped", resolved_at=now)
Incident.objects.filter(key=f"q{{n - 2}}").update(seen_at=now - timedelta(minutes=1))
Incident.objects.filter(key=f"q{{n - 1}}", state="open").update(told_at=now - timedelta(hours=2))
"""
# One that was killed still has the lease for a while.
NEXT_LOOK = """
from django.core.management import call_command
from apps.runtime.models import WorkerLease
WorkerLease.objects.filter(purpose="monitor").delete()
call_command("run_monitor", "--once")
"""
TOLD = """
import json
from apps.alerts.models import Incident, Notice
print(json.dumps([
    [row.rule, row.key, row.state, row.count,
     sorted(row.notices.values_list("kind", flat=True)),
     list(row.notes.order_by("pk").values_list("what", flat=True))]
    for row in Incident.objects.order_by("pk")]))
"""


class Alone(Place):
    """Processes with every app; the monitor's own with the settings of daemons."""

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
SAMPLED = """
from apps.queuestats.models import Sample
rows = Sample.objects.filter(step=1, series__name="monitor.sampled").order_by("second")
print(list(rows.values_list("second", flat=True)))
"""


def place_on(database: str, folder: Path, request: pytest.FixtureRequest) -> Place:
    """An empty database of this kind, and a broker of its own."""
    url = f"sqlite:///{folder / 'alone.sqlite3'}"
    if database == "postgresql":
        url = request.getfixturevalue("postgres_database")
    found = Alone(
        database_url=url, broker_url=f"sqlite:///{folder / 'broker.sqlite3'}", folder=folder
    )
    if database == "sqlite":
        found.migrate()
    return found


@pytest.fixture(params=BOTH)
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    found = place_on(request.param, tmp_path, request)
    done(found.python(RULES))
    return found


def done(process: Any) -> str:
    assert process.returncode == 0, process.stdout + process.stderr
    return str(process.stdout)


def look(place: Place, failpoints: str = "") -> int:
    """One look of a monitor of its own."""
    ended = place.command("run_monitor", "--once", FAILPOINTS=failpoints, **AS_DAEMON)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stdout + ended.stderr
    return ended.returncode


def test_kills_at_every_point_lose_and_double_nothing(place: Place) -> None:
    look(place)
    for number, point in enumerate(POINTS):
        done(place.python(TROUBLE.format(number=number)))
        # So that each point is passed; the first two by every look.
        expected = 0 if point in POINTS[6:] and number < 2 else -signal.SIGKILL
        assert look(place, f"{point}=kill@1") == expected, point
        done(place.python(NEXT_LOOK))
    rows = json.loads(done(place.python(TOLD)).splitlines()[-1])
    failed = [row for row in rows if row[0] == "run failed"]
    assert sorted(row[1] for row in failed) == [f"job:{n + 1}" for n in range(len(POINTS))]
    for _rule, _key, state, count, notices, steps in failed:
        assert (state, count, notices, steps) == ("open", 1, ["opened"], ["opened"])
    held = {row[1]: row[2:] for row in rows if row[0] == "dead letters held"}
    assert len(held) == len([row for row in rows if row[0] == "dead letters held"]) == len(POINTS)
    last = len(POINTS) - 1
    for number in range(len(POINTS)):
        repeated = number < last
        recovered = number < last - 1
        assert held[f"q{number}"] == [
            "recovered" if recovered else "open",
            1,
            ["opened", *["recovered"] * recovered, *["repeated"] * repeated],
            ["opened", *["repeated"] * repeated, *["recovered"] * recovered],
        ]


def seconds_unwatched(place: Place, since: float) -> float:
    """From then on until somebody sampled again; infinite while nobody has."""
    seconds = json.loads(done(place.python(SAMPLED)).splitlines()[-1])
    return min((each + 1 - since for each in seconds if each >= since), default=math.inf)


def test_another_takes_over_within_15_seconds(
    place: Place, record_property: Callable[[str, object], None]
) -> None:
    leads = (
        "from apps.runtime.models import Daemon\n"
        "print([d.name for d in Daemon.objects.filter(kind='monitor') if d.detail.get('leads')])"
    )
    seen = (
        "from apps.queuestats.models import Sample\n"
        "print(Sample.objects.filter(step=1, series__name='monitor.sampled').count())"
    )
    first = place.start("run_monitor", "--name", "first", **AS_DAEMON)
    second = None
    try:
        wait_for(lambda: "first" in done(place.python(leads)), "the first leads")
        second = place.start("run_monitor", "--name", "second", **AS_DAEMON)
        wait_for(lambda: int(done(place.python(seen))) > 1, "it samples")
        time.sleep(3)
        first.kill()
        killed_at = time.time()
        wait_for(lambda: seconds_unwatched(place, killed_at) < math.inf, "the second samples")
        unwatched = seconds_unwatched(place, killed_at)
        record_property("seconds_unwatched", unwatched)
        print(f"{unwatched:.1f} s unwatched")
        assert unwatched < 15 + PATIENCE_SECONDS / 6
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.communicate()
