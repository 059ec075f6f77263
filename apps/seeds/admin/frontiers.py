"""Admin of frontiers: list, form and URLs of their pages."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import admin
from django.db.models import F, Model, QuerySet, Sum
from django.forms import Script
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET, require_POST
from unfold.decorators import display

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.filters import VisibleRelatedFilter
from apps.seeds.admin.actions import FrontierActions
from apps.seeds.admin.frontier_form import FIELDSETS, RULES, SETTINGS, FrontierForm
from apps.seeds.admin.frontier_writes import FrontierWrites
from apps.seeds.admin.hints import hint_of
from apps.seeds.admin.moments import begins, granularity_of, zone_of
from apps.seeds.admin.pages import FrontierPages
from apps.seeds.admin.scope import page_of
from apps.seeds.models import Frontier
from apps.seeds.queries import oldest_pending, service_status

CSS = ["dashboard/dashboard.css", "configcenter/configcenter.css", "seeds/seeds.css"]


@admin.register(Frontier)
class FrontierAdmin(FrontierPages, FrontierActions, FrontierWrites, ProjectScopedAdmin):
    """Admin of frontiers. Editors create and change them; operators add and manage seeds."""

    form = FrontierForm
    list_display = (
        "name_link",
        "project",
        "pending",
        "leased",
        "done",
        "failed",
        "oldest",
        "hand_out",
    )
    list_display_links = None
    list_filter = (("project", VisibleRelatedFilter), "is_paused")
    list_filter_submit = True
    list_select_related = ("project",)
    search_fields = ("name", "description")
    list_per_page = 50
    list_before_template = "admin/seeds/frontier/list_head.html"
    change_form_outer_before_template = "admin/seeds/frontier/form_head.html"

    class Media:
        css = {"all": CSS}
        js = [Script("seeds/hint.js", defer=True)]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        """Return frontiers annotated with the sums of their segments' counts."""
        rows = super().get_queryset(request)
        ended = F("reports__succeeded") + F("reports__ignored") + F("reports__forgotten")
        counted = rows.annotate(
            pending_count=Sum("reports__pending", default=0),
            leased_count=Sum("reports__leased", default=0),
            done_count=Sum(ended, default=0),
            failed_count=Sum("reports__failed", default=0),
            oldest_segment=oldest_pending(),
        )
        return cast("QuerySet[Model]", counted)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Make the fields that define keys and segments read-only: changing them moves the
        seeds.
        """
        return () if obj is None else ("project", *RULES)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Hide the rules of an existing frontier, which have their own page."""
        return FIELDSETS if obj is None else SETTINGS

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs of the frontier's pages, their live fragments and buttons."""
        view = self.admin_site.admin_view
        get, post = require_GET, require_POST
        pages = [
            ("", get(self.page_view), "page"),
            ("live", get(self.live_view), "live"),
            ("look-up", self.look_up_view, "look_up"),
            ("seeds", self.seeds_view, "seeds"),
            ("granularity", self.granularity_view, "granularity"),
            ("export", get(self.export_view), "export"),
            ("pause", post(self.pause_view), "pause"),
            ("resume", post(self.resume_view), "resume"),
            ("reopen", post(self.reopen_view), "reopen"),
            ("forget", post(self.forget_view), "forget"),
            ("reopen-failed", post(self.reopen_failed_view), "reopen_failed"),
            ("drop", self.drop_view, "drop"),
            ("wipe", self.wipe_view, "wipe"),
        ]
        own = [
            path(f"<int:pk>/{end}", view(handler), name=f"seeds_frontier_{name}")
            for end, handler, name in pages
        ]
        cancel = "<int:pk>/operations/<int:operation>/cancel"
        return [
            path("hint", view(post(self.hint_view)), name="seeds_frontier_hint"),
            *own,
            path(cancel, view(post(self.cancel_view)), name="seeds_frontier_cancel"),
            *super().get_urls(),
        ]

    # --- the list -------------------------------------------------------------------------------

    @display(description=_("URL queue"), ordering="name")
    def name_link(self, frontier: Any) -> SafeString:
        """Link to the frontier's page, followed by its granularity."""
        return format_html(
            '<a class="cy-frontier-name" href="{}" title="{}">{}</a>'
            '<span class="cy-frontier-about">{}</span>',
            page_of(frontier.pk),
            frontier.description,
            frontier.name,
            granularity_of(frontier.segments),
        )

    @display(description=_("pending"), ordering="pending_count")
    def pending(self, frontier: Any) -> SafeString:
        """Seeds waiting to be leased, due or not."""
        return _figure(frontier.pending_count)

    @display(description=_("leased"), ordering="leased_count")
    def leased(self, frontier: Any) -> SafeString:
        return _figure(frontier.leased_count)

    @display(description=_("done"), ordering="done_count")
    def done(self, frontier: Any) -> SafeString:
        """Seeds that succeeded, were ignored or were forgotten."""
        return _figure(frontier.done_count)

    @display(description=_("failed"), ordering="failed_count")
    def failed(self, frontier: Any) -> SafeString:
        return _figure(frontier.failed_count, "cy-danger-text")

    @display(description=_("oldest pending segment"), ordering="oldest_segment")
    def oldest(self, frontier: Any) -> SafeString | str:
        """The earliest segment with pending seeds."""
        if frontier.oldest_segment is None:
            return ""
        shown = begins(frontier.oldest_segment, zone_of(frontier.time_zone))
        return format_html('<span class="cy-nowrap">{}</span>', shown)

    @display(
        description=_("leasing"),
        ordering="is_paused",
        label={"open": "success", "paused": "warning", "frozen": "info"},
    )
    def hand_out(self, frontier: Frontier) -> tuple[str, str]:
        """Whether the frontier leases seeds: active, paused or frozen by a move."""
        if frontier.is_frozen:
            return "frozen", gettext("moving")
        if frontier.is_paused:
            return "paused", gettext("paused")
        return "open", gettext("open")

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the list with the state of the seed service."""
        extra = {"service": service_status(timezone.now())}
        kwargs["extra_context"] = {**(kwargs.get("extra_context") or {}), **extra}
        return super().changelist_view(request, *args, **kwargs)

    # --- the form -------------------------------------------------------------------------------

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the empty form with a live example of its rules."""
        blank = Frontier()
        begin = {name: str(getattr(blank, name)) for name in RULES[:3]}
        hint = hint_of(begin | request.POST.dict(), _now_ms())
        extra = {**(extra_context or {}), "hint": hint}
        return cast(HttpResponse, super().add_view(request, form_url, extra))

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the form with a live example of its rules."""
        extra: dict[str, Any] = dict(extra_context or {})
        frontier: Any = self.get_object(request, object_id)
        if frontier is not None:
            extra["tabs"] = self.tabs(request, frontier, "settings")
        return cast(HttpResponse, super().change_view(request, object_id, form_url, extra))

    def hint_view(self, request: HttpRequest) -> HttpResponse:
        """Return the live example for the rules in the form."""
        self.expect_view(request)
        hint = hint_of(request.POST.dict(), _now_ms())
        return TemplateResponse(request, "admin/seeds/frontier/hint.html", {"hint": hint})

    def response_post_save_add(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Redirect to the frontier's page, where seeds are added."""
        return HttpResponseRedirect(page_of(obj.pk))

    def response_post_save_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Redirect to the frontier's page."""
        return HttpResponseRedirect(page_of(obj.pk))


def _figure(number: int, tone: str = "") -> SafeString:
    shown = f"cy-figure-cell {tone}" if tone and number else "cy-figure-cell"
    return format_html('<span class="{}">{}</span>', shown, f"{number:,}")


def _now_ms() -> int:
    return int(timezone.now().timestamp() * 1000)
