"""Admin pages of a project's sources: status, progress, start, stop, dry run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST
from unfold.widgets import UnfoldAdminTextInputWidget, UnfoldBooleanWidget

from apps.access.admin.base import person_of
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.projects.admin.project_choice import ChosenProjectAdmin, ProjectChoice
from apps.sources.admin.overview import SourceRow, overview
from apps.sources.errors import NoSuchSource
from apps.sources.models import Harvest, RecordQueue, SourceState
from apps.sources.queries import KIND, status
from apps.sources.services import CommandOutcome, set_marker, start, stop
from apps.sources.services.preview import preview
from apps.sources.services.queues import QueueSize, queue_size

CSS: Final = ["dashboard/dashboard.css", "configcenter/configcenter.css", "sources/sources.css"]
SHOWN_HARVESTS: Final = 20
_FRESH_SECONDS: Final = 2
_AWAY_SECONDS: Final = 10


class MarkerForm(forms.Form):
    """Form of the marker, the offset at which the next import ends."""

    marker = forms.IntegerField(
        label=gettext_lazy("Last start offset"),
        required=False,
        min_value=0,
        max_value=2**53 - 1,
        widget=UnfoldAdminTextInputWidget(attrs={"inputmode": "numeric"}),
        help_text=gettext_lazy("The next import ends at this offset."),
    )
    by_seed_rule = forms.BooleanField(
        label=gettext_lazy("Read by another program"),
        required=False,
        widget=UnfoldBooleanWidget,
        help_text=gettext_lazy(
            "For programs that skip the first records (total modulo batch size); these are "
            "recorded as never read."
        ),
    )
    # A check box in addition to an empty field: an outdated page must not reset a source by
    # accident.
    everything = forms.BooleanField(
        label=gettext_lazy("Import everything again"),
        required=False,
        widget=UnfoldBooleanWidget,
        help_text=gettext_lazy("The next import reads and publishes all records again."),
    )

    def clean(self) -> dict[str, Any]:
        """Require an offset or the check box "everything"."""
        values: dict[str, Any] = super().clean() or {}
        if "marker" in values and (values["marker"] is None) != values["everything"]:
            raise forms.ValidationError(
                gettext_lazy("Enter an offset, or select “Import everything again”.")
            )
        return values


@admin.register(SourceState)
class SourceAdmin(ChosenProjectAdmin):
    """Pages by project instead of a list of rows: a source has a row only after its first start."""

    configuration_kind = KIND

    class Media:
        css = {"all": CSS}

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the overview, the page of one source, and its buttons."""

        def get(view: Callable[..., HttpResponse]) -> Any:
            return self.admin_site.admin_view(require_GET(view))

        def post(view: Callable[..., HttpResponse]) -> Any:
            return self.admin_site.admin_view(require_POST(view))

        return [
            path("live", get(self.live_view), name="sources_live"),
            path("source/", get(self.source_view), name="sources_source"),
            path("source/live", get(self.source_live_view), name="sources_source_live"),
            path("source/marker", post(self.marker_view), name="sources_marker"),
            path("start", post(self.start_view), name="sources_start"),
            path("stop", post(self.stop_view), name="sources_stop"),
            path("dry-run", post(self.dry_run_view), name="sources_dry_run"),
            *super().get_urls(),
        ]

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> None:
        """Return None: rows have no change form."""

    # --- all sources of a project -----------------------------------------------------------------

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the sources of ``?project=``."""
        choice = self.chosen(request)
        context = self.context(request, choice, _("Sources")) | _overview(choice)
        return TemplateResponse(request, "admin/sources/sources.html", context)

    def live_view(self, request: HttpRequest) -> HttpResponse:
        """Part of the overview that refreshes itself."""
        choice = self.chosen(request)
        context = {"choice": choice} | _overview(choice)
        return TemplateResponse(request, "admin/sources/sources_live.html", context)

    # --- one source -------------------------------------------------------------------------------

    def source_view(self, request: HttpRequest) -> HttpResponse:
        """Show progress, imports and marker of the source ``?project=&name=``."""
        choice = self._must_choose(request)
        line = _line(request, choice)
        title = _("Source %(name)s") % {"name": line.name}
        context = self.context(request, choice, title) | _source(choice, line)
        # Not pre-filled: an import may move the marker while the page is open.
        context["form"] = MarkerForm()
        return TemplateResponse(request, "admin/sources/source.html", context)

    def source_live_view(self, request: HttpRequest) -> HttpResponse:
        """Part of the source's page that refreshes itself."""
        choice = self._must_choose(request)
        context = {"choice": choice} | _source(choice, _line(request, choice))
        return TemplateResponse(request, "admin/sources/source_live.html", context)

    def marker_view(self, request: HttpRequest) -> HttpResponse:
        """Move the marker; editors only."""
        choice = self._must_choose(request, Role.EDITOR)
        line = _line(request, choice)
        form = MarkerForm(request.POST)
        if not form.is_valid():
            for texts in form.errors.values():
                messages.error(request, " ".join(map(str, texts)))
        else:
            values = form.cleaned_data

            def move() -> str:
                set_marker(
                    project_id=choice.project.pk,
                    name=line.name,
                    marker=values["marker"],
                    by_seed_rule=values["by_seed_rule"],
                    actor=person_of(request),
                )
                return _("Marker of %(name)s moved.") % {"name": line.name}

            _show_result(request, move)
        return _back(choice, line.name)

    # --- start, stop, dry run ------------------------------------------------------------

    def start_view(self, request: HttpRequest) -> HttpResponse:
        """Start one source, or all enabled ones."""
        return self._ask(request, start, _("started"))

    def stop_view(self, request: HttpRequest) -> HttpResponse:
        """Stop one source, or all."""
        return self._ask(request, stop, _("stopping"))

    def dry_run_view(self, request: HttpRequest) -> HttpResponse:
        """Show what a start would read; asks the API for its number of records."""
        choice = self._must_choose(request, Role.OPERATOR)
        name = request.POST.get("name", "")

        def look() -> str:
            plan_preview = preview(
                project_id=choice.project.pk, name=name, networks=settings.SOURCES_ALLOWED_NETWORKS
            )
            values = {
                "name": name,
                "total": f"{plan_preview.total:,}",
                "batches": f"{plan_preview.batches:,}",
                "new": f"{plan_preview.new:,}",
                "again": f"{plan_preview.re_read:,}",
            }
            if not plan_preview.counted:
                text = _("%(name)s has %(total)s records. The number of new ones is unknown.")
            elif plan_preview.resumed:
                text = _("%(name)s would resume: %(batches)s batches, %(new)s new records.")
            else:
                text = _(
                    "%(name)s would read %(batches)s batches: %(new)s new and %(again)s already "
                    "imported records, of %(total)s in total."
                )
            message = text % values
            if plan_preview.shrunk:
                message += " " + _("The source has fewer records than before.")
            return message

        _show_result(request, look)
        return _back(choice, request.POST.get("back", ""))

    def _ask(self, request: HttpRequest, service: Any, word: str) -> HttpResponse:
        choice = self._must_choose(request, Role.OPERATOR)
        name = request.POST.get("name", "")

        def ask() -> str:
            outcomes = service(
                project_id=choice.project.pk,
                names=[name] if name else None,
                actor=person_of(request),
                now=timezone.now(),
            )
            changed = [
                outcome.name for outcome in outcomes if outcome.became is not CommandOutcome.ALREADY
            ]
            return f"{', '.join(changed)}: {word}" if changed else _("No changes needed.")

        _show_result(request, ask)
        return _back(choice, request.POST.get("back", ""))

    # --- shared by these pages ------------------------------------------------------

    def _must_choose(self, request: HttpRequest, role: Role = Role.VIEWER) -> ProjectChoice:
        choice = self.chosen(request)
        if choice is None:
            raise Http404
        if not choice.may(role):
            raise PermissionDenied
        return choice


