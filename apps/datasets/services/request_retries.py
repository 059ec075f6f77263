"""Runs that make failed requests of an earlier run again."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
import zstandard
from django.db import transaction
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import record
from apps.datasets.engine import keys
from apps.datasets.engine.item_types import ItemQuery
from apps.datasets.engine.reader import ItemReader
from apps.datasets.errors import NothingToRetry
from apps.datasets.models import Dataset, StoredFile
from apps.datasets.queries.items import dataset_of_run
from apps.datasets.queries.requests import NOT_SUCCEEDED, SAVED, open_requests
from apps.datasets.states import Kind
from apps.jobs.models import Run
from apps.jobs.services import start_run
from apps.runtime.services.objects import shared_objects
from yardkit.items import columns as names

MOST_REQUESTS: Final = 100_000
# File of the new run in the dataset of requests; it is deleted with the rows of that run.
FILE_NAME: Final = "requests.jsonl.zst"
_BEYOND: Final = f"beyond the limit of {MOST_REQUESTS} requests"
_NOT_SAVED: Final = "not saved"


@dataclass(frozen=True, slots=True)
class RetriedRequests:
    """The new run, the number of its requests, and of the others by the reason."""

    run: Run
    requests: int
    left_out: dict[str, int]


def retry_requests(
    *,
    run: Run,
    actor: User | None,
    now: datetime,
    query: ItemQuery | None = None,
    ids: Collection[str] | None = None,
) -> RetriedRequests:
    """Start a run of the same job that makes failed requests again, with the run's arguments.

    Args:
        query: which of them; all without it.
        ids: only those of these identities, such as ``7-b2f0-15``.

    Raises:
        NothingToRetry: none of them failed and can be made again.
        BadItemQuery, DataUnavailable: of the reader.
        JobsError: as ``start_run``.
    """
    dataset = dataset_of_run(run, Kind.REQUESTS)
    lines: list[bytes] = []
    left_out: Counter[str] = Counter()
    if dataset is not None:
        with open_requests(run, with_saved=True) as reader:
            for identity, saved, reason in _failed(reader, query or ItemQuery()):
                if ids is not None and f"{run.pk}-{identity}" not in ids:
                    continue
                if not saved:
                    left_out[reason or _NOT_SAVED] += 1
                elif len(lines) >= MOST_REQUESTS:
                    left_out[_BEYOND] += 1
                else:
                    lines.append(saved.encode())
    if dataset is None or not lines:
        raise NothingToRetry(_reasons(left_out))
    with transaction.atomic():
        started = start_run(
            job=run.job,
            now=now,
            actor=actor,
            arguments=run.arguments,
            reason=_("failed requests of run %(run)d") % {"run": run.pk},
            requests_of=run,
        )
        started.requests_object = _store(dataset, started, lines, now)
        started.save(update_fields=["requests_object"])
        after = {"run": started.pk, "requests": len(lines)}
        record(
            actor=actor,
            action="datasets.retry_requests",
            obj=run,
            project=run.job.project,
            after=after,
        )
    return RetriedRequests(started, len(lines), dict(left_out))


def _failed(reader: ItemReader, query: ItemQuery) -> Iterator[tuple[str, str, str]]:
    """Yield incarnation and number, the saved request and why it is not saved, of each failure."""
    filters = (*query.filters, NOT_SUCCEEDED)
    query = msgspec.structs.replace(query, filters=filters, sort="", after="", newest=False)
    known = [name for name in (SAVED, "not_saved") if name in reader.fields]
    for batch in reader.batches(query, fields=[names.INCARNATION, names.SEQ, *known]):
        rows: dict[str, list[Any]] = batch.to_pydict()
        empty = [None] * batch.num_rows
        yield from (
            (f"{incarnation}-{seq}", saved or "", reason or "")
            for incarnation, seq, saved, reason in zip(
                rows[names.INCARNATION],
                rows[names.SEQ],
                rows.get(SAVED, empty),
                rows.get("not_saved", empty),
                strict=True,
            )
        )


def _store(dataset: Dataset, run: Run, lines: list[bytes], now: datetime) -> str:
    """Store the requests as a file of the run; return the object's key."""
    packed = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(packed, closefd=False) as writer:
        for line in lines:
            writer.write(line + b"\n")
    content = packed.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    path = keys.stored_file(dataset.project_id, dataset.pk, run.pk, digest)
    key = f"{path}/0"
    shared_objects().put(key, content)
    StoredFile.objects.create(
        dataset=dataset,
        run_number=run.pk,
        name=FILE_NAME,
        content_type="application/zstd",
        size=len(content),
        sha256=digest,
        path=path,
        parts=1,
        arrived=[0],
        complete_at=now,
    )
    return key


def _reasons(left_out: Counter[str]) -> str:
    if not left_out:
        return _("There are no failed requests.")
    reasons = ", ".join(f"{count} × {reason}" for reason, count in left_out.most_common(5))
    return _("None of the failed requests can be made again: %(reasons)s") % {"reasons": reasons}
