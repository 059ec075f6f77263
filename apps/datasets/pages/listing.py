"""Lists of datasets: all that a person may see, and those of a project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.contrib import admin
from django.core.paginator import Page, Paginator
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from apps.datasets.models import Dataset, DatasetRun, Delivery
from apps.datasets.states import DeliveryState
from apps.projects.models import Project

PER_PAGE: Final = 50


@dataclass(slots=True)
class Copies:
    """Deliveries of a dataset. ``behind_since``: of the one that is behind the longest."""

    number: int = 0
    failing: int = 0
    failed: int = 0
    behind_since: datetime | None = None


def dataset_list(request: HttpRequest) -> HttpResponse:
    """Page of all datasets, by project and name."""
    rows = Dataset.objects.visible_to(request.user).select_related("project")
    return _list(request, rows.order_by("project__name", "name"), title=_("Data"))


def project_datasets(request: HttpRequest, pk: int) -> HttpResponse:
    """Page of a project's datasets."""
    project = get_object_or_404(Project.objects.visible_to(request.user), pk=pk)
    rows = Dataset.objects.of_items().filter(project=project).select_related("project")
    title = _("Data of %(name)s") % {"name": project.name}
    return _list(request, rows.order_by("name"), title=title, project=project)


def _list(request: HttpRequest, rows: QuerySet[Dataset], **more: Any) -> HttpResponse:
    page: Page[Dataset] = Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))
    datasets = list(page)
    newest = DatasetRun.objects.filter(dataset=OuterRef("dataset")).order_by("-run_number")
    last = {
        row.dataset_id: row
        for row in DatasetRun.objects.filter(
            dataset__in=datasets, pk=Subquery(newest.values("pk")[:1])
        )
    }
    copies = _copies(datasets)
    context = admin.site.each_context(request)
    context |= {
        "page": page,
        "rows": [(dataset, last.get(dataset.pk), copies.get(dataset.pk)) for dataset in datasets],
        **more,
    }
    return TemplateResponse(request, "datasets/list.html", context)


def _copies(datasets: Sequence[Dataset]) -> dict[int, Copies]:
    """Return what stands about deliveries beside a dataset; one query."""
    found: dict[int, Copies] = {}
    for row in Delivery.objects.filter(dataset__in=datasets):
        known = found.setdefault(row.dataset_id, Copies())
        known.number += 1
        known.failing += row.state == DeliveryState.FAILING
        known.failed += row.failed
        since = None if row.state == DeliveryState.PAUSED else row.behind_since
        known.behind_since = min(filter(None, (known.behind_since, since)), default=None)
    return found
