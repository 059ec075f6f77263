"""Pages that show items: of one run, and of a dataset over all runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from django import forms
from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import OuterRef, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from apps.datasets.engine.errors import BadItemQuery, DatasetError
from apps.datasets.engine.exports import FORMATS
from apps.datasets.engine.filters import FilterOp, ItemFilter
from apps.datasets.engine.item_types import FieldValues, Item, ItemQuery
from apps.datasets.models import Dataset, DatasetRun
from apps.datasets.queries.items import (
    FieldSummary,
    dataset_of_run,
    open_reader,
    previous_run,
    run_accounting,
    summaries,
)
from apps.jobs.models import Run
from yardkit.items.columns import Columns

PER_PAGE: Final = 50
# Columns of the table unless somebody chooses.
SHOWN_FIELDS: Final = 8
# A page waits for its reader; exports have more time.
TIMEOUT_SECONDS: Final = 20.0
_CELL_CHARACTERS: Final = 160
# Runs whose fields stand beside a dataset's items.
_RUNS: Final = 50
OPERATORS: Final = (
    (FilterOp.CONTAINS.value, gettext_lazy("contains")),
    (FilterOp.EQUALS.value, gettext_lazy("equals")),
    (FilterOp.NOT_EQUALS.value, gettext_lazy("is not")),
    (FilterOp.AT_LEAST.value, gettext_lazy("at least")),
    (FilterOp.AT_MOST.value, gettext_lazy("at most")),
    (FilterOp.PRESENT.value, gettext_lazy("has a value")),
    (FilterOp.MISSING.value, gettext_lazy("is missing")),
)


class ItemsForm(forms.Form):
    """Search, filter, order and columns of a list of items."""

    text = forms.CharField(
        label=gettext_lazy("Text"),
        required=False,
        max_length=200,
        widget=UnfoldAdminTextInputWidget({"type": "search"}),
    )
    field = forms.ChoiceField(
        label=gettext_lazy("Field"), required=False, widget=UnfoldAdminSelectWidget
    )
    op = forms.ChoiceField(
        label=gettext_lazy("Condition"),
        required=False,
        choices=OPERATORS,
        widget=UnfoldAdminSelectWidget,
    )
    value = forms.CharField(
        label=gettext_lazy("Value"),
        required=False,
        max_length=500,
        widget=UnfoldAdminTextInputWidget,
    )
    sort = forms.ChoiceField(
        label=gettext_lazy("Sort by"), required=False, widget=UnfoldAdminSelectWidget
    )
    show = forms.MultipleChoiceField(
        label=gettext_lazy("Columns"), required=False, widget=forms.CheckboxSelectMultiple
    )
    latest = forms.BooleanField(label=gettext_lazy("Latest of each key"), required=False)

    def __init__(self, data: Any, fields: Sequence[str], *, has_key: bool) -> None:
        super().__init__(data)
        names = [(name, name) for name in fields]
        self.fields["field"].choices = [("", "–"), *names]  # type: ignore[attr-defined]
        orders = [(name, f"{name} ↑") for name in fields]
        orders += [(f"-{name}", f"{name} ↓") for name in fields]
        self.fields["sort"].choices = [("", _("Order of storing")), *orders]  # type: ignore[attr-defined]
        self.fields["show"].choices = names  # type: ignore[attr-defined]
        if not has_key:
            del self.fields["latest"]

    def query(self, after: str) -> ItemQuery:
        """Return the query of valid input."""
        values = self.cleaned_data
        filters: tuple[ItemFilter, ...] = ()
        if values["field"]:
            op = FilterOp(values["op"] or FilterOp.CONTAINS)
            needs_value = op not in (FilterOp.PRESENT, FilterOp.MISSING)
            filters = (ItemFilter(values["field"], op, values["value"] if needs_value else None),)
        return ItemQuery(
            filters=filters,
            text=values["text"],
            sort=values["sort"],
            latest=values.get("latest", False),
            limit=PER_PAGE,
            after=after,
        )


@dataclass(frozen=True, slots=True)
class Cell:
    """Value of a field: its text, and the address if it is one."""

    text: str
    address: str = ""
    is_missing: bool = False


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One item of the table."""

    item: Item
    cells: list[Cell]
    json: str


@dataclass(slots=True)
class ItemsView:
    """What a page of items shows."""

    dataset: Dataset | None
    form: ItemsForm
    fields: list[str] = field(default_factory=list)
    rows: list[ItemRow] = field(default_factory=list)
    summaries: list[FieldSummary] = field(default_factory=list)
    values: FieldValues | None = None
    values_of: str = ""
    problem: str = ""
    next: str = ""
    export: str = ""


def run_items(request: HttpRequest, pk: int) -> HttpResponse:
    """Page of a run's items."""
    run = _run(request, pk)
    dataset = dataset_of_run(run)
    context = _context(request, run, dataset)
    context |= admin.site.each_context(request)
    context["title"] = _("Data of %(run)s") % {"run": run}
    return TemplateResponse(request, "datasets/run.html", context)


