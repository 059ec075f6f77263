"""Batches of items to test with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from apps.datasets.models import Dataset, DatasetRun
from apps.datasets.services.datasets import dataset_of_job
from apps.datasets.services.ingestion import store_items
from apps.jobs.models import ImageTrial, Run
from apps.jobs.states import TrialState
from apps.projects.models import Project
from tests.jobs.factories import make_job
from tests.projects.build_factories import make_image
from yardkit.items.batches import encode_line, pack
from yardkit.protocol import CHUNK_BYTES, FileChunk, ItemBatch
from yardkit.tokens import sign_run_token

# Leases of new datasets begin at the real time.
NOW = datetime.now(UTC)


def make_batch(
    run: Run | int,
    items: Iterable[dict[str, Any]],
    *,
    first: int = 1,
    boot: str = "b1",
    url: str = "https://shop.example/list",
    at: datetime = NOW,
    **fields: Any,
) -> ItemBatch:
    """A message of a run with these items."""
    number = run if isinstance(run, int) else run.pk
    lines = [encode_line(url, item) for item in items]
    packed, size = pack(lines)
    values = {
        "producer": f"run:{number}",
        "boot": boot,
        "first": first,
        "count": len(lines),
        "lines": packed,
        "raw_bytes": size,
        "at": at.timestamp(),
        "token": sign_run_token(settings.SECRET_KEY, number),
    }
    return ItemBatch(**(values | fields))


def make_dataset(project: Project, **fields: Any) -> Dataset:
    """A dataset of a job of its own, without items."""
    dataset = dataset_of_job(make_job(project=project))
    Dataset.objects.filter(pk=dataset.pk).update(**fields)
    dataset.refresh_from_db()
    return dataset


def make_data_run(project: Project) -> DatasetRun:
    """Data of the run whose number is the ID of its dataset; made at the first call."""
    known = DatasetRun.objects.filter(dataset__project=project).first()
    if known is not None:
        return known
    dataset = make_dataset(project)
    return DatasetRun.objects.create(dataset=dataset, run_number=dataset.pk)


def make_trial(project: Project, **fields: Any) -> ImageTrial:
    """A trial that was not passed, of an image in a job of its own."""
    job = make_job(project=project)
    image = make_image(project=project, tag=f"trial-{ImageTrial.objects.count()}")
    values = {"state": TrialState.FAILED, "created_at": NOW, "ended_at": NOW, **fields}
    return ImageTrial.objects.create(job=job, image=image, image_digest=image.digest, **values)


def make_items(count: int, start: int = 1, **fields: Any) -> list[dict[str, Any]]:
    """Items of a shop, each with its own address."""
    return [
        {
            "url": f"https://shop.example/p/{number}",
            "title": f"Product {number}",
            "price": number + 0.5,
            "stock": number % 7,
            "tags": ["new", f"t{number % 3}"],
            **fields,
        }
        for number in range(start, start + count)
    ]


def store(run: Run, items: Iterable[dict[str, Any]], **fields: Any) -> None:
    """Store items of a run in one batch, which is accepted."""
    now = fields.pop("now", NOW)
    refused = store_items(messages=[make_batch(run, items, **fields)], now=now)
    assert not refused, refused


def make_chunks(
    run: Run, name: str, data: bytes, *, part_bytes: int = CHUNK_BYTES
) -> list[FileChunk]:
    """The messages of a file that a run keeps."""
    parts = max(1, -(-len(data) // part_bytes))
    return [
        FileChunk(
            producer=f"run:{run.pk}",
            boot="b1",
            name=name,
            content_type="application/octet-stream",
            part=part,
            parts=parts,
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            data=data[part * part_bytes : (part + 1) * part_bytes],
            at=NOW.timestamp(),
            token=sign_run_token(settings.SECRET_KEY, run.pk),
        )
        for part in range(parts)
    ]
