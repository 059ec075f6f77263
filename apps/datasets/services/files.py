"""Stores files that runs keep, part by part."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from django.db import transaction

from apps.datasets.engine import keys
from apps.datasets.models import Dataset, StoredFile
from apps.datasets.services.datasets import UnknownProducer, destination
from apps.datasets.services.ingestion import token_problem
from apps.runtime.services.objects import shared_objects
from yardkit import failpoints
from yardkit.items.files import MAX_FILE_BYTES, is_content_type, is_file_name
from yardkit.protocol import CHUNK_BYTES, FileChunk

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def store_chunk(*, chunk: FileChunk, now: datetime) -> str:
    """Store one part of a file; return why it is refused, "" if it is stored.

    The file is complete when all parts have arrived and its digest is right. Raises
    ``ObjectStoreUnavailable`` and ``DatabaseError``: the call may be repeated.
    """
    problem = _problem(chunk)
    if problem:
        return problem
    try:
        place = destination(chunk.producer)
    except UnknownProducer as error:
        return str(error)
    dataset = Dataset.objects.get(pk=place.dataset_id)
    path = keys.stored_file(dataset.project_id, dataset.pk, place.run_number, chunk.sha256)
    row, _ = StoredFile.objects.get_or_create(
        dataset=dataset,
        run_number=place.run_number,
        name=chunk.name,
        sha256=chunk.sha256,
        defaults={
            "content_type": chunk.content_type,
            "size": chunk.size,
            "path": path,
            "parts": chunk.parts,
        },
    )
    if (row.parts, row.size) != (chunk.parts, chunk.size):
        return f"{chunk.name}: size and parts differ from those of an earlier part"
    if row.complete_at is not None or _has_twin(row, now):
        return ""
    shared_objects().put(f"{path}/{chunk.part}", chunk.data)
    failpoints.hit("datasets.file_part")
    return _arrived(row.pk, chunk.part, now)


def _has_twin(row: StoredFile, now: datetime) -> bool:
    """Complete a file whose content is stored under another name; return whether it is."""
    twin = StoredFile.objects.filter(path=row.path).exclude(complete_at=None).first()
    if twin is None:
        return False
    StoredFile.objects.filter(pk=row.pk).update(
        complete_at=now, size=twin.size, parts=twin.parts, arrived=twin.arrived
    )
    return True


def _arrived(file_id: int, part: int, now: datetime) -> str:
    with transaction.atomic():
        row = StoredFile.objects.select_for_update().get(pk=file_id)
        row.arrived = sorted({*row.arrived, part})
        row.save(update_fields=["arrived"])
    if len(row.arrived) < row.parts:
        return ""
    digest, size = hashlib.sha256(), 0
    for chunk in content(row):
        digest.update(chunk)
        size += len(chunk)
    if (digest.hexdigest(), size) != (row.sha256, row.size):
        shared_objects().delete([f"{row.path}/{number}" for number in range(row.parts)])
        # Those of the same content, whose parts these were, too.
        StoredFile.objects.filter(path=row.path, complete_at=None).delete()
        return f"{row.name}: the parts do not have the digest and size that were announced"
    StoredFile.objects.filter(pk=row.pk, complete_at=None).update(complete_at=now)
    return ""


def content(row: StoredFile) -> Iterator[bytes]:
    """Yield the content of a file. Raises ``ObjectMissing`` and ``ObjectStoreUnavailable``."""
    for number in range(row.parts):
        yield from shared_objects().stream(f"{row.path}/{number}")


def _problem(chunk: FileChunk) -> str:
    name = chunk.name
    if not is_file_name(name):
        return f"{name[:100]!r} is no name of a file"
    if not is_content_type(chunk.content_type):
        return f"{name}: the type is {chunk.content_type[:100]!r}"
    if not _SHA256.fullmatch(chunk.sha256):
        return f"{name}: the digest is no SHA-256"
    parts = max(1, -(-chunk.size // CHUNK_BYTES))
    if not 0 <= chunk.size <= MAX_FILE_BYTES or chunk.parts != parts:
        return f"{name}: {chunk.size} bytes in {chunk.parts} parts; at most {MAX_FILE_BYTES} bytes"
    least = chunk.size - CHUNK_BYTES * (parts - 1) if chunk.part == parts - 1 else CHUNK_BYTES
    if not 0 <= chunk.part < parts or len(chunk.data) != least:
        return f"{name}: part {chunk.part} has {len(chunk.data)} bytes"
    if chunk.producer.partition(":")[0] != "run":
        return f"{chunk.producer[:100]} keeps no files"
    return token_problem(chunk.producer, chunk.token)
