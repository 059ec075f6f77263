"""New kinds of errors in the logs of runs and builds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.events import EventSource, Occurrence
from apps.joblogs.models import ErrorGroup
from apps.joblogs.states import GroupState
from apps.jobs.states import ACTIVE

SAMPLE: Final = 200
# A run that logs a fatal error ends within seconds and is then reported by ``run.failed``.
RUN_ENDS_WITHIN: Final = timedelta(seconds=15)
PAGE: Final = "/logs/errors"


class NewError:
    """Kinds of errors that a job has for the first time; several of one job are counted.

    Read after ``run.failed`` and ``run.lost``: the error that ended a run opens no second incident.
    """

    name = "log.new_error"
    title: object = _("a new error group in a log")
    sentence: object = _("job %(job)s has a new error: %(error)s")
    advice: object = _("Check the error. Ignore its group on the Errors page if it is harmless.")
    facts: tuple[str, ...] = ("job", "run", "level", "source", "error", "image")
    same_run_as: tuple[str, ...] = ("run.failed", "run.lost")

    def since(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one of each kind that is not ignored; those of builds have no job."""
        rows = ErrorGroup.objects.filter(noted_at__gte=at, state=GroupState.OPEN)
        settled = timezone.now() - RUN_ENDS_WITHIN
        rows = rows.exclude(first_run__state__in=ACTIVE, noted_at__gt=settled)
        for row in rows.select_related("job", "first_image").order_by("pk"):
            of = f"job:{row.job_id}" if row.job_id is not None else f"builds:{row.project_id}"
            yield Occurrence(
                id=f"error:{row.pk}",
                project=row.project_id,
                key=of,
                at=row.noted_at,
                facts={
                    "job": row.job.name if row.job is not None else "–",
                    "run": row.first_run_id or "–",
                    "level": row.level,
                    "source": row.source,
                    "error": row.sample[:SAMPLE],
                    "image": str(row.first_image or ""),
                },
                address=PAGE,
            )


SOURCES: Final[tuple[EventSource, ...]] = (NewError(),)