def run_items_live(request: HttpRequest, pk: int) -> HttpResponse:
    """Live part of the page of a run's items."""
    run = _run(request, pk)
    context = _context(request, run, dataset_of_run(run))
    return TemplateResponse(request, "datasets/items.html", context)


def dataset_items(request: HttpRequest, pk: int) -> HttpResponse:
    """Page of a dataset's items over all runs, with its runs."""
    dataset = get_object_or_404(
        Dataset.objects.visible_to(request.user).select_related("project"), pk=pk
    )
    runs = list(dataset.runs.order_by("-run_number")[:_RUNS])
    view = _view(request, dataset, None, runs)
    context = admin.site.each_context(request)
    context |= {
        "title": _("Data of %(name)s") % {"name": dataset.name},
        "view": view,
        "dataset": dataset,
        "runs": runs,
        "rest": f"/api/v1/datasets/{dataset.pk}/items",
        "formats": list(FORMATS),
    }
    return TemplateResponse(request, "datasets/dataset.html", context)


def dataset_list(request: HttpRequest) -> HttpResponse:
    """Page of all datasets, by project and name."""
    rows = Dataset.objects.visible_to(request.user).select_related("project")
    page = Paginator(rows.order_by("project__name", "name"), PER_PAGE).get_page(
        request.GET.get("page")
    )
    newest = DatasetRun.objects.filter(dataset=OuterRef("dataset")).order_by("-run_number")
    last = {
        row.dataset_id: row
        for row in DatasetRun.objects.filter(
            dataset__in=list(page), pk=Subquery(newest.values("pk")[:1])
        )
    }
    context = admin.site.each_context(request)
    context |= {
        "title": _("Data"),
        "page": page,
        "rows": [(dataset, last.get(dataset.pk)) for dataset in page],
    }
    return TemplateResponse(request, "datasets/list.html", context)


def _run(request: HttpRequest, pk: int) -> Run:
    run = Run.objects.visible_to(request.user).select_related("job__project").filter(pk=pk).first()
    if run is None:
        raise Http404(_("This run does not exist, or you do not have permission to see it."))
    return run


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
        "view": _view(request, dataset, run.pk, [] if row is None else [row]),
        "items": run_accounting(run.pk),
        "previous": None if dataset is None else previous_run(dataset, run.pk),
        "rest": f"/api/v1/runs/{run.pk}/items",
        "formats": list(FORMATS),
        "fragment": f"{reverse('datasets:run-live', args=[run.pk])}?{request.GET.urlencode()}",
    }


def _view(
    request: HttpRequest, dataset: Dataset | None, run: int | None, runs: Sequence[DatasetRun]
) -> ItemsView:
    fields = [] if dataset is None else Columns(dataset.columns).fields
    has_key = dataset is not None and bool(dataset.key_fields) and run is None
    form = ItemsForm(request.GET, fields, has_key=has_key)
    view = ItemsView(dataset, form, fields=fields[:SHOWN_FIELDS])
    view.summaries = summaries(runs)
    if dataset is None:
        return view
    if not form.is_valid():
        view.problem = _("This filter cannot be used.")
        return view
    view.fields = form.cleaned_data["show"] or view.fields
    query = form.query(request.GET.get("after", ""))
    view.values_of = request.GET.get("values", "")
    try:
        wanted = None if run is None else [run]
        with open_reader(dataset, wanted, timeout_seconds=TIMEOUT_SECONDS) as reader:
            page = reader.page(query)
            if view.values_of:
                view.values = reader.values(view.values_of, ItemQuery())
    except BadItemQuery as error:
        view.problem = str(error)
        return view
    except DatasetError as error:
        view.problem = _("The items cannot be read at the moment: %(why)s") % {"why": error}
        return view
    view.rows = [_row(item, view.fields) for item in page.items]
    if page.next:
        following = request.GET.copy()
        following["after"] = page.next
        view.next = following.urlencode()
    view.export = _export(query)
    return view


def _export(query: ItemQuery) -> str:
    """Return the parameters of REST for the same items."""
    found = [(("filter"), f"{one.field}:{one.op.value}:{one.value or ''}") for one in query.filters]
    if query.text:
        found.append(("text", query.text))
    if query.sort:
        found.append(("sort", query.sort))
    if query.latest:
        found.append(("latest", "1"))
    return urlencode(found)


def _row(item: Item, fields: Sequence[str]) -> ItemRow:
    data = item.data
    text = msgspec.json.format(item.json.encode(), indent=2).decode()
    return ItemRow(item, [_cell(data.get(name)) for name in fields], text)


def _cell(value: Any) -> Cell:
    if value is None:
        return Cell("", is_missing=True)
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    # Nothing but web addresses becomes a link: javascript: would run in this page.
    is_address = text.startswith(("http://", "https://")) and not any(map(str.isspace, text))
    shown = text if len(text) <= _CELL_CHARACTERS else f"{text[:_CELL_CHARACTERS]}…"
    return Cell(shown, text if is_address else "")
