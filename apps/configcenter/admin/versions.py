"""Admin pages of versions: content, differences and activation."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.text import Truncator
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.contrib.filters.admin import FieldTextFilter
from unfold.decorators import display

from apps.access.admin.base import ProjectScopedAdmin, person_of, projects_of
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.lists import BoundedList
from apps.access.admin.read_only import ReadOnly
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.configcenter.admin.configurations import seen_number, switched_text, typed_note
from apps.configcenter.admin.shown import MEDIA, difference, kind_title, rollout_text, text_of
from apps.configcenter.models import ConfigVersion
from apps.configcenter.queries import rollouts_of
from apps.configcenter.services import activate, shown_by

SHOWN_NOTE = 80
MOST_CHOICES = 100


class VersionList(BoundedList):
    """Change list that counts the processes of all rows of a page in one query."""

    def get_results(self, request: HttpRequest) -> None:
        """Attach ``runs``, the number of processes that run it, to each version of this page."""
        super().get_results(request)
        rows: list[Any] = list(self.result_list)  # type: ignore[has-type]  # set by the parent
        rollouts = rollouts_of({row.configuration_id: row.configuration for row in rows}.values())
        for row in rows:
            row.runs = rollouts[row.configuration_id].count(row.number)
        self.result_list = rows


@admin.register(ConfigVersion)
class ConfigVersionAdmin(ReadOnly, ProjectScopedAdmin):
    """Read-only admin of versions, with a button that activates one."""

    list_display = (
        "number_label",
        "kind_label",
        "project",
        "state",
        "runs_label",
        "summary",
        "author_label",
        "short_note",
        "created_at",
    )
    list_select_related = ("configuration__project", "configuration__active")
    list_filter = (
        ("configuration__project", VisibleRelatedFilter),
        ("configuration__kind", FieldTextFilter),
        ("author_label", FieldTextFilter),
    )
    list_filter_submit = True
    search_fields = ("note", "summary", "author_label")
    search_help_text = _("Note, summary, author")

    class Media:
        css = {"all": MEDIA}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        """Defer the contents, which may be long; the page of one version loads its own."""
        return super().get_queryset(request).defer("content", "configuration__active__content")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[VersionList]:
        return VersionList

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the activate button."""
        view = self.admin_site.admin_view(require_POST(self.activate_view))
        return [
            path("<int:pk>/activate", view, name="configcenter_configversion_activate"),
            *super().get_urls(),
        ]

    @display(description=_("version"), ordering="number")
    def number_label(self, version: ConfigVersion) -> str:
        return f"v{version.number}"

    @display(description=_("kind"), ordering="configuration__kind")
    def kind_label(self, version: ConfigVersion) -> str:
        return kind_title(version.configuration.kind)

    @display(description=_("project"), ordering="configuration__project__name")
    def project(self, version: ConfigVersion) -> str:
        """Name of the project, or of the platform."""
        return version.configuration.owner_label

    @display(description=_("state"), label={"active": "success", "newest": "info"})
    def state(self, version: ConfigVersion) -> tuple[str, str]:
        """Whether the version is active, the newest, or an older one."""
        if version.configuration.active_id == version.pk:
            return "active", gettext("active version")
        if version.configuration.newest == version.number:
            return "newest", gettext("newest")
        return "old", "–"

    @display(description=_("running processes"))
    def runs_label(self, version: Any) -> str:
        """Number of living processes that run this version."""
        return str(version.runs) if version.runs else "–"

    @display(description=_("note"))
    def short_note(self, version: ConfigVersion) -> str:
        """First words of the note."""
        return Truncator(version.note).chars(SHOWN_NOTE) or "–"

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the data and its differences from the version ``?against=``."""
        version = cast("ConfigVersion | None", self.get_object(request, object_id))
        if version is None:
            raise Http404
        if not self.has_view_permission(request, version):
            raise PermissionDenied
        row = version.configuration
        others = row.versions.exclude(pk=version.pk)
        against = _against(request, version)
        other = others.filter(number=against).first()
        if other is None and against:
            raise Http404
        kind = shown_by(row.kind)
        changes = kind.diff(other.data if other is not None else {}, version.data)
        rollout = rollouts_of([row])[row.pk]
        may_edit = row.project_id in projects_of(request, Role.EDITOR)
        context = {
            **self.admin_site.each_context(request),
            "title": f"{kind_title(row.kind)} v{version.number}",
            "subtitle": row.owner_label,
            "opts": self.opts,
            "media": self.media,
            "version": version,
            "row": row,
            "is_active": row.active_id == version.pk,
            "active": row.active,
            "runs": rollout.count(version.number),
            "rollout_text": rollout_text(rollout),
            "text": text_of(kind, version.data if may_edit else kind.public(version.data)),
            "against": against,
            "choices": list(
                others.order_by("-number").values_list("number", flat=True)[:MOST_CHOICES]
            ),
            "changes": difference(changes),
            "may_edit": may_edit,
            "edit": reverse("admin:configcenter_configuration_add")
            + f"?kind={row.kind}&project={row.project_id or ''}&version={version.number}",
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/configcenter/version.html", context)

    def activate_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Activate this version in all processes."""
        visible = ConfigVersion.objects.visible_to(request.user).select_related("configuration")
        version = visible.filter(pk=pk).first()
        if version is None:
            raise Http404
        if version.configuration.project_id not in projects_of(request, Role.EDITOR):
            raise PermissionDenied
        try:
            done = activate(
                version=version,
                actor=person_of(request),
                now=timezone.now(),
                note=typed_note(request),
                instead_of=seen_number(request),
            )
        except DomainError as error:
            messages.error(request, error.text if error.code == "bad_config" else str(error.detail))
        else:
            messages.success(request, switched_text(done.version))
        return HttpResponseRedirect(reverse("admin:configcenter_configversion_change", args=[pk]))


def _against(request: HttpRequest, version: ConfigVersion) -> int:
    """Number of the version to compare with: ``?against=``, else the active one, else the previous
    one; 0 is the empty version.
    """
    other_version = request.GET.get("against", "")
    if other_version:
        if not (other_version.isascii() and other_version.isdigit() and len(other_version) < 10):
            raise Http404
        return int(other_version)
    active = version.configuration.active
    if active is not None and active.pk != version.pk:
        return active.number
    return version.number - 1
