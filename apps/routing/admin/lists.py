"""Lists of items with keyset pagination by ID, which needs no COUNT over the whole ledger."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from django import forms
from django.db.models import Sum
from django.http import HttpRequest

from apps.access.admin.lists import page_links
from apps.projects.admin.project_choice import ProjectChoice, number_in
from apps.routing.admin.item_forms import DeadFilter, FindForm, ItemFilter, ParkedFilter
from apps.routing.admin.item_texts import REASONS, why
from apps.routing.admin.overview import oldest_parked
from apps.routing.models import CounterChange, RoutedItem
from apps.routing.queries import find_by_value, list_items
from apps.routing.querysets import RoutedItemQuerySet
from apps.routing.states import TONES, ItemState

PER_PAGE: Final = 50
MOST_FOUND: Final = 100
MOST_NAMES: Final = 500
# Reasons with which an item can end without success.
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
    """Row of a list: an item with its translated state and reason."""

    item: RoutedItem
    state: str
    tone: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class ParkedGroup:
    """Number and oldest of the items that are parked for one outbound."""

    outbound: str
    count: int
    oldest: RoutedItem | None
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Page of a list, with its filter form."""

    kind: str
    template: str
    form: forms.Form
    rows: list[Row] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)
    inbounds: list[str] = field(default_factory=list)
    outbounds: list[str] = field(default_factory=list)
    reasons: list[tuple[str, str]] = field(default_factory=list)
    groups: list[ParkedGroup] = field(default_factory=list)
    # Only for a search: whether one was made, and whether all matches are listed.
    asked: bool = True
    complete: bool = True


Make = Callable[[HttpRequest, ProjectChoice], ItemPage]


def items(request: HttpRequest, choice: ProjectChoice) -> ItemPage:
    """Return a page of the project's items that match the filter."""
    form = ItemFilter(request.GET)
    rows = RoutedItem.objects.filter(project=choice.project)
    wanted = _given(form)
    listed = list_items(rows, **wanted) if form.is_valid() else rows.none()
    inbounds, outbounds = _names(choice)
    return _page(request, "items", form, listed, inbounds=inbounds, outbounds=outbounds)


def dead_letters(request: HttpRequest, choice: ProjectChoice) -> ItemPage:
    """Return a page of the items that ended without success and were not resubmitted."""
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


def parked(request: HttpRequest, choice: ProjectChoice) -> ItemPage:
    """Return a page of the parked items, oldest first."""
    form = ParkedFilter(request.GET)
    rows = RoutedItem.objects.filter(project=choice.project, state=ItemState.PARKED)
    listed = rows.filter(**_given(form)) if form.is_valid() else rows.none()
    groups = _parked_groups(choice)
    return _page(
        request,
        "parked",
        form,
        listed.defer("item", "steps").order_by("id"),
        outbounds=[group.outbound for group in groups],
        groups=groups,
        rising=True,
    )


def search_results(request: HttpRequest, choice: ProjectChoice) -> ItemPage:
    """Return the newest items that contain a value, at most ``MOST_FOUND``."""
    form = FindForm(request.GET)
    value = form.cleaned_data["value"] if form.is_valid() else ""
    if not value:
        return ItemPage("found", "admin/routing/items.html", form, asked=False)
    known = RoutedItem.objects.filter(project=choice.project).defer("item", "steps")
    answer = find_by_value(
        known,
        project=choice.project.pk,
        value=value,
        key=form.cleaned_data["key"],
        limit=MOST_FOUND,
    )
    rows = [_row(entry) for entry in answer.items]
    return ItemPage("found", "admin/routing/items.html", form, rows, complete=answer.complete)


def by_uuid(choice: ProjectChoice, text: str) -> RoutedItem | None:
    """Return the project's item with this task_uuid; None if ``text`` is no UUID or unknown."""
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
) -> ItemPage:
    """Return ``PER_PAGE`` rows after the ID ``?from=``; ``rising``: IDs in ascending order."""
    begin = number_in(request.GET.get("from", ""))
    if begin is not None:
        rows = rows.filter(id__gt=begin) if rising else rows.filter(id__lt=begin)
    shown = list(rows[: PER_PAGE + 1])
    following = shown[PER_PAGE - 1].pk if len(shown) > PER_PAGE else None
    return ItemPage(
        kind,
        "admin/routing/items.html",
        form,
        [_row(entry) for entry in shown[:PER_PAGE]],
        pages=page_links(request, "from", following),
        **more,
    )


def _row(item: RoutedItem) -> Row:
    state = ItemState(item.state)
    return Row(item, str(state.label), TONES[state], *why(item.reason, item.detail))


def _names(choice: ProjectChoice) -> tuple[list[str], list[str]]:
    """Return the known names of inbounds and outbounds as suggestions for the filter form."""
    pairs = (
        CounterChange.objects.filter(project=choice.project)
        .order_by()
        .values_list("inbound", "outbound")
        .distinct()[:MOST_NAMES]
    )
    names = list(pairs)
    return (
        sorted({inbound for inbound, _outbound in names if inbound}),
        sorted({outbound for _inbound, outbound in names if outbound}),
    )


def _parked_groups(choice: ProjectChoice) -> list[ParkedGroup]:
    """Return the parked items by outbound.

    Numbers come from the counters, the oldest items from the index of parked items, so that no
    query counts rows of the ledger.
    """
    counts = (
        CounterChange.objects.filter(project=choice.project, what=ItemState.PARKED)
        .values_list("outbound")
        .annotate(total=Sum("amount"))
        .filter(total__gt=0)
        .order_by("-total")
    )
    totals = dict(counts[:MOST_NAMES])
    oldest = oldest_parked(choice.project.pk, list(totals))
    return [
        ParkedGroup(
            outbound, total, first, *(why(first.reason, first.detail) if first else ("", ""))
        )
        for outbound, total in totals.items()
        for first in [oldest.get(outbound)]
    ]
