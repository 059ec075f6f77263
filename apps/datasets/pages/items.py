"""Pages that show items: of one run, of a dataset over all runs, of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from apps.access.models import User
from apps.access.services import has_role
from apps.access.states import Role
from apps.datasets.engine.errors import BadItemQuery, DatasetError
from apps.datasets.engine.exports import FORMATS
from apps.datasets.engine.filters import FilterOp, ItemFilter
from apps.datasets.engine.item_types import FieldValues, ItemQuery
from apps.datasets.engine.reader import ItemReader
from apps.datasets.errors import DatasetsError
from apps.datasets.models import Dataset, DatasetRun
from apps.datasets.pages.item_form import Asked
from apps.datasets.pages.item_rows import ItemRow, rows_of
from apps.datasets.queries.items import (
    FieldSummary,
    dataset_of_job,
    dataset_of_run,
    open_reader,
    previous_run,
    run_accounting,
    summaries,
)
from apps.datasets.services.changes import delete_run_data, pin_run
from apps.datasets.texts import check_title, shown_checks, text_of
from apps.jobs.models import Job, Run
from yardkit.items.columns import Columns

# Number of default columns of the table.
SHOWN_FIELDS: Final = 8
# A page waits for its reader; exports have more time.
TIMEOUT_SECONDS: Final = 20.0
# Items beyond which those that match a filter are not counted: the page would wait for it.
_MOST_COUNTED: Final = 1_000_000
# Runs whose fields stand beside a dataset's items.
_RUNS: Final = 50
_VALUE_CHARACTERS: Final = 200
_HISTOGRAM: Final = (600, 120)


@dataclass(frozen=True, slots=True)
class TopValue:
    """A frequent value; ``address``: parameters of the items that have it, "" if too long."""

    text: str
    count: int
    share: str
    address: str


@dataclass(frozen=True, slots=True)
class Bin:
    """Bar of a histogram; coordinates as locale-independent SVG numbers."""

    low: float
    high: float
    count: int
    x: str
    wide: str
    y: str
    tall: str


@dataclass(frozen=True, slots=True)
class Heading:
    """Head of a column; ``address``: parameters that sort by it, the other way if it is sorted."""

    field: str
    address: str
    arrow: str


@dataclass(slots=True)
class ItemsView:
    """What a page of items shows. ``total``: items of the list, None if they are not counted."""

    dataset: Dataset | None
    asked: Asked
    headings: list[Heading] = field(default_factory=list)
    rows: list[ItemRow] = field(default_factory=list)
    summaries: list[tuple[FieldSummary, str]] = field(default_factory=list)
    values: FieldValues | None = None
    values_of: str = ""
    top: list[TopValue] = field(default_factory=list)
    bins: list[Bin] = field(default_factory=list)
    problem: str = ""
    total: int | None = None
    all: int = 0
    next: str = ""


def run_items(request: HttpRequest, pk: int) -> HttpResponse:
    """Page of a run's items."""
    run = _run(request, pk)
    context = _context(request, run, dataset_of_run(run))
    if (moved := _moved(request, context)) is not None:
        return moved
    context |= admin.site.each_context(request)
    context["title"] = _("Data of %(run)s") % {"run": run}
    return TemplateResponse(request, "datasets/run.html", context)


def run_items_live(request: HttpRequest, pk: int) -> HttpResponse:
    """Live part of the page of a run's items."""
    run = _run(request, pk)
    context = _context(request, run, dataset_of_run(run))
    return TemplateResponse(request, "datasets/run_live.html", context)


def dataset_items(request: HttpRequest, pk: int) -> HttpResponse:
    """Page of a dataset's items over all runs, with its runs."""
    visible = Dataset.objects.visible_to(request.user).select_related("project")
    dataset = get_object_or_404(visible, pk=pk)
    context = _dataset_context(request, dataset)
    if (moved := _moved(request, context)) is not None:
        return moved
    context |= admin.site.each_context(request)
    context["title"] = _("Data of %(name)s") % {"name": dataset.name}
    return TemplateResponse(request, "datasets/dataset.html", context)


def job_items(request: HttpRequest, pk: int) -> HttpResponse:
    """Page of a job's items over all runs."""
    visible = Job.objects.visible_to(request.user).select_related("project")
    job = get_object_or_404(visible, pk=pk)
    context = _dataset_context(request, dataset_of_job(job))
    if (moved := _moved(request, context)) is not None:
        return moved
    context |= admin.site.each_context(request)
    context |= {"title": _("Data of %(name)s") % {"name": job.name}, "job": job}
    return TemplateResponse(request, "datasets/dataset.html", context)


@require_POST
def change_run_data(request: HttpRequest, pk: int, what: str) -> HttpResponse:
    """Pin or unpin the data of a run, which requires the role operator, or delete it: editor."""
    run = _run(request, pk)
    row = get_object_or_404(DatasetRun, dataset=dataset_of_run(run), run_number=run.pk)
    least = Role.EDITOR if what == "delete" else Role.OPERATOR
    if not isinstance(request.user, User) or not has_role(request.user, run.job.project_id, least):
        raise PermissionDenied
    try:
        if what == "delete":
            delete_run_data(run=row, actor=request.user)
            messages.success(request, _("The data of this run is deleted within a minute."))
        else:
            pin_run(run=row, actor=request.user, pinned=what == "pin")
    except DatasetsError as error:
        messages.error(request, str(error))
    return HttpResponseRedirect(reverse("datasets:run", args=[pk]))


def _run(request: HttpRequest, pk: int) -> Run:
    run = Run.objects.visible_to(request.user).select_related("job__project").filter(pk=pk).first()
    if run is None:
        raise Http404(_("This run does not exist, or you do not have permission to see it."))
    return run


