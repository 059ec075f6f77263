"""Admin of webhook deliveries: request, verdict and reason."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Final, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.contrib.filters.admin import FieldTextFilter
from unfold.decorators import display

from apps.access.admin.base import ProjectScopedAdmin, person_of, projects_of
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.read_only import ReadOnly
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.projects.models import Delivery
from apps.projects.services import replay_delivery
from apps.projects.states import VERDICT_TONES, DeliveryVerdict

SHOWN_REASON: Final = 120
# Limit of the body on a page; the REST API returns the whole body.
SHOWN_BODY: Final = 200_000


@admin.register(Delivery)
class DeliveryAdmin(ReadOnly, ProjectScopedAdmin):
    """Read-only admin of deliveries; operators replay them."""

    list_display = (
        "received_at",
        "project",
        "verdict_label",
        "source_label",
        "event",
        "tag",
        "short_reason",
    )
    list_display_links = ("received_at",)
    list_select_related = ("project",)
    list_filter = (
        ("project", VisibleRelatedFilter),
        "verdict",
        "source",
        ("event", FieldTextFilter),
        ("tag", FieldTextFilter),
    )
    list_filter_submit = True
    search_fields = ("tag", "=delivery_id", "=commit", "code")
    search_help_text = _("Tag, delivery id, commit, code")
    list_per_page = 50
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("project", "verdict_label"),
                    "reason_text",
                    ("made", "repeats"),
                    ("tag", "commit"),
                    ("source_label", "event"),
                    ("received_at", "remote_address"),
                    ("delivery_id", "origin"),
                )
            },
        ),
        (_("Headers"), {"fields": ("headers_text",)}),
        (_("Body"), {"fields": ("body_text",)}),
    )
    readonly_fields = (
        "verdict_label",
        "reason_text",
        "made",
        "source_label",
        "origin",
        "headers_text",
        "body_text",
    )

    class Media:
        css = {"all": ["dashboard/dashboard.css", "projects/projects.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        """Defer the bodies, which may be long; the page of one delivery loads its body."""
        return super().get_queryset(request).defer("body", "headers")

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the replay button."""
        replay = self.admin_site.admin_view(require_POST(self.replay_view))
        return [
            path("<int:pk>/replay", replay, name="projects_delivery_replay"),
            *super().get_urls(),
        ]

    @display(description=_("verdict"), ordering="verdict", label=VERDICT_TONES)
    def verdict_label(self, delivery: Delivery) -> tuple[str, Any]:
        """Verdict with its colour."""
        return delivery.verdict, DeliveryVerdict(delivery.verdict).label

    @admin.display(description=_("source"), ordering="source")
    def source_label(self, delivery: Delivery) -> str:
        """Kind of sender."""
        return str(delivery.get_source_display()) or "–"

    @admin.display(description=_("reason"))
    def short_reason(self, delivery: Delivery) -> str:
        """Reason, shortened."""
        return Truncator(delivery.reason).chars(SHOWN_REASON)

    @admin.display(description=_("reason"))
    def reason_text(self, delivery: Delivery) -> SafeString | str:
        """Reason as text, and its code."""
        if not delivery.code:
            return "–"
        return format_html('{} <code class="cy-subtle">{}</code>', delivery.reason, delivery.code)

    @admin.display(description=_("result"))
    def made(self, delivery: Delivery) -> SafeString | str:
        """Link to the resulting build or image."""
        for thing in (delivery.build, delivery.image):
            if thing is not None:
                return _link(thing)
        return "–"

    @admin.display(description=_("replay of"))
    def origin(self, delivery: Delivery) -> SafeString | str:
        """Link to the original delivery of a replay."""
        return _link(delivery.replay_of) if delivery.replay_of else "–"

    @admin.display(description=_("headers"))
    def headers_text(self, delivery: Delivery) -> SafeString | str:
        """Headers, one per line; headers with secrets are not stored."""
        lines = "\n".join(f"{name}: {value}" for name, value in sorted(delivery.headers.items()))
        return _pre(lines) if lines else "–"

    @admin.display(description=_("body"))
    def body_text(self, delivery: Delivery) -> SafeString | str:
        """Body, indented if it is JSON."""
        size = filesizeformat(delivery.body_bytes)
        if delivery.verdict == DeliveryVerdict.REFUSED:
            return gettext("%(size)s, not stored: the delivery was not authenticated.") % {
                "size": size
            }
        text = bytes(delivery.body).decode("utf-8", "replace")
        if len(text) > SHOWN_BODY:
            note = gettext("%(size)s; only the beginning is shown.") % {"size": size}
            return format_html("<p>{}</p>{}", note, _pre(text[:SHOWN_BODY]))
        with contextlib.suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        # JSON may contain lone surrogates, which UTF-8 cannot encode.
        return _pre(text.encode("utf-8", "replace").decode())

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show a delivery with the allowed buttons."""
        extra = dict(extra_context or {})
        delivery = cast("Delivery | None", self.get_object(request, object_id))
        if delivery is not None:
            extra["may_replay"] = (
                delivery.verdict != DeliveryVerdict.REFUSED
                and delivery.project_id in projects_of(request, Role.OPERATOR)
            )
        return cast(HttpResponse, super().change_view(request, object_id, form_url, extra))

    def replay_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Replay a delivery and show the new delivery."""
        delivery = Delivery.objects.visible_to(request.user).filter(pk=pk).first()
        if delivery is None:
            raise Http404
        if delivery.project_id not in projects_of(request, Role.OPERATOR):
            raise PermissionDenied
        try:
            again = replay_delivery(delivery=delivery, actor=person_of(request), now=timezone.now())
        except DomainError as error:
            messages.error(request, error.text)
            return HttpResponseRedirect(reverse("admin:projects_delivery_change", args=[pk]))
        label = DeliveryVerdict(again.verdict).label
        text = gettext("Replayed: %(verdict)s. %(reason)s")
        messages.info(request, text % {"verdict": label, "reason": again.reason})
        return HttpResponseRedirect(reverse("admin:projects_delivery_change", args=[again.pk]))


def _pre(text: str) -> SafeString:
    return format_html('<pre class="cy-code">{}</pre>', text)


def _link(thing: Model) -> SafeString | str:
    meta = thing._meta
    try:
        address = reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[thing.pk])
    except NoReverseMatch:
        return str(thing)
    return format_html('<a class="cy-strong" href="{}">{}</a>', address, thing)
