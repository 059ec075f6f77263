"""Yield anomalies of jobs, as conditions for alert rules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.events import ConditionSource, Fact, Occurrence
from apps.alerts.engine.rules import INFO, Rule
from apps.alerts.models import YieldWatch
from apps.alerts.queries.yields import stale_since
from apps.alerts.sources.pages import change_page


class YieldAnomaly:
    """Jobs whose newest run has an anomaly of one kind; recovers with the next normal run."""

    def __init__(
        self, kind: str, title: str | Promise, sentence: str | Promise, facts: tuple[str, ...]
    ) -> None:
        self.name = f"yield.{kind}"
        self.title: object = title
        # Summary, filled with the facts.
        self.sentence: object = sentence
        self.advice: object = LOOK
        self.facts: tuple[str, ...] = ("job", "run", *facts)
        self._kind = kind
        self._facts = facts

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per job."""
        rows = YieldWatch.objects.watched().filter(unusual=True).select_related("job")
        for row in rows.order_by("pk"):
            for finding in row.findings:
                if finding["kind"] == self._kind:
                    yield self._happening(row, finding)

    def _happening(self, row: YieldWatch, finding: dict[str, Any]) -> Occurrence:
        facts: dict[str, Fact] = {"job": row.job.name, "run": row.run or 0}
        details = finding | _first_field(finding)
        facts |= {name: details[name] for name in self._facts if details.get(name) is not None}
        return Occurrence(
            id=f"job:{row.job_id}",
            project=row.project_id,
            key=f"job:{row.job_id}",
            at=datetime.fromisoformat(finding["since"]),
            facts=facts,
            address=_page(row.job_id),
        )


def _first_field(finding: dict[str, Any]) -> dict[str, Any]:
    """Return the field whose coverage fell most, with shares in percent."""
    if finding["kind"] != "coverage":
        return {}
    worst = finding["fields"][0]
    return {
        "field": worst["name"],
        "percent": round(100 * worst["share"]),
        "usual_percent": round(100 * worst["usual"]),
        "fields": finding["count"],
    }


LOOK: Final = _(
    "Compare a page of the site with the extracted items. If they are correct, reset the baseline."
)


class StaleYield:
    """Jobs without new items for several times their usual interval."""

    name = "yield.stale"
    title: object = _("a job returns no new items")
    sentence: object = _("job %(job)s: no new items since run %(run)s")
    advice: object = _(
        "Check whether runs of the job start, how they end, and what the site responds."
    )
    facts: tuple[str, ...] = ("job", "run", "seconds", "usual_seconds")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per job, unless an active run has items."""
        rows = YieldWatch.objects.watched().filter(stale_at__lt=at).select_related("job")
        for row in rows.order_by("pk"):
            interval = stale_since(row, row.job, at)
            if interval is None or interval.stale_at is None or row.good_at is None:
                continue
            yield Occurrence(
                id=f"job:{row.job_id}",
                project=row.project_id,
                key=f"job:{row.job_id}",
                at=interval.stale_at,
                facts={
                    "job": row.job.name,
                    "run": row.good_run or 0,
                    "seconds": round((at - row.good_at).total_seconds()),
                    "usual_seconds": round(interval.usual_seconds or 0),
                },
                address=_page(row.job_id),
            )


def _page(job: int) -> str:
    return change_page("jobs/job", job) + "#yields"


ITEMS: Final = _("job %(job)s: run %(run)s returned %(items)s items, usually %(usual)s")
SOURCES: Final[tuple[ConditionSource, ...]] = (
    YieldAnomaly("drop", _("a job returns far fewer items than usual"), ITEMS, ("items", "usual")),
    YieldAnomaly("rise", _("a job returns far more items than usual"), ITEMS, ("items", "usual")),
    YieldAnomaly(
        "coverage",
        _("a field of a job's items is empty far more often than usual"),
        _(
            "job %(job)s: %(field)s has a value in %(percent)s %% of the items of run %(run)s,"
            " usually in %(usual_percent)s %%"
        ),
        ("field", "percent", "usual_percent", "fields", "items"),
    ),
    YieldAnomaly(
        "failures",
        _("far more requests of a job fail than usual"),
        _("job %(job)s: %(failed)s of %(done)s requests of run %(run)s failed"),
        ("failed", "done"),
    ),
    StaleYield(),
)


# Built-in rules; a configured rule of the same name modifies one.
RULES: Final = (
    Rule(name="yield dropped", event="yield.drop", title=_("far fewer items than usual")),
    Rule(
        name="yield rose", event="yield.rise", severity=INFO, title=_("far more items than usual")
    ),
    Rule(name="fields left empty", event="yield.coverage", title=_("fields are missing")),
    Rule(name="requests fail", event="yield.failures", title=_("many requests of a job fail")),
    Rule(name="nothing new", event="yield.stale", title=_("a job returns no new items")),
)
