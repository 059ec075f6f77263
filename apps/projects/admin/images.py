"""Admin of images: built images and images of registries, with the number of their jobs."""

from __future__ import annotations

from typing import Any, Final, cast

from django.contrib import admin
from django.db.models import Count, Model, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import FieldTextFilter

from apps.access.admin.base import ProjectScopedAdmin
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.read_only import ReadOnly
from apps.projects.models import Image

SHOWN_DIGITS: Final = 12
SHOWN_SPIDERS: Final = 500


@admin.register(Image)
class ImageAdmin(ReadOnly, ProjectScopedAdmin):
    """Read-only admin of the images that jobs can use."""

    list_display = (
        "image_reference",
        "project",
        "source",
        "size",
        "short_digest",
        "short_commit",
        "used",
        "created_at",
        "removed_at",
    )
    list_select_related = ("project", "build")
    list_filter = (("project", VisibleRelatedFilter), "source", ("tag", FieldTextFilter))
    list_filter_submit = True
    search_fields = ("name", "tag", "digest", "=commit")
    list_per_page = 50
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("project", "source"),
                    "image_reference",
                    "digest",
                    ("size", "used"),
                    ("commit", "build_link"),
                    ("created_at", "removed_at"),
                    "labels_text",
                )
            },
        ),
    )
    readonly_fields = ("image_reference", "size", "used", "build_link", "labels_text")

    change_form_outer_after_template = "admin/projects/image/spiders.html"

    class Media:
        css = {"all": ["dashboard/dashboard.css", "projects/projects.css"]}

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the image with its spiders."""
        image = cast("Image | None", self.get_object(request, object_id))
        extra = {**(extra_context or {}), **spiders_context(image)}
        return cast(HttpResponse, super().change_view(request, object_id, form_url, extra))

    @admin.display(description=_("image"), ordering="name")
    def image_reference(self, image: Image) -> str:
        """Reference of the image, ``name:tag``."""
        return image.reference

    @admin.display(description=_("size"), ordering="size_bytes")
    def size(self, image: Image) -> str:
        return filesizeformat(image.size_bytes) if image.size_bytes else "–"

    @admin.display(description=_("digest"))
    def short_digest(self, image: Image) -> SafeString:
        shown = image.digest.removeprefix("sha256:")[:SHOWN_DIGITS]
        return format_html('<code title="{}">{}</code>', image.digest, shown)

    @admin.display(description=_("commit"))
    def short_commit(self, image: Image) -> SafeString | str:
        if not image.commit:
            return "–"
        return format_html('<code title="{}">{}</code>', image.commit, image.commit[:SHOWN_DIGITS])

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        """Annotate images with the number of jobs."""
        return with_jobs(super().get_queryset(request))

    @admin.display(description=_("used by jobs"), ordering="job_count")
    def used(self, image: Any) -> int:
        """Number of jobs that use the image."""
        return int(image.job_count)

    @admin.display(description=_("build"))
    def build_link(self, image: Image) -> SafeString | str:
        """Link to the build of the image."""
        if image.build_id is None:
            return "–"
        address = reverse("admin:projects_build_change", args=[image.build_id])
        return format_html('<a class="cy-strong" href="{}">{}</a>', address, image.build)

    @admin.display(description=_("labels"))
    def labels_text(self, image: Image) -> SafeString | str:
        """Labels, one per line."""
        lines = "\n".join(f"{name}={value}" for name, value in sorted(image.labels.items()))
        return format_html('<pre class="cy-code">{}</pre>', lines) if lines else "–"


def spiders_context(image: Image | None) -> dict[str, Any]:
    """Return the context of the part of a page that lists the spiders of an image."""
    described = None if image is None else getattr(image, "description", None)
    if described is None:
        return {"description": None}
    return {
        "description": described,
        "spiders": described.spiders[:SHOWN_SPIDERS],
        "more_spiders": max(0, len(described.spiders) - SHOWN_SPIDERS),
    }


def with_jobs(images: QuerySet[Model]) -> QuerySet[Model]:
    """Annotate ``job_count`` through the reverse relation: this app must not import apps.jobs."""
    for relation in Image._meta.get_fields(include_hidden=True):
        field: Any = getattr(relation, "field", None)
        if field is None or field.model._meta.label_lower != "jobs.job":
            continue
        chosen = field.model._default_manager.filter(**{field.name: OuterRef("pk")})
        counted = chosen.order_by().values(field.name).annotate(count=Count("pk")).values("count")
        counting: Any = Coalesce(Subquery(counted), 0)
        break
    else:
        counting = Value(0)
    return cast("QuerySet[Model]", images.annotate(job_count=counting))
