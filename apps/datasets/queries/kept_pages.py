"""Kept pages of a run: accounting, index, and the records of its WARC files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from django.utils import timezone

from apps.datasets.engine import keys
from apps.datasets.engine.errors import PageUnavailable
from apps.datasets.engine.filters import FilterOp, ItemFilter
from apps.datasets.engine.item_types import Item, ItemQuery
from apps.datasets.engine.reader import ItemReader
from apps.datasets.engine.warc_records import MAX_RECORD_BYTES
from apps.datasets.models import Dataset, DatasetRun
from apps.datasets.queries.items import dataset_of_run, open_reader
from apps.datasets.states import Kind, Origin
from apps.jobs.models import Run
from apps.queuestats.queries import page_totals
from apps.runtime.services.objects import shared_objects
from yardkit.objects import ObjectMissing, ObjectStoreError

# Reason of pages that an agent was to keep and that had not come this long after the run's end.
NEVER_UPLOADED: Final = "not uploaded by the agent"
_LATE: Final = timedelta(hours=1)
# Other fetches of an address that are offered for a comparison.
MOST_FETCHES: Final = 50


@dataclass(frozen=True, slots=True)
class PageAccounting:
    """chosen = kept + not kept + waiting. ``deleted``: how many of the kept ones are deleted."""

    chosen: int = 0
    kept: int = 0
    waiting: int = 0
    deleted: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def not_kept(self) -> int:
        """Number of pages that are lost, with ``reasons``."""
        return sum(self.reasons.values())

    def as_dict(self) -> dict[str, object]:
        """Return the values for REST and pages."""
        return {
            "chosen": self.chosen,
            "kept": self.kept,
            "not_kept": self.not_kept,
            "waiting": self.waiting,
            "deleted": self.deleted,
            "reasons": self.reasons,
        }


def page_accounting(run: Run) -> PageAccounting:
    """Return the accounting of the pages that a run's agents were to keep. Two queries.

    Agents report what they chose every second, and the index follows an upload: the larger of both
    numbers is what was chosen.
    """
    reported, reasons = page_totals(run.owner)
    row = DatasetRun.objects.filter(run_number=run.pk, dataset__kind=Kind.PAGES).first()
    kept = row.stored if row else 0
    lost = sum(reasons.values())
    chosen = max(reported, kept + lost)
    waiting = chosen - kept - lost
    if waiting and run.ended_at is not None and timezone.now() > run.ended_at + _LATE:
        reasons[NEVER_UPLOADED] = waiting
        waiting = 0
    return PageAccounting(chosen, kept, waiting, row.deleted_items if row else 0, reasons)


def biz_page_accounting(project_id: int, biz: str) -> PageAccounting:
    """Return the accounting of a request group's pages, of all its fetchers."""
    dataset = biz_pages(project_id, biz)
    if dataset is None:
        return PageAccounting()
    reported, reasons = page_totals(f"dataset:{dataset.pk}")
    row = DatasetRun.objects.filter(dataset=dataset, run_number=0).first()
    kept, deleted = (row.stored, row.deleted_items) if row else (0, 0)
    chosen = max(reported, kept + sum(reasons.values()))
    return PageAccounting(chosen, kept, chosen - kept - sum(reasons.values()), deleted, reasons)


class KeptPage(msgspec.Struct, frozen=True, kw_only=True):
    """One response in a WARC file; ``offset`` and lengths are those of its gzip members."""

    url: str
    final_url: str = ""
    method: str = "GET"
    status: int = 0
    failure: str = ""
    type: str = ""
    size: int = 0
    sha256: str = ""
    truncated: bool = False
    elapsed_ms: float = 0.0
    request: int = 0
    attempt: int = 0
    agent: str = ""
    at: datetime
    warc: str
    record: int
    key: str
    offset: int
    length: int
    request_length: int = 0
    screenshot_offset: int = 0
    screenshot_length: int = 0
    run: int = 0

    @property
    def id(self) -> str:
        """Return the identity as text, such as ``7-5f0c…-3``."""
        return f"{self.run}-{self.warc}-{self.record}"

    @property
    def is_html(self) -> bool:
        """Whether the page can be shown as HTML."""
        return self.type in ("text/html", "application/xhtml+xml", "")


def page_of(item: Item) -> KeptPage:
    """Return the page of a row. Raises ``PageUnavailable`` for one that no agent has written."""
    try:
        return msgspec.convert({**item.data, "run": item.run}, KeptPage)
    except msgspec.ValidationError as error:
        raise PageUnavailable(f"the index names no page: {error}") from error


def find_page(run: Run, warc: str, record: int) -> KeptPage | None:
    """Return a page by its file and number, None if there is none. May raise ``DatasetError``."""
    dataset = dataset_of_run(run, Kind.PAGES)
    if dataset is None:
        return None
    wanted = (
        ItemFilter("_incarnation", FilterOp.EQUALS, warc),
        ItemFilter("_seq", FilterOp.EQUALS, record),
    )
    with open_reader(dataset, [run.pk]) as reader:
        found = reader.page(ItemQuery(filters=wanted, limit=1)).items
    return page_of(found[0]) if found else None


