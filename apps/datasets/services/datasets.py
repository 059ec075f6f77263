"""Datasets of producers: found, or created with their first item."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from django.db import IntegrityError, transaction

from apps.datasets.engine.errors import DatasetError
from apps.datasets.models import NAME_CHARACTERS, Dataset
from apps.datasets.states import Kind, Origin
from apps.jobs.models import Job, Run
from apps.projects.models import Project

# Producers that are runs, by the kind of what they send.
KINDS_OF_RUNS: Final = {"run": Kind.ITEMS, "requests": Kind.REQUESTS, "pages": Kind.PAGES}
# As the platform writes it: one producer has one name.
_ID: Final = re.compile(r"[1-9][0-9]{0,17}")


class UnknownProducer(DatasetError):
    """No run, request group or source of this name exists."""

    code = "unknown_producer"


@dataclass(frozen=True, slots=True)
class Destination:
    """Dataset of a producer, and the number of its run; 0 for a producer without runs."""

    dataset_id: int
    run_number: int


def destination(producer: str) -> Destination:
    """Return where rows of ``run:7``, ``biz:3/news`` or ``source:3/books`` go.

    ``requests:7`` and ``pages:7`` are requests and kept pages of run 7, ``biz_pages:12`` kept pages
    of the request group whose dataset of pages has the ID 12. Creates the dataset with the first
    one, but that of ``biz_pages``. Raises ``UnknownProducer``.
    """
    kind, _, rest = producer.partition(":")
    if kind in KINDS_OF_RUNS and _ID.fullmatch(rest):
        run = Run.objects.filter(pk=int(rest)).select_related("job").first()
        if run is None:
            raise UnknownProducer(f"run {rest} does not exist")
        return Destination(dataset_of_job(run.job, KINDS_OF_RUNS[kind]).pk, run.pk)
    if kind == "biz_pages" and _ID.fullmatch(rest):
        found = Dataset.objects.filter(pk=int(rest), kind=Kind.PAGES, origin=Origin.BIZ).first()
        if found is None:
            raise UnknownProducer(f"there are no kept pages with the number {rest}")
        return Destination(found.pk, 0)
    project, _, name = rest.partition("/")
    if kind in ("biz", "source") and _ID.fullmatch(project) and name:
        if not Project.objects.filter(pk=int(project)).exists():
            raise UnknownProducer(f"project {project} does not exist")
        origin = Origin.BIZ if kind == "biz" else Origin.SOURCE
        known = {"origin": origin, "origin_name": name[:NAME_CHARACTERS]}
        return Destination(_dataset(int(project), name, **known).pk, 0)
    raise UnknownProducer(f"{producer[:100]!r} is no producer of items")


def dataset_of_job(job: Job, kind: Kind = Kind.ITEMS) -> Dataset:
    """Return the dataset of a job, created if needed. It keeps its name if the job is renamed."""
    known = {"origin": Origin.JOB, "origin_id": job.pk, "kind": kind}
    if kind is not Kind.ITEMS:
        # A version that knows no kinds, after a step back, must not find it as that of the items.
        known["origin_name"] = kind.value
    return _dataset(job.project_id, job.name, **known)


def dataset_of_biz_pages(*, project_id: int, biz: str, days: int) -> Dataset:
    """Return the dataset of a request group's kept pages, created if needed; set its days."""
    # A slash, so that no request group has this name.
    known = {"origin": Origin.BIZ, "origin_name": f"{Kind.PAGES.value}/{biz}", "kind": Kind.PAGES}
    dataset = _dataset(project_id, biz, **known)
    if dataset.keep_days != days:
        dataset.keep_days = days
        dataset.save(update_fields=["keep_days"])
    return dataset


def _dataset(project_id: int, name: str, **known: Any) -> Dataset:
    known = {"origin_id": 0, "origin_name": "", "kind": Kind.ITEMS, **known}
    while True:
        found = Dataset.objects.filter(project_id=project_id, **known).first()
        if found is not None:
            return found
        try:
            with transaction.atomic():
                return Dataset.objects.create(
                    project_id=project_id, name=_free_name(project_id, known["kind"], name), **known
                )
        except IntegrityError:
            # Another writer was faster with this dataset, or with its name.
            continue


def _free_name(project_id: int, kind: Kind, name: str) -> str:
    free, number = name[:NAME_CHARACTERS], 1
    while Dataset.objects.filter(project_id=project_id, kind=kind, name=free).exists():
        number += 1
        free = f"{name[: NAME_CHARACTERS - 8]}-{number}"
    return free
