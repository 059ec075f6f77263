"""Admin of projects: members, git and build settings, webhook and registry."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Model, QuerySet
from django.forms import ModelForm, Script
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from apps.access.admin.base import ProjectScopedAdmin, ProjectScopedInline, person_of, projects_of
from apps.access.admin.confirm import ask_first
from apps.access.admin.deleted import RestorableAdmin
from apps.access.errors import DomainError
from apps.access.models import Membership
from apps.access.states import Role
from apps.projects.admin.forms import ProjectForm
from apps.projects.admin.tags import tags_page
from apps.projects.admin.webhook import webhook_page
from apps.projects.engine.signatures import new_secret
from apps.projects.models import Project
from apps.projects.services import (
    delete_project,
    refresh_images,
    reveal_webhook_secret,
    rotate_webhook_secret,
)
from apps.projects.services.webhook_setup import webhook_address


class MemberInline(ProjectScopedInline):
    """Inline of members and their roles, for admins of the project."""

    model = Membership
    tab = True
    view_role = Role.ADMIN
    add_role = Role.ADMIN
    change_role = Role.ADMIN
    delete_role = Role.ADMIN
    fields = ("user", "role")
    verbose_name = _("member")
    verbose_name_plural = _("members")


@admin.register(Project)
class ProjectAdmin(RestorableAdmin, ProjectScopedAdmin):
    """Admin of projects: superusers add and delete projects, admins of a project change it."""

    form = ProjectForm
    add_role = Role.ADMIN
    change_role = Role.ADMIN
    delete_role = Role.ADMIN
    inlines = (MemberInline,)
    list_display = ("name", "slug", "git_url", "description", "members", "created_at")
    search_fields = ("name", "slug", "description", "git_url")
    prepopulated_fields: ClassVar[dict[str, tuple[str, ...]]] = {"slug": ("name",)}
    readonly_fields = ("created_at", "updated_at", "deliveries_to")
    fieldsets = (
        (
            _("Project"),
            {
                "classes": ["tab"],
                "fields": (
                    ("name", "slug"),
                    "description",
                    "allowed_networks",
                    ("created_at", "updated_at"),
                ),
            },
        ),
        (
            _("Git"),
            {
                "classes": ["tab"],
                "fields": (
                    "git_url",
                    "git_username",
                    "git_password",
                    "tag_template",
                    "default_branch",
                ),
            },
        ),
        (_("Webhook"), {"classes": ["tab"], "fields": ("deliveries_to", "webhook_secret")}),
        (
            _("Build"),
            {
                "classes": ["tab"],
                "fields": (
                    "builds_enabled",
                    "dockerfile",
                    "build_script",
                    "build_arguments",
                    "build_timeout_seconds",
                    "max_image_bytes",
                ),
            },
        ),
        (
            _("Registry"),
            {
                "classes": ["tab"],
                "fields": (
                    "registry_url",
                    "registry_repository",
                    "registry_username",
                    "registry_password",
                ),
            },
        ),
        (
            _("Retention"),
            {
                "classes": ["tab"],
                "description": _(
                    "Retention of the items of each job, request group and source that has no"
                    " retention of its own. Pinned runs stay."
                ),
                "fields": ("keep_days", "keep_runs", "keep_bytes"),
            },
        ),
    )

    class Media:
        css = {"all": ["dashboard/dashboard.css", "projects/projects.css"]}
        js = [Script("access/copy.js", defer=True)]

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Make networks read-only except for superusers, as in ``change_project``."""
        person = person_of(request)
        shown = super().get_readonly_fields(request, obj)
        if person is not None and person.rules_everything:
            return shown
        return (*shown, "allowed_networks")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        """Annotate projects with the number of members."""
        rows = super().get_queryset(request)
        return cast("QuerySet[Model]", rows.annotate(member_count=Count("memberships")))

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the pages about tags and webhook, and of the registry button."""
        view = self.admin_site.admin_view
        refresh = view(require_POST(self.refresh_view))
        return [
            path("<int:pk>/tags", view(self.tags_view), name="projects_project_tags"),
            path("<int:pk>/webhook", view(self.webhook_view), name="projects_project_webhook"),
            path(
                "<path:object_id>/webhook/rotate",
                view(self.rotate_view),
                name="projects_project_rotate",
            ),
            path("<int:pk>/images/refresh", refresh, name="projects_project_refresh"),
            *super().get_urls(),
        ]

    @admin.display(description=_("members"), ordering="member_count")
    def members(self, project: Any) -> int:
        """Number of members."""
        count: int = project.member_count
        return count

    @admin.display(description=_("webhook address"))
    def deliveries_to(self, project: Project) -> SafeString | str:
        """URL of the webhook, with a link to its setup."""
        if project.pk is None:
            return gettext("Shown here once the project is saved.")
        return format_html(
            '<code class="cy-address">{}</code> <a class="cy-strong" href="{}">{}</a>',
            webhook_address(project),
            reverse("admin:projects_project_webhook", args=[project.pk]),
            gettext("Setup and secret"),
        )

    def save_model(
        self, request: HttpRequest, obj: Model, form: ModelForm[Any], change: bool
    ) -> None:
        """Save through the services; a new project gets a webhook secret."""
        if not change and isinstance(obj, Project) and not obj.has_secret("webhook_secret"):
            obj.webhook_secret = new_secret()
        super().save_model(request, obj, form, change)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the form with the allowed buttons."""
        extra = dict(extra_context or {})
        project = cast("Project | None", self.get_object(request, object_id))
        if project is not None:
            extra["may_refresh"] = bool(
                project.registry_url and project.pk in projects_of(request, Role.OPERATOR)
            )
            extra["builds"] = (
                reverse("admin:projects_build_changelist") + f"?project__id__exact={project.pk}"
            )
            extra["deliveries"] = (
                reverse("admin:projects_delivery_changelist") + f"?project__id__exact={project.pk}"
            )
        return cast(HttpResponse, super().change_view(request, object_id, form_url, extra))

    # --- pages ------------------------------------------------------------------------------------

    def tags_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Preview how a tag is parsed (GET), or list the tags of the git server (POST)."""
        project = self._project(request, pk, Role.VIEWER)
        may_test = pk in projects_of(request, Role.EDITOR)
        if request.method == "POST" and not may_test:
            raise PermissionDenied
        context = self._context(request)
        context["may_build"] = pk in projects_of(request, Role.OPERATOR)
        return tags_page(request, project, context, may_test=may_test)

    def webhook_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the webhook setup without (GET) or with (POST) the secret."""
        may_reveal = pk in projects_of(request, Role.EDITOR)
        project = self._project(request, pk, Role.VIEWER)
        secret = None
        if request.method == "POST":
            self._project(request, pk, Role.EDITOR)
            secret = reveal_webhook_secret(project=project, actor=person_of(request))
        context = self._context(request) | {
            "may_reveal": may_reveal,
            "may_rotate": pk in projects_of(request, Role.ADMIN),
        }
        return never_cache(webhook_page)(request, project, context, secret)

    def rotate_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Replace the secret after a confirmation, and show the new secret."""
        if not object_id.isascii() or not object_id.isdigit() or len(object_id) > 18:
            raise Http404
        project = self._project(request, int(object_id), Role.ADMIN)
        page = ask_first(
            request,
            verb=_("New secret"),
            loss=_("Replace the secret? Deliveries signed with the old one will be refused."),
            ids=[project.pk],
            names=[project],
            back=reverse("admin:projects_project_webhook", args=[project.pk]),
        )
        if page is not None:
            return page
        secret = rotate_webhook_secret(project=project, actor=person_of(request))
        messages.success(
            request, gettext("The secret was replaced; the old one is no longer valid.")
        )
        context = self._context(request) | {"may_reveal": True, "may_rotate": True}
        return never_cache(webhook_page)(request, project, context, secret)

    def refresh_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """List the images of the registry and show the result."""
        project = self._project(request, pk, Role.OPERATOR)
        try:
            refreshed = refresh_images(
                project=project, now=timezone.now(), actor=person_of(request)
            )
        except DomainError as error:
            messages.error(request, error.text)
        else:
            text = gettext(
                "%(added)d images were added, %(moved)d have a new digest, %(known)d were known."
            )
            counts = {
                "added": len(refreshed.added),
                "moved": len(refreshed.moved),
                "known": len(refreshed.known),
            }
            messages.success(request, text % counts)
            if refreshed.differ:
                text = gettext("Not updated, since they are listed with other digests: %(list)s")
                messages.warning(request, text % {"list": ", ".join(refreshed.differ)})
        return HttpResponseRedirect(reverse("admin:projects_project_change", args=[pk]))

    def _project(self, request: HttpRequest, pk: int, role: Role) -> Project:
        project = Project.objects.visible_to(request.user).filter(pk=pk).first()
        if project is None:
            raise Http404
        if pk not in projects_of(request, role):
            raise PermissionDenied
        return project

    def _context(self, request: HttpRequest) -> dict[str, Any]:
        return {**self.admin_site.each_context(request), "opts": self.opts, "media": self.media}

    # --- permissions ------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Allow only superusers: a new project has no members."""
        person = person_of(request)
        return person is not None and person.rules_everything

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Allow only superusers."""
        return self.has_add_permission(request)

    def get_prepopulated_fields(
        self, request: HttpRequest, obj: Model | None = None
    ) -> dict[str, Any]:
        """Prepopulate only an editable form: Django requires that the form has the fields."""
        if obj is not None:
            return {}
        return dict(self.prepopulated_fields)

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        """Delete through the service, which refuses to delete the default project."""
        delete_project(actor=person_of(request), project=cast(Project, obj))
