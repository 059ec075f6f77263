"""Datasets of producers: found, or created with their first item."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from django.db import IntegrityError, transaction

from apps.datasets.engine.errors import DatasetError
from apps.datasets.models import NAME_CHARACTERS, Dataset
from apps.datasets.states import Origin
from apps.jobs.models import Job, Run
from apps.projects.models import Project

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
    """Return where items of ``run:7``, ``biz:3/news`` or ``source:3/books`` go.

    Creates the dataset with the first one. Raises ``UnknownProducer``.
    """
    kind, _, rest = producer.partition(":")
    if kind == "run" and _ID.fullmatch(rest):
        run = Run.objects.filter(pk=int(rest)).select_related("job").first()
        if run is None:
            raise UnknownProducer(f"run {rest} does not exist")
        return Destination(dataset_of_job(run.job).pk, run.pk)
    project, _, name = rest.partition("/")
    if kind in ("biz", "source") and _ID.fullmatch(project) and name:
        if not Project.objects.filter(pk=int(project)).exists():
            raise UnknownProducer(f"project {project} does not exist")
        origin = Origin.BIZ if kind == "biz" else Origin.SOURCE
        return Destination(_dataset(int(project), origin, 0, name).pk, 0)
    raise UnknownProducer(f"{producer[:100]!r} is no producer of items")


def dataset_of_job(job: Job) -> Dataset:
    """Return the dataset of a job, created if needed. It keeps its name if the job is renamed."""
    return _dataset(job.project_id, Origin.JOB, job.pk, job.name)


def _dataset(project_id: int, origin: Origin, origin_id: int, name: str) -> Dataset:
    known = {
        "project_id": project_id,
        "origin": origin,
        "origin_id": origin_id,
        "origin_name": "" if origin is Origin.JOB else name[:NAME_CHARACTERS],
    }
    while True:
        found = Dataset.objects.filter(**known).first()
        if found is not None:
            return found
        try:
            with transaction.atomic():
                return Dataset.objects.create(**known, name=_free_name(project_id, name))
        except IntegrityError:
            # Another writer was faster with this dataset, or with its name.
            continue


def _free_name(project_id: int, name: str) -> str:
    free, number = name[:NAME_CHARACTERS], 1
    while Dataset.objects.filter(project_id=project_id, name=free).exists():
        number += 1
        free = f"{name[: NAME_CHARACTERS - 8]}-{number}"
    return free
