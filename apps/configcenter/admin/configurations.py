"""Admin pages of configurations: active version, roll-out, revert, new version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.contrib.filters.admin import FieldTextFilter
from unfold.decorators import display

from apps.access.admin.base import ProjectScopedAdmin, person_of, projects_of
from apps.access.admin.confirm import ask_first
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.lists import BoundedList
from apps.access.errors import DomainError
from apps.access.models import User
from apps.access.states import Role
from apps.configcenter import services
from apps.configcenter.admin.forms import ChoiceForm, VersionForm
from apps.configcenter.admin.shown import (
    MEDIA,
    VersionDifference,
    difference,
    kind_title,
    rollout_text,
    text_of,
)
from apps.configcenter.engine.plain import Data
from apps.configcenter.models import Configuration, ConfigVersion
from apps.configcenter.queries import RolloutCount, rollouts_of
from apps.configcenter.services.activation import ANY

LATEST = 20


class ConfigurationList(BoundedList):
    """Change list that counts the processes of all rows of a page in one query."""

    def get_results(self, request: HttpRequest) -> None:
        """Attach ``rollout`` (a ``RolloutCount``) to each configuration of this page."""
        super().get_results(request)
        rows: list[Any] = list(self.result_list)  # type: ignore[has-type]  # set by the parent
        rollouts = rollouts_of(rows)
        for row in rows:
            row.rollout = rollouts[row.pk]
        self.result_list = rows


@dataclass(frozen=True, slots=True)
class VersionPreview:
    """Preview of a save: the new data's problems and its differences from the newest version."""

    changes: VersionDifference
    warnings: tuple[str, ...]


