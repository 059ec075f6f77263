"""Charts of the overview and of the page of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from django.utils.translation import gettext as _

from apps.access.models import User
from apps.jobs.models import Run
from apps.jobs.states import RunState
from apps.projects.models import Project
from apps.queuestats.texts import TITLES
from yardkit import topology

# More lines in one chart are not distinguishable.
MAX_LINES: Final = 6
QUEUES: Final = (
    topology.CENTER_REQUESTS,
    topology.RUNNERS,
    topology.STATISTICS,
    topology.LOGS,
    topology.ITEMS,
)


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart; ``series`` are lines ``{"source": ..., "title": ...}`` of the ``chart`` tag."""

    title: str
    series: list[dict[str, str]]
    unit: str = ""


def home_charts(user: User) -> list[Chart]:
    """Return charts of active runs, and of queues and agents for users who see everything."""
    projects = list(Project.objects.visible_to(user).order_by("name")[:MAX_LINES])
    charts = []
    if projects:
        lines = [
            _line(str(p), f"/api/v1/projects/{p.pk}/series/points", "runs.active", "running")
            for p in projects
        ]
        charts.append(Chart(_("Active runs"), lines))
    if user.sees_everything:
        waiting = [
            _platform(str(TITLES[queue.name]), "queue.ready", queue.name) for queue in QUEUES
        ]
        agents = [_platform(_("alive"), "agents.alive"), _platform(_("silent"), "agents.silent")]
        charts += [Chart(_("Waiting messages"), waiting), Chart(_("Agents"), agents)]
    return charts


def run_charts(run: Run) -> list[Chart]:
    """Return charts of a run's rates; none for a queued run."""
    if run.state == RunState.QUEUED:
        return []
    address = f"/api/v1/runs/{run.pk}/series"
    return [
        Chart(_("Throughput"), [{"source": address, "title": ""}], "/s"),
        Chart(_("Received"), [{"source": f"{address}?names=bytes", "title": ""}], "bytes/s"),
    ]


def _platform(title: str, name: str, label: str = "") -> dict[str, str]:
    return _line(title, "/api/v1/series/points", name, label)


def _line(title: str, address: str, name: str, label: str) -> dict[str, str]:
    return {"source": f"{address}?{urlencode({'name': name, 'label': label})}", "title": title}