def _overview(choice: ProjectChoice | None) -> dict[str, Any]:
    now = timezone.now()
    if choice is None:
        return {"view": None, "now": now}
    queues = RecordQueue.objects.filter(project=choice.project)
    sizes = [_size(queue) for queue in queues[:20]]
    return {"view": overview(choice.project, now), "now": now, "sizes": sizes}


def _size(queue: RecordQueue) -> tuple[str, QueueSize | None, str]:
    """Queue size, cached for all viewers, also the failure of an unreachable broker."""
    key = f"sources.size.{queue.pk}"
    known: dict[str, Any] | None = cache.get(key)
    if known is None:
        try:
            known = {"size": asdict(queue_size(queue=queue, now=timezone.now())), "problem": ""}
        except DomainError as error:
            known = {"size": None, "problem": str(error.text)}
        cache.set(key, known, _FRESH_SECONDS if known["size"] is not None else _AWAY_SECONDS)
    size = QueueSize(**known["size"]) if known["size"] is not None else None
    return queue.name, size, known["problem"]


def _line(request: HttpRequest, choice: ProjectChoice) -> SourceRow:
    name = request.GET.get("name") or request.POST.get("name") or ""
    try:
        return SourceRow(status(choice.project.pk, name), timezone.now())
    except NoSuchSource:
        raise Http404 from None


def _source(choice: ProjectChoice, line: SourceRow) -> dict[str, Any]:
    harvests = Harvest.objects.filter(project=choice.project, source=line.name)
    return {"line": line, "harvests": harvests[:SHOWN_HARVESTS], "now": timezone.now()}


def _show_result(request: HttpRequest, ask: Callable[[], str]) -> None:
    try:
        messages.success(request, ask())
    except DomainError as error:
        why = [str(text) for texts in error.fields.values() for text in texts]
        messages.error(request, " ".join([str(error.text), *why]))


def _back(choice: ProjectChoice, name: str) -> HttpResponse:
    if name:
        query = urlencode({"project": choice.project.pk, "name": name})
        return HttpResponseRedirect(f"{reverse('admin:sources_source')}?{query}")
    return HttpResponseRedirect(
        reverse("admin:sources_sourcestate_changelist") + f"?project={choice.project.pk}"
    )