@admin.register(Configuration)
class ConfigurationAdmin(ProjectScopedAdmin):
    """Admin of configurations: one row for each kind and project."""

    list_display = ("kind_label", "owner", "active_label", "newest_label", "running", "changed_at")
    list_select_related = ("active", "project")
    list_filter = (("project", VisibleRelatedFilter), ("kind", FieldTextFilter))
    list_filter_submit = True
    search_fields = ("kind", "project__name")

    class Media:
        css = {"all": MEDIA}

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Return False: only versions change."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Return False: the history is kept."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        """Defer the contents, which may be long."""
        return super().get_queryset(request).defer("active__content")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ConfigurationList]:
        return ConfigurationList

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the revert, deactivate and save buttons."""
        view = self.admin_site.admin_view
        buttons = [
            path(
                f"<int:pk>/{verb}",
                view(require_POST(self.switch_view)),
                {"verb": verb},
                name=f"configcenter_configuration_{verb}",
            )
            for verb in ("revert", "deactivate")
        ]
        return [*buttons, *super().get_urls()]

    # --- the list -------------------------------------------------------------------------------

    @display(description=_("kind"), ordering="kind")
    def kind_label(self, row: Configuration) -> str:
        return kind_title(row.kind)

    @display(description=_("project"), ordering="project__name")
    def owner(self, row: Configuration) -> str:
        """Name of the project, or of the platform."""
        return row.owner_label

    @display(description=_("active version"), label={"active": "success", "none": "warning"})
    def active_label(self, row: Configuration) -> tuple[str, str]:
        if row.active is None:
            return "none", gettext("none")
        return "active", f"v{row.active.number}"

    @display(description=_("newest"), ordering="newest")
    def newest_label(self, row: Configuration) -> str:
        return f"v{row.newest}" if row.newest else "–"

    @display(description=_("rollout"), label={"all": "success", "some": "danger"})
    def running(self, row: Any) -> tuple[str, str]:
        """Roll-out of the active version as text: ``7 of 8 on v42``."""
        rollout: RolloutCount = row.rollout
        tone = "idle" if not rollout.of else "all" if rollout.complete else "some"
        return tone, rollout_text(rollout)

    # --- the page of one ------------------------------------------------------------------------

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the active version, its processes, and recent versions and activations."""
        row = cast("Configuration | None", self.get_object(request, object_id))
        if row is None:
            raise Http404
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        rollout = rollouts_of([row])[row.pk]
        versions = list(row.versions.defer("content").order_by("-number")[:LATEST])
        context = {
            **self.admin_site.each_context(request),
            "title": kind_title(row.kind),
            "subtitle": row.owner_label,
            "opts": self.opts,
            "media": self.media,
            "row": row,
            "active": row.active,
            "rollout": rollout,
            "rollout_text": rollout_text(rollout),
            "versions": [(version, rollout.count(version.number)) for version in versions],
            "activations": row.activations.select_related("version", "previous").defer(
                "version__content", "previous__content"
            )[:LATEST],
            "may_edit": row.project_id in projects_of(request, Role.EDITOR),
            "may_revert": row.project_id in projects_of(request, Role.OPERATOR)
            and row.activations.filter(previous__isnull=False).exists(),
            "all_versions": reverse("admin:configcenter_configversion_changelist")
            + f"?configuration__kind={row.kind}&{_of_owner(row)}",
            "new_version": reverse("admin:configcenter_configuration_add")
            + f"?kind={row.kind}&project={row.project_id or ''}",
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/configcenter/configuration.html", context)

    def switch_view(self, request: HttpRequest, pk: int, *, verb: str) -> HttpResponse:
        """Revert or deactivate; fails if the active version is not the one that the page showed."""
        row = Configuration.objects.visible_to(request.user).filter(pk=pk).first()
        if row is None:
            raise Http404
        role = Role.OPERATOR if verb == "revert" else Role.EDITOR
        if row.project_id not in projects_of(request, role):
            raise PermissionDenied
        back = reverse("admin:configcenter_configuration_change", args=[pk])
        if verb == "deactivate":
            confirmation = ask_first(
                request,
                verb=gettext("Deactivate"),
                loss=gettext("No version is in effect until one is activated."),
                ids=[pk],
                names=[row],
                back=back,
                final=False,
            )
            if confirmation is not None:
                return confirmation
        switch = services.revert if verb == "revert" else services.deactivate
        try:
            done = switch(
                configuration=row,
                actor=person_of(request),
                now=timezone.now(),
                note=typed_note(request),
                instead_of=seen_number(request),
            )
        except DomainError as error:
            messages.error(request, str(error.detail))
        else:
            messages.success(request, switched_text(done.version))
        return HttpResponseRedirect(back)

    # --- a new version --------------------------------------------------------------------------

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Form of a new version. ``?kind=&project=`` preselect; ``&version=`` loads other data than
        the newest.
        """
        if not self.has_add_permission(request):
            raise PermissionDenied
        choice = ChoiceForm(request, request.GET if "kind" in request.GET else None)
        context = {
            **self.admin_site.each_context(request),
            "title": _("New version"),
            "opts": self.opts,
            "media": self.media,
            "choice": choice,
        }
        if not choice.is_valid():
            return TemplateResponse(request, "admin/configcenter/choose.html", context)
        kind = services.kind_named(choice.cleaned_data["kind"])
        project = choice.cleaned_data["project"]
        rows = Configuration.objects.filter(kind=kind.name, project=project, newest__gte=1)
        row = rows.select_related("active", "project").first()
        if request.method == "POST":
            form = VersionForm(request.POST)
            looked = None
            if form.is_valid():
                answer = self._take(request, form, kind, project, row)
                if isinstance(answer, HttpResponse):
                    return answer
                looked = answer
            context |= {"looked": looked}
        else:
            form = VersionForm(initial=_begin(request, kind, row))
        context |= {
            "form": form,
            "kind_title": kind_title(kind.name),
            "project": project or gettext("Platform"),
            "row": row,
        }
        return TemplateResponse(request, "admin/configcenter/edit.html", context)

    def _take(
        self,
        request: HttpRequest,
        form: VersionForm,
        kind: services.ConfigKind,
        project: Model | None,
        row: Configuration | None,
    ) -> HttpResponse | VersionPreview | None:
        """Save or preview the form. Refusals become form errors, and None is returned."""
        values = form.cleaned_data
        # A text area sends every line end as two characters.
        text = values["text"].replace("\r\n", "\n")
        try:
            data = services.read_text(kind=kind.name, text=text)
            if "look" in request.POST:
                return _preview(kind, data, row)
            saved = _save(person_of(request), kind, project, data, values)
        except DomainError as error:
            lines = [str(message) for texts in error.fields.values() for message in texts]
            is_list = error.code == "bad_config"
            form.add_error("text" if is_list else None, lines if is_list else str(error.detail))
            return None
        message = _("v%(number)d saved.") if saved.created else _("No changes since v%(number)d.")
        messages.success(request, message % {"number": saved.version.number})
        for warning in saved.warnings:
            messages.warning(request, str(warning))
        address = "admin:configcenter_configversion_change"
        return HttpResponseRedirect(reverse(address, args=[saved.version.pk]))


@transaction.atomic
def _save(
    person: User | None,
    kind: services.ConfigKind,
    project: Model | None,
    data: Data,
    values: dict[str, Any],
) -> services.SaveResult:
    now = timezone.now()
    saved = services.save_version(
        kind=kind.name,
        project_id=None if project is None else project.pk,
        data=data,
        actor=person,
        now=now,
        note=values["note"],
        based_on=values["based_on"],
    )
    if values["activate"] and saved.version.configuration.active_id != saved.version.pk:
        services.activate(version=saved.version, actor=person, now=now, note=values["note"])
    return saved


def _of_owner(row: Configuration) -> str:
    if row.project_id is None:
        return "configuration__project__isnull=True"
    return f"configuration__project__id__exact={row.project_id}"


def typed_note(request: HttpRequest) -> str:
    """Text of the note field, without NUL characters, which databases reject."""
    return request.POST.get("note", "").replace("\x00", "")


def seen_number(request: HttpRequest) -> int:
    """Number of the active version that the page showed when it was submitted."""
    text = request.POST.get("instead_of", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else ANY


def switched_text(version: ConfigVersion | None) -> str:
    """Message that names the version that is active now."""
    if version is None:
        return gettext("Configuration deactivated: no version is active.")
    return gettext("v%(number)d is now active.") % {"number": version.number}


def _begin(
    request: HttpRequest, kind: services.ConfigKind, row: Configuration | None
) -> dict[str, Any]:
    if row is None:
        return {"text": "", "based_on": 0}
    version_text = request.GET.get("version", "")
    number = (
        int(version_text)
        if version_text.isascii() and version_text.isdigit() and len(version_text) < 10
        else row.newest
    )
    version = row.versions.filter(number=number).first()
    if version is None:
        raise Http404
    return {"text": text_of(kind, version.data), "based_on": row.newest}


def _preview(
    kind: services.ConfigKind, data: dict[str, Any], row: Configuration | None
) -> VersionPreview:
    tried = services.check_data(kind_name=kind.name, data=data, configuration=row)
    services.refuse_errors(tried.problems)
    return VersionPreview(
        difference(tried.changes), tuple(str(problem) for problem in tried.problems)
    )