def _moved(request: HttpRequest, context: dict[str, Any]) -> HttpResponse | None:
    """Return a redirect to the address that a submitted form stands for."""
    parameters = context["view"].asked.address_to_redirect()
    if parameters is None:
        return None
    return HttpResponseRedirect(f"{request.path}?{parameters}" if parameters else request.path)


def _context(request: HttpRequest, run: Run, dataset: Dataset | None) -> dict[str, Any]:
    row = (
        None
        if dataset is None
        else DatasetRun.objects.filter(dataset=dataset, run_number=run.pk).first()
    )
    return {
        "run": run,
        "data": row,
        "dataset": dataset,
        "view": _view(request, dataset, run, [] if row is None else [row]),
        "items": run_accounting(run.pk),
        "checked": [
            {**found, "title": check_title(found["check"])}
            for found in shown_checks([] if row is None else row.checked)
        ],
        "previous": None if dataset is None else previous_run(dataset, run.pk),
        "rest": f"/api/v1/runs/{run.pk}/items",
        "formats": list(FORMATS),
        "fragment": f"{reverse('datasets:run-live', args=[run.pk])}?{request.GET.urlencode()}",
        "may_edit": dataset is not None and _has(request, dataset, Role.EDITOR),
        "may_pin": dataset is not None and _has(request, dataset, Role.OPERATOR),
    }


def _dataset_context(request: HttpRequest, dataset: Dataset | None) -> dict[str, Any]:
    runs = [] if dataset is None else list(dataset.runs.order_by("-run_number")[:_RUNS])
    return {
        "view": _view(request, dataset, None, runs),
        "dataset": dataset,
        "runs": [
            (run, [check_title(row["check"]) for row in run.checked if not row["ok"]])
            for run in runs
        ],
        "rest": "" if dataset is None else f"/api/v1/datasets/{dataset.pk}/items",
        "formats": list(FORMATS),
        "may_edit": dataset is not None and _has(request, dataset, Role.EDITOR),
    }


def _has(request: HttpRequest, dataset: Dataset, role: Role) -> bool:
    return has_role(request.user, dataset.project_id, role)


def _view(
    request: HttpRequest, dataset: Dataset | None, run: Run | None, runs: Sequence[DatasetRun]
) -> ItemsView:
    fields = [] if dataset is None else Columns(dataset.columns).fields
    has_key = dataset is not None and bool(dataset.key_fields) and run is None
    asked = Asked(request.GET, fields, has_key=has_key, newest=run is not None and run.is_active)
    view = ItemsView(dataset, asked, problem=asked.problem)
    view.summaries = [(summary, asked.changed(values=summary.field)) for summary in summaries(runs)]
    if dataset is None:
        return view
    shown = asked.shown or fields[:SHOWN_FIELDS]
    view.headings = [heading(name, asked) for name in shown]
    view.values_of = request.GET.get("values", "")
    if view.problem:
        return view
    try:
        wanted = None if run is None else [run.pk]
        with open_reader(dataset, wanted, timeout_seconds=TIMEOUT_SECONDS) as reader:
            _read(view, reader, dataset, shown)
    except BadItemQuery as error:
        view.problem = text_of(error)
    except DatasetError as error:
        view.problem = _("The items cannot be read at the moment: %(why)s") % {
            "why": text_of(error)
        }
    return view


def _read(view: ItemsView, reader: ItemReader, dataset: Dataset, shown: Sequence[str]) -> None:
    asked = view.asked
    query = asked.query()
    page = reader.page(query)
    items = list(reversed(page.items)) if query.newest else page.items
    view.rows = rows_of(items, shown, dataset)
    view.all = reader.count(ItemQuery())
    if not asked.is_narrowed:
        view.total = view.all
    elif view.all <= _MOST_COUNTED:
        view.total = reader.count(asked.selection())
    if page.next:
        following = asked.parameters.copy()
        following["after"] = page.next
        view.next = following.urlencode()
    if view.values_of:
        view.values = reader.values(view.values_of, asked.selection())
        view.top = _top(view.values, view.values_of, asked)
        view.bins = _bins(view.values)


def heading(name: str, asked: Asked) -> Heading:
    """Return the head of a column of a list."""
    if asked.sort == name:
        return Heading(name, asked.changed(sort=f"-{name}"), "↑")
    arrow = "↓" if asked.sort == f"-{name}" else ""
    return Heading(name, asked.changed(sort=name), arrow)


def _top(values: FieldValues, name: str, asked: Asked) -> list[TopValue]:
    return [
        TopValue(
            text,
            count,
            f"{count / values.count:.4f}" if values.count else "0",
            asked.with_filter(ItemFilter(name, FilterOp.EQUALS, text))
            if len(text) <= _VALUE_CHARACTERS
            else "",
        )
        for text, count in values.top
    ]


def _bins(values: FieldValues) -> list[Bin]:
    """Return the bars of a histogram, scaled to the highest one."""
    width, height = _HISTOGRAM
    top = max((count for _low, _high, count in values.bins), default=0) or 1
    step = width / max(1, len(values.bins))
    # A bin with few items stays visible.
    tall = [max(1.5, count / top * height) if count else 0.0 for _low, _high, count in values.bins]
    return [
        Bin(
            low,
            high,
            count,
            f"{place * step + 1:.2f}",
            f"{step - 2:.2f}",
            f"{height - tall[place]:.2f}",
            f"{tall[place]:.2f}",
        )
        for place, (low, high, count) in enumerate(values.bins)
    ]
