"""Yield section on a job's page: chart of its runs against the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django import template
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.access.services import has_role
from apps.access.states import Role
from apps.alerts.models import JobYield, YieldPolicy
from apps.alerts.models.yields import LIMITS
from apps.alerts.queries.yields import yields_of
from apps.jobs.models import Job

register = template.Library()

WIDTH: Final = 600
HEIGHT: Final = 140
# Minimum bar height, so that a run with few items stays visible.
LEAST_HEIGHT: Final = 1.5


@register.inclusion_tag("alerts/job_yields.html", takes_context=True)
def job_yields(context: dict[str, Any], job: Job) -> dict[str, Any]:
    """Return the context of the yield section. Four queries."""
    request: HttpRequest = context["request"]
    yields = yields_of(job, now=timezone.now())
    return {
        "request": request,
        "job": job,
        "found": yields,
        "bars": bars_of(yields.runs),
        "width": WIDTH,
        "height": HEIGHT,
        "limits": [_limit(yields.policy, name) for name in LIMITS],
        "may_edit": has_role(request.user, job.project_id, Role.EDITOR),
    }


@dataclass(frozen=True, slots=True)
class Bar:
    """Bar of one run in the chart; coordinates as locale-independent SVG numbers."""

    row: JobYield
    x: str
    wide: str
    y: str
    tall: str
    band_y: str
    band_tall: str
    middle_y: str
    kind: str


def bars_of(runs: Sequence[JobYield]) -> list[Bar]:
    """Return bars, oldest first, scaled to the highest run or highest baseline median."""
    counted = [row for row in reversed(runs) if row.items is not None]
    if not counted:
        return []
    # The upper bound of a volatile job may lie far above any run; it must not flatten the bars.
    top = max(
        max(row.items or 0, min(row.usual.get("high", 0), 2 * row.usual.get("middle", 0)))
        for row in counted
    )
    scale = HEIGHT / max(1.0, float(top))
    step = WIDTH / max(12, len(counted))
    return [_bar(row, place * step, step, scale) for place, row in enumerate(counted)]


def _bar(row: JobYield, x: float, step: float, scale: float) -> Bar:
    tall = max(LEAST_HEIGHT, (row.items or 0) * scale)
    usual = row.usual
    high = min(HEIGHT, usual["high"] * scale) if usual else 0.0
    low = min(HEIGHT, usual["low"] * scale) if usual else 0.0
    kind = "unusual" if row.findings else "usual" if row.judged else "apart"
    return Bar(
        row=row,
        x=f"{x + step * 0.12:.2f}",
        wide=f"{step * 0.76:.2f}",
        y=f"{HEIGHT - tall:.2f}",
        tall=f"{tall:.2f}",
        band_y=f"{HEIGHT - high:.2f}",
        band_tall=f"{high - low:.2f}",
        middle_y=f"{HEIGHT - usual['middle'] * scale:.2f}" if usual else "",
        kind=kind,
    )


def _limit(policy: YieldPolicy, name: str) -> dict[str, Any]:
    field: Any = YieldPolicy._meta.get_field(name)
    value = getattr(policy, name)
    return {
        "name": name,
        "label": field.verbose_name,
        "help": field.help_text,
        # Number inputs need the locale-independent format.
        "value": "" if value is None else f"{value:g}",
    }


@register.filter
def finding(found: dict[str, Any]) -> str:
    """Describe an anomaly in one sentence."""
    kind = found["kind"]
    if kind in {"drop", "rise"}:
        text = (
            _("%(items)s items; usually %(usual)s on this weekday")
            if found.get("weekday")
            else _("%(items)s items; usually %(usual)s")
        )
        return text % {"items": _number(found["items"]), "usual": _number(found["usual"])}
    if kind == "coverage":
        worst = found["fields"][0]
        text = _("%(field)s has a value in %(now)s of the items; usually in %(usual)s")
        sentence = text % {
            "field": worst["name"],
            "now": percent(worst["share"]),
            "usual": percent(worst["usual"]),
        }
        more = found["count"] - 1
        if more:
            sentence += " " + ngettext(
                "(and %(count)d more field)", "(and %(count)d more fields)", more
            ) % {"count": more}
        return sentence
    share = {"failed": _number(found["failed"]), "done": _number(found["done"])}
    if found.get("usual") is None:
        return _("%(failed)s of %(done)s requests failed") % share
    return _("%(failed)s of %(done)s requests failed; usually %(usual)s") % {
        **share,
        "usual": percent(found["usual"]),
    }


@register.filter
def percent(share: float | None) -> str:
    """Format ``0.987`` as ``98.7 %``, without decimals if it is a whole number."""
    if share is None:
        return "–"
    value = round(100 * share, 1)
    return f"{number_format(value, 0 if value == int(value) else 1)} %"


@register.filter
def items_range(usual: dict[str, Any]) -> str:
    """Format the expected range of items, from low to high."""
    if not usual:
        return "–"
    return f"{_number(round(usual['low']))} – {_number(round(usual['high']))}"


def _number(value: int) -> str:
    return f"{value:,}"
