"""Page of one agent: current figures, history, runs served."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.agents.engine.charts import GAP_SECONDS, Point, round_top, segments, thin_out
from apps.agents.models import Agent, AgentSample
from apps.agents.queries import Served, samples_since, served_by
from apps.agents.states import MODE_TONES, AgentMode, is_alive

HOURS: Final = (1, 6, 24)
# More points are indistinguishable on a screen.
MOST_POINTS: Final = 240
GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class AgentChart:
    """One line over time. ``top`` and ``newest`` are texts."""

    title: str
    newest: str
    top: str
    lines: list[str]


@dataclass(frozen=True, slots=True)
class Figure:
    """How a figure of the samples is drawn: its aggregate and its format."""

    title: str
    value: Callable[[AgentSample], float]
    worst: Callable[[Iterable[float]], float]
    text: Callable[[float], str]
    top: float = 0.0


def detail(agent: Agent, person: User | None, hours: int, now: datetime) -> dict[str, Any]:
    """Return the context of ``admin/agents/agent/live.html``. Four queries."""
    hours = hours if hours in HOURS else HOURS[0]
    since = now - timedelta(hours=hours)
    served: Served = served_by(agent, person)
    return {
        "agent": agent,
        "alive": is_alive(agent.heartbeat_at, now),
        "mode_tone": MODE_TONES[agent.mode],
        "mode_label": AgentMode(agent.mode).label,
        "charts": charts(agent, samples_since(agent, since), since, now),
        "hours": hours,
        "choices": [hour for hour in HOURS if hour <= max(HOURS[0], settings.AGENT_HISTORY_HOURS)],
        "since": since,
        "now": now,
        "time_format": "H:i" if hours < 24 else "m-d H:i",
        "served": served,
    }


def charts(
    agent: Agent, samples: list[AgentSample], since: datetime, now: datetime
) -> list[AgentChart]:
    """Return CPU, free memory, downloaders and QPS; the worst value of each interval."""
    start, end = since.timestamp(), now.timestamp()
    stretch = max(60.0, (end - start) / MOST_POINTS)
    found = []
    for figure in _figures(agent):
        points: list[Point] = thin_out(
            [(sample.at.timestamp(), figure.value(sample)) for sample in samples],
            seconds=stretch,
            worst=figure.worst,
        )
        top = figure.top or round_top(max((value for _at, value in points), default=0.0))
        lines = segments(points, start=start, end=end, top=top, gap=max(GAP_SECONDS, 2.5 * stretch))
        newest = figure.text(points[-1][1]) if points else "–"
        found.append(AgentChart(figure.title, newest, figure.text(top), lines))
    return found


def _rate_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _figures(agent: Agent) -> list[Figure]:
    return [
        Figure(_("CPU"), lambda one: one.cpu_percent, max, lambda value: f"{value:.0f} %", 100.0),
        Figure(
            _("free memory"),
            lambda one: one.free_memory_bytes / GIB,
            min,
            lambda value: str(filesizeformat(value * GIB)),
            agent.total_memory_bytes / GIB,
        ),
        Figure(_("downloaders"), lambda one: one.downloaders, max, lambda value: f"{value:g}"),
        Figure(_("QPS"), lambda one: one.qps, max, _rate_text),
    ]
