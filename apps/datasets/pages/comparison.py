"""Page that compares the items of two runs by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from apps.datasets.engine.errors import DatasetError
from apps.datasets.engine.item_types import ComparedItem
from apps.datasets.models import Dataset, DatasetRun
from apps.datasets.queries.items import dataset_of_run, open_reader, previous_run
from apps.datasets.texts import text_of
from apps.jobs.models import Run

KINDS: Final = ("changed", "added", "removed")
_RUNS: Final = 100
_CELL_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of an item in both runs."""

    field: str
    old: str
    new: str
    is_changed: bool


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """An item with its differing fields, or with all of them if only one run has it."""

    key: str
    differences: list[Difference]


def compare_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Compare a run with another one, the previous one by default."""
    run = get_object_or_404(
        Run.objects.visible_to(request.user).select_related("job__project"), pk=pk
    )
    dataset = dataset_of_run(run)
    others = DatasetRun.objects.filter(dataset=dataset, run_number__gt=0, deleted_at=None)
    numbers = list(
        others.exclude(run_number=pk)
        .order_by("-run_number")
        .values_list("run_number", flat=True)[:_RUNS]
    )
    asked = request.GET.get("with", "")
    other = int(asked) if asked.isdigit() and int(asked) in numbers else _previous(dataset, pk)
    kind = request.GET.get("kind", "")
    kind = kind if kind in KINDS else KINDS[0]
    context: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": _("Comparison of %(run)s") % {"run": run},
        "run": run,
        "dataset": dataset,
        "other": other,
        "others": numbers,
        "kind": kind,
        "kinds": KINDS,
    }
    if dataset is not None and other is not None and dataset.key_fields:
        try:
            with open_reader(dataset, [other, pk]) as reader:
                context["counts"] = reader.compare(other, pk)
                items, following = reader.compared(
                    other, pk, kind, after=request.GET.get("after", "")
                )
                context |= {"rows": [_row(item) for item in items], "next": following}
        except DatasetError as error:
            context["problem"] = text_of(error)
    return TemplateResponse(request, "datasets/compare.html", context)


def _previous(dataset: Dataset | None, pk: int) -> int | None:
    return None if dataset is None else previous_run(dataset, pk)


def _row(item: ComparedItem) -> ComparedRow:
    old, new = item.old or {}, item.new or {}
    changed = set(item.fields)
    both = item.old is not None and item.new is not None
    names = [name for name in dict.fromkeys([*old, *new]) if name in changed or not both]
    differences = [
        Difference(name, _text(old.get(name)), _text(new.get(name)), both) for name in names
    ]
    return ComparedRow(", ".join(item.key), differences)


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _CELL_CHARACTERS else f"{text[:_CELL_CHARACTERS]}…"
