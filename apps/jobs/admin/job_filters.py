"""Filters of the list of jobs."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import DropdownFilter

from apps.jobs.models import Job
from apps.projects.models import Image

_MOST_TAGS = 500
_MOST_IMAGES = 200
_NONE = "none"


class TagFilter(DropdownFilter):
    """Filter by tag; offers the tags of visible jobs."""

    title = _("tag")
    parameter_name = "tag"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the tags of visible jobs, in one query."""
        rows = Job.objects.visible_to(request.user).exclude(tags=[]).values_list("tags", flat=True)
        tags = sorted({str(tag) for row in rows for tag in row})
        return [(tag, tag) for tag in tags[:_MOST_TAGS]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the jobs with the tag."""
        tag = self.value()
        return queryset if not tag else queryset.tagged(tag)  # type: ignore[attr-defined]


class JobImageFilter(DropdownFilter):
    """Filter by image."""

    title = _("image")
    parameter_name = "image"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the images of visible jobs, in one query."""
        used = Job.objects.visible_to(request.user).filter(image__isnull=False)
        images = Image.objects.filter(pk__in=used.values("image")).order_by("-id")[:_MOST_IMAGES]
        return [(_NONE, str(_("none"))), *((str(image.pk), image.reference) for image in images)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the jobs with the image; no jobs for an invalid ID."""
        value = self.value()
        if not value:
            return queryset
        if value == _NONE:
            return queryset.filter(image__isnull=True)
        known = value.isascii() and value.isdigit() and len(value) <= 18
        return queryset.filter(image=int(value)) if known else queryset.none()
