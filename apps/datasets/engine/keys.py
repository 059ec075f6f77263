"""Keys of a dataset's objects."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

PAGES: Final = "pages/"


def folder(project_id: int, dataset_id: int) -> str:
    """Return the prefix of everything that belongs to a dataset, with a slash at its end."""
    return f"datasets/p{project_id}/d{dataset_id}/"


def segment(project_id: int, dataset_id: int, run_number: int) -> str:
    """Return a key that was never used, for fresh items of a run."""
    return f"{folder(project_id, dataset_id)}segments/run-{run_number}/{uuid4().hex}.parquet"


def table(project_id: int, dataset_id: int) -> str:
    """Return the place of the Iceberg table, without a slash at its end."""
    return f"{folder(project_id, dataset_id)}table"


def table_file(
    project_id: int, dataset_id: int, run_number: int, compaction: int, number: int
) -> str:
    """Return the key of a file that a compaction writes."""
    place = table(project_id, dataset_id)
    return f"{place}/data/run-{run_number}/c{compaction}-{number}.parquet"


def stored_file(project_id: int, dataset_id: int, run_number: int, sha256: str) -> str:
    """Return the prefix of the parts of a file that a run keeps, without a slash at its end."""
    return f"{folder(project_id, dataset_id)}files/run-{run_number}/{sha256}"


def pages(project_id: int, run_number: int) -> str:
    """Return the prefix of the WARC files with kept pages of a run, with a slash at its end."""
    return f"{PAGES}p{project_id}/run-{run_number}/"


def biz_pages(project_id: int, dataset_id: int) -> str:
    """Return the prefix of the WARC files of a request group, whose index is the dataset."""
    return f"{PAGES}p{project_id}/biz-{dataset_id}/"
