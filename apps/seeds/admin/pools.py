"""Admin of resource pools: counts, import and export."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import StreamingHttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET
from unfold.decorators import display
from unfold.widgets import (
    UnfoldAdminFileFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
)

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.base import person_of, projects_of
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.states import Role
from apps.seeds.engine.resource_files import MAX_BYTES, FileFormat
from apps.seeds.errors import UnreadableResources
from apps.seeds.models import ResourcePool
from apps.seeds.services.resource_files import export_resources, import_resources

CSS = ["dashboard/dashboard.css", "jobs/jobs.css", "seeds/resources.css"]
COUNTS = ("at_hand", "leased", "cooling", "banned", "disabled")


class ImportForm(forms.Form):
    """Upload of resources as a file or as text. Errors do not repeat the input: it contains
    secrets.
    """

    file = forms.FileField(
        label=_("File"),
        required=False,
        widget=UnfoldAdminFileFieldWidget,
        help_text=_("CSV or JSON lines, at most 8 MiB and 20,000 resources."),
    )
    text = forms.CharField(
        label=_("Or its text"),
        required=False,
        strip=False,
        widget=UnfoldAdminTextareaWidget(
            attrs={"rows": 8, "spellcheck": "false", "autocomplete": "off"}
        ),
        help_text=_(
            "For example: name,user,password in the first line, then one resource per line."
        ),
    )
    kind = forms.ChoiceField(
        label=_("Format"),
        choices=[(FileFormat.CSV.value, "CSV"), (FileFormat.JSONL.value, "JSON lines")],
        initial=FileFormat.CSV.value,
        widget=UnfoldAdminSelectWidget,
    )

    def clean(self) -> dict[str, Any]:
        """Return the cleaned data with ``raw``: the file as bytes, or the text."""
        values = super().clean() or self.cleaned_data
        file = values.get("file")
        if file is not None and file.size > MAX_BYTES:
            self.add_error("file", gettext("Larger than 8 MiB."))
        elif file is not None:
            values["raw"] = file.read()
            if file.name.lower().endswith((".jsonl", ".ndjson")):
                values["kind"] = FileFormat.JSONL.value
        elif values.get("text"):
            # Browsers differ in the line breaks they send.
            values["raw"] = values["text"].replace("\r\n", "\n")
        elif "file" not in self.errors:
            self.add_error("file", gettext("Choose a file, or paste its text below."))
        return values


@admin.register(ResourcePool)
class ResourcePoolAdmin(ProjectScopedAdmin):
    """Admin of resource pools. Editors create and fill pools; the resources have their own page."""

    list_display = ("name_link", "project", *COUNTS, "enabled")
    list_display_links = None
    list_filter = (("project", VisibleRelatedFilter), "is_enabled")
    list_filter_submit = True
    list_select_related = ("project",)
    search_fields = ("name", "description")
    list_per_page = 50
    change_form_outer_before_template = "admin/seeds/resourcepool/head.html"
    fieldsets = (
        (None, {"fields": (("project", "name"), "description", "is_enabled")}),
        (_("Leases"), {"fields": (("rotation_percent", "lease_seconds"), "rest_seconds")}),
        (_("Failures"), {"fields": (("cool_down_seconds", "ban_after"),)}),
    )

    class Media:
        css = {"all": CSS}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        """Return pools annotated with the number of resources per state, in one query."""
        rows = cast("Any", super().get_queryset(request))
        return cast("QuerySet[Model]", rows.with_counts(timezone.now()))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep an existing pool in its project."""
        return () if obj is None else ("project",)

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs of import and export."""
        view = self.admin_site.admin_view
        return [
            path("<int:pk>/import", view(self.import_view), name="seeds_resourcepool_import"),
            path(
                "<int:pk>/export",
                view(require_GET(self.export_view)),
                name="seeds_resourcepool_export",
            ),
            *super().get_urls(),
        ]

    # --- the list -------------------------------------------------------------------------------

    @display(description=_("pool"), ordering="name")
    def name_link(self, pool: ResourcePool) -> SafeString:
        """Link to the pool's resources, with a smaller link to its settings."""
        resources = reverse("admin:seeds_resource_changelist")
        return format_html(
            '<a class="cy-pool-name" href="{}?pool__id__exact={}">{}</a>'
            '<a class="cy-pool-settings" href="{}">{}</a>',
            resources,
            pool.pk,
            pool.name,
            reverse("admin:seeds_resourcepool_change", args=[pool.pk]),
            gettext("settings"),
        )

    @display(description=_("free"), ordering="at_hand")
    def at_hand(self, pool: Any) -> SafeString:
        """Resources that can be leased now."""
        return _figure(pool.at_hand, "" if pool.at_hand else "cy-danger-text")

    @display(description=_("leased"), ordering="leased")
    def leased(self, pool: Any) -> SafeString:
        return _figure(pool.leased)

    @display(description=_("cooling"), ordering="cooling")
    def cooling(self, pool: Any) -> SafeString:
        """Free resources that are cooling down."""
        return _figure(pool.cooling)

    @display(description=_("banned"), ordering="banned")
    def banned(self, pool: Any) -> SafeString:
        """Resources excluded from leasing until they are unbanned."""
        return _figure(pool.banned, "cy-warning-text" if pool.banned else "")

    @display(description=_("disabled"), ordering="disabled")
    def disabled(self, pool: Any) -> SafeString:
        """Resources disabled by a user."""
        return _figure(pool.disabled)

    @display(
        description=_("leasing"), ordering="is_enabled", label={"on": "success", "off": "warning"}
    )
    def enabled(self, pool: ResourcePool) -> tuple[str, Any]:
        """Whether the pool leases resources."""
        return ("on", gettext("on")) if pool.is_enabled else ("off", gettext("off"))

    # --- one pool -------------------------------------------------------------------------------

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the settings and the number of resources per state."""
        extra = dict(extra_context or {})
        pool = cast("Any", self.get_object(request, object_id))
        if pool is not None and self.has_view_permission(request, pool):
            extra |= {
                "pool": pool,
                "pool_counts": _counts(pool),
                "may_import": pool.project_id in projects_of(request, Role.EDITOR),
            }
        return cast(HttpResponse, super().change_view(request, object_id, form_url, extra))

    def import_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Add resources and change secrets; all or nothing."""
        pool = self._pool(request, pk, Role.EDITOR)
        form = ImportForm(request.POST or None, request.FILES or None)
        problems: list[str] = []
        if request.method == "POST" and form.is_valid():
            try:
                done = import_resources(
                    pool=pool,
                    raw=form.cleaned_data["raw"],
                    kind=FileFormat(form.cleaned_data["kind"]),
                    actor=person_of(request),
                )
            except UnreadableResources as error:
                problems = [str(problem) for problem in error.fields["text"]]
            else:
                text = gettext(
                    "Imported: %(added)d added, %(changed)d changed, %(unchanged)d unchanged."
                )
                messages.success(request, text % done.as_dict())
                resources = reverse("admin:seeds_resource_changelist")
                return HttpResponseRedirect(f"{resources}?pool__id__exact={pool.pk}")
        kept = {"kind": request.POST.get("kind", FileFormat.CSV.value)}
        context = {
            **self.admin_site.each_context(request),
            "title": pool.name,
            "subtitle": _("Import resources"),
            "media": self.media,
            "opts": self.opts,
            "original": pool,
            "pool": pool,
            # The submitted text contains secrets and is not shown again.
            "form": ImportForm(initial=kept),
            "errors": [text for texts in form.errors.values() for text in texts],
            "problems": problems,
        }
        response = TemplateResponse(request, "admin/seeds/resourcepool/import.html", context)
        response.headers["Cache-Control"] = "no-store"
        return response

    def export_view(self, request: HttpRequest, pk: int) -> StreamingHttpResponse:
        """Stream all resources as CSV, without their secrets."""
        pool = self._pool(request, pk, Role.VIEWER)
        headers = {"Content-Disposition": f'attachment; filename="{pool.name}.csv"'}
        return StreamingHttpResponse(
            export_resources(pool), content_type="text/csv; charset=utf-8", headers=headers
        )

    def _pool(self, request: HttpRequest, pk: int, role: Role) -> ResourcePool:
        if not self.has_view_permission(request):
            raise PermissionDenied
        pool = ResourcePool.objects.visible_to(request.user).filter(pk=pk).first()
        if pool is None:
            raise Http404
        if pool.project_id not in projects_of(request, role):
            raise PermissionDenied
        return pool


def _figure(count: int, tone: str = "") -> SafeString:
    return format_html('<span class="cy-figure-cell {}">{}</span>', tone, f"{count:,}")


def _counts(pool: Any) -> list[dict[str, Any]]:
    names = {
        "at_hand": _("free"),
        "leased": _("leased"),
        "cooling": _("cooling down"),
        "banned": _("banned"),
        "disabled": _("disabled"),
    }
    tones = {"at_hand": "cy-success" if pool.at_hand else "cy-danger"}
    return [
        {"name": name, "count": getattr(pool, counter), "tone": tones.get(counter, "")}
        for counter, name in names.items()
    ]
