"""Project visibility of failed requests, series and queues; search over statistics of runs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final, Generic, Self

from django.db.models import Q
from django.db.models.fields.json import KeyTransform
from django.utils.translation import gettext as _

from apps.access.querysets import M_co, VisibleQuerySet


class FailedRequestQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Failed requests, filtered by their project."""

    project_path = "project"


class JobDayQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Daily figures of jobs, filtered by the projects of the jobs."""

    project_path = "job__project"
    hidden_with = ("job",)


class SeriesQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Series, filtered by their project."""

    project_path = "project"


class QueueStateQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Queues; those without a project are visible to users who see everything."""

    project_path = "project"


_CONDITION: Final = re.compile(
    r"\s*(?P<name>[^\s<>=!].*?)\s*(?:(?P<operator>[<>!]=|[=<>])(?P<value>.*))?"
)
_LOOKUPS: Final = {"=": "exact", "!=": "exact", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


@dataclass(frozen=True, slots=True)
class StatCondition:
    """A condition on one statistic. ``operator``: "" asks whether there is one of this name."""

    name: str
    operator: str = ""
    value: float | int | bool | str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``retry/count > 10``, ``finish_reason=shutdown`` or a name alone.

        Raises ``ValueError``.
        """
        matched = _CONDITION.fullmatch(text)
        if matched is None or "\0" in text:
            raise ValueError(_("Write a name, or name, operator and value: retry/count > 10"))
        operator = matched["operator"] or ""
        return cls(
            matched["name"], operator, _value(matched["value"].strip()) if operator else None
        )


def _value(text: str) -> float | int | bool | str | None:
    """Return a number, true, false or null as JSON has them, else the text itself."""
    try:
        value = json.loads(text, parse_constant=str)
    except ValueError:
        return text
    return value if isinstance(value, float | int | bool | str | None) else text


class RunStatsQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Statistics of runs, filtered by their project."""

    project_path = "project"

    def where(self, condition: StatCondition) -> Self:
        """Filter by a condition on one statistic; runs without that statistic do not match."""
        rows = self.filter(stats__has_key=condition.name)
        if not condition.operator:
            return rows
        rows = rows.alias(stat=KeyTransform(condition.name, "stats"))
        matching = Q((f"stat__{_LOOKUPS[condition.operator]}", condition.value))
        return rows.filter(~matching if condition.operator == "!=" else matching)
