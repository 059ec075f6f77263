"""Files that runs keep, for pages and REST."""

from __future__ import annotations

from typing import Final

from apps.datasets.models import StoredFile
from apps.datasets.querysets import OfDatasetQuerySet
from apps.jobs.models import Run

# Images that a browser shows and that cannot hold scripts: SVG is none of them.
IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})


def files_of_run(run: Run) -> OfDatasetQuerySet[StoredFile]:
    """Return the complete files of a run."""
    return StoredFile.objects.filter(
        dataset__project=run.job.project_id, run_number=run.pk
    ).exclude(complete_at=None)
