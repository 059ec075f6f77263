"""Ended requests of runs, for pages, REST and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from apps.datasets.engine.filters import FilterOp, ItemFilter
from apps.datasets.engine.item_types import ItemQuery
from apps.datasets.engine.reader import TIMEOUT_SECONDS, ItemReader
from apps.datasets.models import Dataset, DatasetRun
from apps.datasets.queries.items import dataset_of_run, open_reader
from apps.datasets.states import Kind
from apps.jobs.models import Run
from apps.queuestats.queries import RunTotals, run_totals
from apps.runtime.services.objects import shared_objects
from yardkit.items.columns import Columns
from yardkit.items.requests import RequestOutcome

# What makes a request again. It holds cookies and tokens: never shown, never searched.
SAVED: Final = "request"
NOT_SUCCEEDED: Final = ItemFilter("outcome", FilterOp.NOT_EQUALS, RequestOutcome.SUCCESS.value)
MOST_GROUPS: Final = 100


@dataclass(frozen=True, slots=True)
class RequestAccounting:
    """ended = stored + in flight + lost. ``lost``: ended before their row was sent: SIGKILL.

    ``deleted``: by the retention, of those stored. ``filtered``: duplicates that the scheduler has
    dropped; they were never requests of the run.
    """

    ended: int = 0
    stored: int = 0
    lost: int = 0
    deleted: int = 0
    filtered: int = 0

    @property
    def in_flight(self) -> int:
        """Requests that have ended and whose rows the writer has not stored yet."""
        return self.ended - self.stored - self.lost

    def as_dict(self) -> dict[str, int]:
        """Return the values for REST and pages."""
        return {
            "ended": self.ended,
            "stored": self.stored,
            "in_flight": self.in_flight,
            "lost": self.lost,
            "deleted": self.deleted,
            "filtered": self.filtered,
        }


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures with one cause; ``error``, ``traceback`` and ``url`` are those of one of them."""

    group: str
    count: int
    kind: str
    error: str
    traceback: str
    url: str


def data_of_requests(run: Run) -> DatasetRun | None:
    """Return the row of a run's requests, None before its first one."""
    return DatasetRun.objects.filter(
        dataset__kind=Kind.REQUESTS, run_number=run.pk, dataset__project=run.job.project_id
    ).first()


def request_accounting(
    run: Run, row: DatasetRun | None, totals: RunTotals | None = None
) -> RequestAccounting:
    """Return the accounting of a run's ended requests; one query without ``totals``.

    Rows are sent before the counters that count them: more may be stored than reported.
    """
    totals = totals or run_totals([run.owner])[run.owner]
    stored = 0 if row is None else row.stored
    # A run of an image without rows of requests has none of them to account for.
    ended = max(totals.done, stored) if row is not None else 0
    is_settled = row is not None and row.settled_at is not None
    return RequestAccounting(
        ended=ended,
        stored=stored,
        lost=ended - stored if is_settled else 0,
        deleted=0 if row is None else row.deleted_items,
        filtered=totals.filtered,
    )


def open_requests(
    run: Run, *, timeout_seconds: float = TIMEOUT_SECONDS, with_saved: bool = False
) -> ItemReader:
    """Return a reader of a run's requests; of none if the run has none.

    ``with_saved``: with what makes them again.
    """
    dataset = dataset_of_run(run, Kind.REQUESTS)
    if dataset is None:
        return ItemReader(shared_objects(), [], Columns())
    hidden = () if with_saved else (SAVED,)
    return open_reader(dataset, [run.pk], timeout_seconds=timeout_seconds, hidden=hidden)


def shown_fields(dataset: Dataset | None) -> list[str]:
    """Return the fields of requests in order, without the hidden one."""
    fields = [] if dataset is None else Columns(dataset.columns).fields
    return [field for field in fields if field != SAVED]


def shown_request(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request without its hidden field. ``saved``: whether it can be made again."""
    shown = {name: value for name, value in data.items() if name != SAVED}
    return shown | ({"saved": True} if SAVED in data else {})


def failure_groups(reader: ItemReader, query: ItemQuery | None = None) -> list[FailureGroup]:
    """Return the groups of failures among the requests of a query, the largest first."""
    if "group" not in reader.fields:
        return []
    query = query or ItemQuery()
    query = msgspec.structs.replace(query, filters=(*query.filters, NOT_SUCCEEDED), sort="")
    samples = ("kind", "error", "traceback", "url")
    known = [field for field in samples if field in reader.fields]
    found = reader.groups("group", known, query, most=MOST_GROUPS)
    return [
        FailureGroup(
            group, count, **{**dict.fromkeys(samples, ""), **dict(zip(known, values, strict=True))}
        )
        for group, count, *values in found
    ]
