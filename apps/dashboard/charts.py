"""Which charts the pages show, and where each line comes from."""

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

# More lines in one chart cannot be told apart.
MOST_LINES: Final = 6
QUEUES: Final = (topology.CENTER_REQUESTS, topology.RUNNERS, topology.STATISTICS, topology.LOGS)


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: ``series`` as the component takes them, ``{"source": ..., "title": ...}``."""

    title: str
    series: list[dict[str, str]]
    unit: str = ""


def home_charts(user: User) -> list[Chart]:
    """Active runs by project, and for those who see everything the queues and the agents."""
    projects = list(Project.objects.visible_to(user).order_by("name")[:MOST_LINES])
    charts = []
    if projects:
        lines = [
            _line(str(each), f"/api/v1/projects/{each.pk}/series/points", "runs.active", "running")
            for each in projects
        ]
        charts.append(Chart(_("Active runs"), lines))
    if user.sees_everything:
        waiting = [
            _platform(str(TITLES[queue.name]), "queue.ready", queue.name) for queue in QUEUES
        ]
        agents = [
            _platform(_("alive"), "agents.alive"),
            _platform(_("silent"), "agents.silent"),
        ]
        charts += [Chart(_("Waiting messages"), waiting), Chart(_("Agents"), agents)]
    return charts


def run_charts(run: Run) -> list[Chart]:
    """How fast a run is; nothing for one that never began."""
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
