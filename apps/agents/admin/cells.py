"""Changing cells of the list of agents, shared by the page and its live updates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.template.defaultfilters import filesizeformat
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.agents.engine.charts import HEIGHT, WIDTH, Point, round_top, segments
from apps.agents.models import Agent
from apps.agents.queries import qps_lines
from apps.agents.states import MODE_TONES, AgentMode, is_alive

SPARK_FOR: Final = timedelta(hours=1)
SHOWN_PROBLEM: Final = 90
NAMES: Final = ("problems", "alive", "mode", "cpu", "memory", "downloaders", "rate")
# The figures of a silent agent are out of date.
UNKNOWN: Final = "–"


class Cells:
    """Cells of some agents at one moment. One query, for the sparklines."""

    def __init__(self, agents: Iterable[Agent], now: datetime) -> None:
        self.now = now
        self._since = now - SPARK_FOR
        self._lines: Mapping[int, list[Point]] = qps_lines(
            [agent.pk for agent in agents], self._since
        )

    def cell(self, name: str, agent: Agent) -> SafeString:
        """Return one cell, marked for live updates."""
        content: Any = getattr(self, f"_{name}")(agent)
        return format_html('<span data-live-cell="{}.{}">{}</span>', agent.pk, name, content)

    def all_of(self, agent: Agent) -> dict[str, str]:
        """Return the content of each cell by its mark."""
        return {f"{agent.pk}.{name}": str(getattr(self, f"_{name}")(agent)) for name in NAMES}

    def _is_alive(self, agent: Agent) -> bool:
        return is_alive(agent.heartbeat_at, self.now)

    def _alive(self, agent: Agent) -> SafeString:
        age = age_text(agent.heartbeat_at, self.now)
        alive = self._is_alive(agent)
        label = _label("success", _("alive")) if alive else _label("danger", _("silent"))
        return format_html('{} <span class="cy-subtle cy-nowrap">{}</span>', label, age)

    def _mode(self, agent: Agent) -> SafeString:
        return _label(MODE_TONES[agent.mode], AgentMode(agent.mode).label)

    def _cpu(self, agent: Agent) -> str:
        return f"{agent.cpu_percent:.0f}\xa0%" if self._is_alive(agent) else UNKNOWN

    def _memory(self, agent: Agent) -> SafeString:
        free = filesizeformat(agent.free_memory_bytes) if self._is_alive(agent) else UNKNOWN
        total = filesizeformat(agent.total_memory_bytes)
        return format_html('<span class="cy-nowrap">{} / {}</span>', free, total)

    def _downloaders(self, agent: Agent) -> str:
        return str(agent.downloaders) if self._is_alive(agent) else UNKNOWN

    def _rate(self, agent: Agent) -> SafeString:
        return format_html(
            '<span class="cy-rate"><span class="cy-figure">{}</span>{}</span>',
            f"{agent.qps:.1f}" if self._is_alive(agent) else UNKNOWN,
            self._spark(self._lines.get(agent.pk, [])),
        )

    def _spark(self, points: list[Point]) -> SafeString:
        top = round_top(max((value for _at, value in points), default=0.0))
        lines = segments(points, start=self._since.timestamp(), end=self.now.timestamp(), top=top)
        shapes = [format_html('<polyline points="{}"></polyline>', line) for line in lines]
        return format_html(
            '<svg class="cy-spark" viewBox="0 -4 {} {}" preserveAspectRatio="none" role="img"'
            ' aria-label="{}">' + "{}" * len(shapes) + "</svg>",
            WIDTH,
            HEIGHT + 8,
            _("QPS of the last hour, maximum %(top)s") % {"top": f"{top:g}"},
            *shapes,
        )

    def _problems(self, agent: Agent) -> SafeString | str:
        if not agent.problems:
            return ""
        first = str(agent.problems[0])
        more = len(agent.problems) - 1
        text = first if len(first) <= SHOWN_PROBLEM else f"{first[:SHOWN_PROBLEM]}…"
        if more:
            text += " " + ngettext("(and %(n)d more)", "(and %(n)d more)", more) % {"n": more}
        return format_html(
            '<span class="cy-problem" title="{}">{}</span>', "\n".join(agent.problems), text
        )


def _label(tone: str, text: Any) -> SafeString:
    return render_to_string("unfold/helpers/label.html", {"type": tone, "text": text})


def age_text(moment: datetime | None, now: datetime) -> str:
    """Return an age in seconds, minutes, hours or days."""
    if moment is None:
        return _("never")
    seconds = max(0, int((now - moment).total_seconds()))
    for limit, unit, text in (
        (60, 1, _("%(count)d s ago")),
        (3600, 60, _("%(count)d min ago")),
        (86400, 3600, _("%(count)d h ago")),
    ):
        if seconds < limit:
            return text % {"count": seconds // unit}
    return _("%(count)d days ago") % {"count": seconds // 86400}
