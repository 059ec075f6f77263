"""Lists of items: by pages of ids, so that none of them counts what it does not show."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from django import forms
from django.db.models import Sum
from django.http import HttpRequest

from apps.projects.admin.project_choice import ProjectChoice, number_in
from apps.routing.admin.item_forms import DeadFilter, FindForm, ItemFilter, ParkedFilter
from apps.routing.admin.overview import oldest_parked
from apps.routing.admin.words import REASONS, why
from apps.routing.models import RoutedItem, Tally
from apps.routing.queries import find_by_value, list_items
from apps.routing.querysets import RoutedItemQuerySet
from apps.routing.states import TONES, ItemState

PER_PAGE: Final = 50
MOST_FOUND: Final = 100
MOST_NAMES: Final = 500
# Why an item may have ended without success.
_ENDS: Final = (
    "no_rule",
    "retry_limits",
    "no_failback",
    "routing_limits",
    "overflow",
    "no_result",
    "refused",
    "poison",
    "cancelled",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One item of a list."""

    item: RoutedItem
    state: str
    tone: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Lot:
    """What is parked for one outbound."""

    outbound: str
    count: int
    oldest: RoutedItem | None
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of a list."""

    kind: str
    template: str
    form: forms.Form
    rows: list[Row] = field(default_factory=list)
    # The address of the page after this one, without its path; "" is the last.
    older: str = ""
    # The same of the first page; "" is this one.
    first: str = ""
    inbounds: list[str] = field(default_factory=list)
    outbounds: list[str] = field(default_factory=list)
    reasons: list[tuple[str, str]] = field(default_factory=list)
    lots: list[Lot] = field(default_factory=list)
    # Of a search: whether one was made, and whether there may be more.
    asked: bool = True
    complete: bool = True


Make = Callable[[HttpRequest, ProjectChoice], Listed]


def items(request: HttpRequest, choice: ProjectChoice) -> Listed:
    """All items of the project, by what the form says."""
    form = ItemFilter(request.GET)
    rows = RoutedItem.objects.filter(project=choice.project)
    wanted = _given(form)
    listed = list_items(rows, **wanted) if form.is_valid() else rows.none()
    inbounds, outbounds = _names(choice)
    return _page(request, "items", form, listed, inbounds=inbounds, outbounds=outbounds)


def dead_letters(request: HttpRequest, choice: ProjectChoice) -> Listed:
    """Items that ended without success, and for which no other stands."""
    form = DeadFilter(request.GET)
    rows = RoutedItem.objects.filter(project=choice.project).dead_letters()
    listed = rows.filter(**_given(form)) if form.is_valid() else rows.none()
    return _page(
        request,
        "dead",
        form,
        listed.defer("item", "steps").order_by("-id"),
        outbounds=_names(choice)[1],
        reasons=[(word, str(REASONS[word])) for word in _ENDS],
    )


def parked(request: HttpRequest, choice: ProjectChoice) -> Listed:
    """Items that wait for their outbound, those that wait longest first."""
    form = ParkedFilter(request.GET)
    rows = RoutedItem.objects.filter(project=choice.project, state=ItemState.PARKED)
    listed = rows.filter(**_given(form)) if form.is_valid() else rows.none()
    lots = _lots(choice)
    return _page(
        request,
        "parked",
        form,
        listed.defer("item", "steps").order_by("id"),
        outbounds=[lot.outbound for lot in lots],
        lots=lots,
        rising=True,
    )


def found(request: HttpRequest, choice: ProjectChoice) -> Listed:
    """The items that hold a value."""
    form = FindForm(request.GET)
    value = form.cleaned_data["value"] if form.is_valid() else ""
    if not value:
        return Listed("found", "admin/routing/items.html", form, asked=False)
    known = RoutedItem.objects.filter(project=choice.project).defer("item", "steps")
    answer = find_by_value(
        known,
        project=choice.project.pk,
        value=value,
        key=form.cleaned_data["key"],
        limit=MOST_FOUND,
    )
    rows = [_row(each) for each in answer.items]
    return Listed("found", "admin/routing/items.html", form, rows, complete=answer.complete)


def by_uuid(choice: ProjectChoice, text: str) -> RoutedItem | None:
    """The item of this task_uuid, if it is one and the project has it."""
    try:
        wanted = uuid.UUID(text.strip())
    except ValueError:
        return None
    return RoutedItem.objects.filter(project=choice.project, task_uuid=wanted).first()


def _given(form: forms.Form) -> dict[str, Any]:
    if not form.is_valid():
        return {}
    return {name: value for name, value in form.cleaned_data.items() if value}


def _page(
    request: HttpRequest,
    kind: str,
    form: forms.Form,
    rows: RoutedItemQuerySet[RoutedItem],
    *,
    rising: bool = False,
    **more: Any,
) -> Listed:
    """So many rows from the id ``?from=`` on."""
    begin = number_in(request.GET.get("from", ""))
    if begin is not None:
        rows = rows.filter(id__gt=begin) if rising else rows.filter(id__lt=begin)
    shown = list(rows[: PER_PAGE + 1])
    older = first = ""
    if len(shown) > PER_PAGE:
        query = request.GET.copy()
        query["from"] = str(shown[PER_PAGE - 1].pk)
        older = query.urlencode()
    if begin is not None:
        query = request.GET.copy()
        del query["from"]
        first = query.urlencode()
    return Listed(
        kind,
        "admin/routing/items.html",
        form,
        [_row(each) for each in shown[:PER_PAGE]],
        older=older,
        first=first,
        **more,
    )


def _row(item: RoutedItem) -> Row:
    state = ItemState(item.state)
    return Row(item, str(state.label), TONES[state], *why(item.reason, item.detail))


def _names(choice: ProjectChoice) -> tuple[list[str], list[str]]:
    """The inbounds and outbounds that items came by, for what a form proposes."""
    pairs = (
        Tally.objects.filter(project=choice.project)
        .order_by()
        .values_list("inbound", "outbound")
        .distinct()[:MOST_NAMES]
    )
    found = list(pairs)
    return (
        sorted({inbound for inbound, _outbound in found if inbound}),
        sorted({outbound for _inbound, outbound in found if outbound}),
    )


def _lots(choice: ProjectChoice) -> list[Lot]:
    """What is parked for each outbound, by counters; the oldest by the index of parked items."""
    counts = (
        Tally.objects.filter(project=choice.project, what=ItemState.PARKED)
        .values_list("outbound")
        .annotate(total=Sum("amount"))
        .filter(total__gt=0)
        .order_by("-total")
    )
    totals = dict(counts[:MOST_NAMES])
    oldest = oldest_parked(choice.project.pk, list(totals))
    return [
        Lot(outbound, total, first, *(why(first.reason, first.detail) if first else ("", "")))
        for outbound, total in totals.items()
        for first in [oldest.get(outbound)]
    ]
