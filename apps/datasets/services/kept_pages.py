"""Deletes WARC files of kept pages: with the index of their run, or when there is none.

Those of a request group are deleted by age, up to a day after their rows: a row is never older than
its file.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from apps.datasets.engine import keys
from apps.datasets.models import Dataset, DatasetRun
from apps.datasets.states import Kind, Origin
from apps.jobs.models import Job
from apps.runtime.services.objects import shared_objects

# The index of a file comes after it, and waits where the broker is away.
ORPHAN_AGE: Final = timedelta(days=1)
_OF_BIZ: Final = re.compile(r"pages/p[0-9]+/biz-([0-9]+)/.+")


def days_of_pages(dataset: Dataset) -> int:
    """Return after how many days pages of the dataset's job are deleted."""
    jobs = Job.all_objects.filter(pk=dataset.origin_id)
    return jobs.values_list("pages_days", flat=True).first() or 1


def delete_pages(*, project_id: int, run_number: int) -> None:
    """Delete the WARC files of a run, those without an index included."""
    place = keys.pages(project_id, run_number)
    shared_objects().delete([info.key for info in shared_objects().list(place)])


def sweep_pages(*, now: datetime) -> int:
    """Delete WARC files of runs whose pages are deleted, or that do not exist; return how many."""
    runs: dict[str, list[str]] = {}
    doomed: list[str] = []
    of_bizzes = Dataset.objects.filter(kind=Kind.PAGES, origin=Origin.BIZ)
    days = dict(of_bizzes.values_list("pk", "keep_days"))
    for info in shared_objects().list(keys.PAGES):
        if match := _OF_BIZ.fullmatch(info.key):
            age = timedelta(days=days.get(int(match[1])) or 0) + ORPHAN_AGE
            if info.modified_at < now - age:
                doomed.append(info.key)
        elif info.modified_at < now - ORPHAN_AGE:
            runs.setdefault(info.key.rpartition("/")[0] + "/", []).append(info.key)
    kept = DatasetRun.objects.filter(dataset__kind=Kind.PAGES, deleted_at=None)
    known = {
        keys.pages(project, run)
        for project, run in kept.values_list("dataset__project_id", "run_number")
    }
    doomed += [key for place, files in runs.items() if place not in known for key in files]
    shared_objects().delete(doomed)
    return len(doomed)
