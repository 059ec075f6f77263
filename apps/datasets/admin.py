"""Links from the admin's menus to the pages of datasets."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.read_only import ReadOnly
from apps.datasets.models import Dataset


@admin.register(Dataset)
class DatasetAdmin(ReadOnly, ProjectScopedAdmin):
    """Link to the page of datasets, shown to people with permission to view them."""

    def changelist_view(self, request: HttpRequest, /, *args: Any, **kwargs: Any) -> HttpResponse:
        """Redirect to the list of datasets."""
        return HttpResponseRedirect(reverse("datasets:list"))

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Redirect to the page of the dataset."""
        if object_id is None or not object_id.isdigit():
            return HttpResponseRedirect(reverse("datasets:list"))
        return HttpResponseRedirect(reverse("datasets:dataset", args=[object_id]))
