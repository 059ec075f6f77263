"""Errors in the logs of runs and builds that were never there before."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.events import EventSource, Happening
from apps.joblogs.models import ErrorGroup
from apps.joblogs.states import GroupState

SAMPLE: Final = 200
PAGE: Final = "/logs/errors"


class NewError:
    """Kinds of errors that a job has for the first time; several of one job are counted."""

    name = "log.new_error"
    title: object = _("a new kind of error in a log")
    sentence: object = _("job %(job)s has a new kind of error: %(error)s")
    advice: object = _("Read the error; ignore its kind on the page of errors if it does no harm.")
    facts: tuple[str, ...] = ("job", "level", "source", "error", "image")

    def since(self, at: datetime) -> Iterator[Happening]:
        """One of each kind that nobody ignores; of builds without a job."""
        rows = ErrorGroup.objects.filter(noted_at__gte=at, state=GroupState.OPEN)
        for row in rows.select_related("job", "first_image").order_by("pk"):
            of = f"job:{row.job_id}" if row.job_id is not None else f"builds:{row.project_id}"
            yield Happening(
                id=f"error:{row.pk}",
                project=row.project_id,
                key=of,
                at=row.noted_at,
                facts={
                    "job": row.job.name if row.job is not None else "–",
                    "level": row.level,
                    "source": row.source,
                    "error": row.sample[:SAMPLE],
                    "image": str(row.first_image or ""),
                },
                address=PAGE,
            )


SOURCES: Final[tuple[EventSource, ...]] = (NewError(),)
