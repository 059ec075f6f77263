"""Files that runs keep, for pages and REST."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from apps.datasets.models import Dataset, StoredFile
from apps.datasets.querysets import OfDatasetQuerySet
from apps.jobs.models import Run

# Images that a browser shows and that cannot hold scripts: SVG is none of them.
IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})


def files_of_run(run: Run) -> OfDatasetQuerySet[StoredFile]:
    """Return the complete files of a run."""
    return (
        StoredFile.objects.of_items()
        .filter(dataset__project=run.job.project_id, run_number=run.pk)
        .exclude(complete_at=None)
    )


def files_by_name(
    dataset: Dataset, wanted: Collection[tuple[int, str]]
) -> dict[tuple[int, str], StoredFile]:
    """Return the complete files of (run, name); of equal names the last one. At most one query."""
    if not wanted:
        return {}
    rows = StoredFile.objects.filter(
        dataset=dataset,
        run_number__in={run for run, _name in wanted},
        name__in={name for _run, name in wanted},
    ).exclude(complete_at=None)
    return {(file.run_number, file.name): file for file in rows.order_by("complete_at", "pk")}