def other_fetches(run: Run, page: KeptPage) -> list[KeptPage]:
    """Return other kept pages of the same address, over all runs of the job, newest first."""
    dataset = dataset_of_run(run, Kind.PAGES)
    if dataset is None:
        return []
    wanted = (ItemFilter("url", FilterOp.EQUALS, page.url),)
    query = ItemQuery(filters=wanted, sort="-_at", limit=MOST_FETCHES + 1)
    with open_reader(dataset) as reader:
        found = [page_of(item) for item in reader.page(query).items]
    return [other for other in found if other.id != page.id][:MOST_FETCHES]


def biz_pages(project_id: int, biz: str) -> Dataset | None:
    """Return the dataset of a request group's kept pages, None if none were ever kept."""
    name = f"{Kind.PAGES.value}/{biz}"
    return Dataset.objects.filter(
        project_id=project_id, origin=Origin.BIZ, origin_name=name, kind=Kind.PAGES
    ).first()


def newest_pages(dataset: Dataset, requests: Collection[int]) -> dict[int, KeptPage]:
    """Return the page of the last try of stored requests. May raise ``DatasetError``.

    Those without one are left out.
    """
    found: dict[int, KeptPage] = {}
    with open_reader(dataset) as reader:
        fields = [name for name in KeptPage.__struct_fields__ if name in reader.fields]
        for row in _rows_of(reader, requests, fields):
            known = {name: value for name, value in row.items() if value is not None}
            page = msgspec.convert(known, KeptPage, strict=False)
            other = found.get(page.request)
            if other is None or (page.attempt, page.at) >= (other.attempt, other.at):
                found[page.request] = page
    return found


def pages_of_requests(run: Run, urls: Mapping[int, str]) -> dict[int, tuple[str, int]]:
    """Return file and number of the last kept page of a run's requests, by their IDs.

    ``urls``: addresses by ID; a restarted run counts its requests from 1 again. May raise
    ``DatasetError``.
    """
    dataset = dataset_of_run(run, Kind.PAGES)
    found: dict[int, tuple[str, int]] = {}
    if dataset is None or not urls:
        return found
    with open_reader(dataset, [run.pk]) as reader:
        fields = ["request", "attempt", "url", "warc", "record"]
        for row in sorted(_rows_of(reader, urls, fields), key=lambda row: row["attempt"]):
            if row["url"].startswith(urls[row["request"]]):
                found[row["request"]] = (row["warc"], row["record"])
    return found


def _rows_of(
    reader: ItemReader, requests: Collection[int], fields: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of these requests; in flat memory, however far their IDs are apart."""
    if "request" not in reader.fields:
        return
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(sorted(requests), pa.int64())
    span = (
        ItemFilter("request", FilterOp.AT_LEAST, min(requests)),
        ItemFilter("request", FilterOp.AT_MOST, max(requests)),
    )
    for batch in reader.batches(ItemQuery(filters=span), fields=fields):
        yield from batch.filter(pc.is_in(batch.column("request"), wanted)).to_pylist()


def read_member(
    project_id: int, page: KeptPage, offset: int, length: int, *, biz_dataset: int = 0
) -> bytes:
    """Return one gzip member of a page's file. Raises ``PageUnavailable``.

    The index is what an agent has sent: it must not lead to anything but pages of its run, or of
    the request group with this dataset of pages.
    """
    place = keys.biz_pages(project_id, biz_dataset) if biz_dataset else ""
    if not page.key.startswith(place or keys.pages(project_id, page.run)):
        raise PageUnavailable(f"{page.key[:200]!r} is no file of the run")
    if not (offset >= 0 and 0 < length <= MAX_RECORD_BYTES):
        raise PageUnavailable(f"a record of {length} bytes at {offset}")
    try:
        return b"".join(shared_objects().stream(page.key, offset, length))
    except ValueError as error:
        raise PageUnavailable(str(error)) from error
    except ObjectMissing as error:
        raise PageUnavailable("its file is deleted") from error
    except ObjectStoreError as error:
        raise PageUnavailable(str(error)) from error


def warc_files(run: Run) -> list[str]:
    """Return the keys of the files of a run that its index names. May raise ``DatasetError``."""
    dataset: Dataset | None = dataset_of_run(run, Kind.PAGES)
    if dataset is None:
        return []
    place = keys.pages(dataset.project_id, run.pk)
    with open_reader(dataset, [run.pk]) as reader:
        found = {
            key
            for batch in reader.batches(ItemQuery(), fields=["key"])
            for key in batch.column(0).to_pylist()
        }
    return sorted(key for key in found if key and key.startswith(place))


def warc_chunks(files: list[str]) -> Iterator[bytes]:
    """Yield the content of files one after another, which is one WARC file."""
    for key in files:
        yield from shared_objects().stream(key)
