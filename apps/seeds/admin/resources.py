"""Admin of resources: score, lease holder, ban, disable, release."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince, timeuntil
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action, display

from apps.access.admin import ProjectScopedAdmin, asks_first, confirmed, shows_refusals
from apps.access.admin.base import person_of, projects_of
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.runtime.fields import CLEAR
from apps.runtime.queries import database_now
from apps.seeds.admin.pools import CSS
from apps.seeds.engine.resource_files import BadName, BadSecret, checked_name, checked_secret
from apps.seeds.models import Resource, ResourcePool
from apps.seeds.services import pools
from apps.seeds.states import ResourceState

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Resource]
else:
    _ModelForm = forms.ModelForm

TONES = {"free": "success", "leased": "info", "cooling": "warning", "banned": "danger"}
FIGURES = (
    ("state", "reason"),
    ("score", "failures_in_a_row"),
    ("leased_by", "leased_until"),
    ("available_at", "last_used_at"),
    ("used_count", "expired_count"),
    ("succeeded_count", "failed_count"),
    ("late_count", "banned_at"),
)
Decide = Callable[..., Resource]


class ResourceForm(_ModelForm):
    """Name and secret of a resource; the secret is write-only."""

    class Meta:
        model = Resource
        fields = ("pool", "name", "secret")

    def clean_name(self) -> str:
        """Return the normalized name."""
        try:
            return checked_name(self.cleaned_data["name"])
        except BadName as error:
            raise forms.ValidationError(str(error)) from None

    def clean_secret(self) -> Any:
        """Return the normalized secret; an empty field keeps the stored one."""
        secret = self.cleaned_data["secret"]
        if not secret and self.instance.pk is not None:
            return ""
        if secret is CLEAR:
            raise forms.ValidationError(_("A resource needs a secret. Enter a new one."))
        try:
            return checked_secret(secret or "")
        except BadSecret as error:
            raise forms.ValidationError(str(error)) from None


@admin.register(Resource)
class ResourceAdmin(ProjectScopedAdmin):
    """Admin of resources. Editors add them and change secrets; operators ban, disable and
    release.
    """

    form = ResourceForm
    list_display = ("name_of", "standing", "score_bar", "uses", "used", "holder")
    list_filter = (("pool", VisibleRelatedFilter), "state")
    list_filter_submit = True
    list_select_related = ("pool__project",)
    search_fields = ("name", "leased_by", "reason")
    search_help_text = _("Name, holder or reason")
    list_per_page = 100
    actions = (
        "ban_selected",
        "unban_selected",
        "disable_selected",
        "enable_selected",
        "release_selected",
        "reset_selected",
    )
    actions_detail: ClassVar[list[str]] = ["ban", "unban", "disable", "enable", "release", "reset"]

    class Media:
        css = {"all": CSS}

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show the form, followed by the state of an existing resource."""
        form = (None, {"fields": (("pool", "name"), "secret")})
        return (form,) if obj is None else (form, (_("State"), {"fields": FIGURES}))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Make the fields read-only that only leases and buttons change; a resource stays in its
        pool.
        """
        if obj is None:
            return ()
        return ("pool", *(name for pair in FIGURES for name in pair))

    # --- the list -------------------------------------------------------------------------------

    @display(description=_("resource"), ordering="name")
    def name_of(self, resource: Resource) -> SafeString:
        """Name of the resource and of its pool."""
        return format_html(
            '<span class="cy-resource-name">{}</span><span class="cy-resource-pool">{}</span>',
            resource.name,
            resource.pool,
        )

    @display(description=_("state"), ordering="state", label=TONES)
    def standing(self, resource: Resource) -> tuple[str, Any]:
        """State: free, cooling down, leased, banned or disabled."""
        if resource.state == ResourceState.FREE and resource.available_at > timezone.now():
            return "cooling", gettext("cooling down")
        return resource.state, resource.get_state_display()

    @display(description=_("score"), ordering="score")
    def score_bar(self, resource: Resource) -> SafeString:
        """Moving average of about the last ten uses."""
        percent = round(100 * resource.score)
        return format_html(
            '<span class="cy-score" title="{}"><svg class="cy-bar" role="img" aria-label="{}"'
            ' viewBox="0 0 100 1" preserveAspectRatio="none"><rect class="{}" height="1"'
            ' width="{}"></rect></svg><span class="cy-figure-cell">{}</span></span>',
            gettext("consecutive failures: %(count)d") % {"count": resource.failures_in_a_row},
            gettext("score %(percent)d of 100") % {"percent": percent},
            "cy-bar-success" if percent >= 50 else "cy-bar-failed",
            percent,
            f"{resource.score:.2f}",
        )

    @display(description=_("ok / not ok"), ordering="used_count")
    def uses(self, resource: Resource) -> SafeString:
        """Successful and failed uses."""
        return format_html(
            '<span class="cy-figure-cell" title="{}">{} / {}</span>',
            gettext("%(count)d uses") % {"count": resource.used_count},
            f"{resource.succeeded_count:,}",
            f"{resource.failed_count:,}",
        )

    @display(description=_("last used"), ordering="last_used_at")
    def used(self, resource: Resource) -> SafeString | str:
        """Time since the last use."""
        if resource.last_used_at is None:
            return gettext("never")
        return _moment(resource.last_used_at, gettext("%(time)s ago"), timesince)

    @display(description=_("leased by, reason"), ordering="leased_by")
    def holder(self, resource: Resource) -> SafeString:
        """Lease holder and end of the lease, or when the resource is free; then the latest
        reason.
        """
        holder, moment = "", SafeString("")
        if resource.state == ResourceState.LEASED and resource.leased_until is not None:
            holder = resource.leased_by
            moment = _moment(resource.leased_until, gettext("for %(time)s"), timeuntil)
        elif resource.state == ResourceState.FREE and resource.available_at > timezone.now():
            moment = _moment(resource.available_at, gettext("free in %(time)s"), timeuntil)
        return format_html(
            '<span class="cy-holder">{} {}</span><span class="cy-reason">{}</span>',
            holder,
            moment,
            resource.reason,
        )

    # --- writing --------------------------------------------------------------------------------

    def save_model(self, request: HttpRequest, obj: Model, form: Any, change: bool) -> None:
        """Save through the service, which writes an audit record and keeps the fields of the
        lease.
        """
        data = form.cleaned_data
        person = person_of(request)
        if change:
            stored = Resource.objects.select_related("pool").get(pk=obj.pk)
            if stored.pool.project_id not in projects_of(request, Role.EDITOR):
                raise PermissionDenied
            pools.change_resource(
                resource=stored, actor=person, name=data["name"], secret=data["secret"] or None
            )
            return
        pool = cast(ResourcePool, data["pool"])
        if pool.project_id not in projects_of(request, Role.EDITOR):
            raise PermissionDenied
        made = pools.create_resource(
            pool=pool, name=data["name"], secret=data["secret"], actor=person
        )
        obj.__dict__.update(made.__dict__)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Do nothing: a resource has no related objects."""

    # --- actions ---------------------------------------------------------------------------------

    def has_operate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether the user is an operator of the resource's project."""
        return self._may_decide(request, object_id, tuple(ResourceState))

    def has_ban_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Allow operators to ban a resource that is not banned."""
        states = (ResourceState.FREE, ResourceState.LEASED, ResourceState.DISABLED)
        return self._may_decide(request, object_id, states)

    def has_unban_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Allow operators to unban a banned resource."""
        return self._may_decide(request, object_id, (ResourceState.BANNED,))

    def has_disable_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Allow operators to disable a free or leased resource."""
        return self._may_decide(request, object_id, (ResourceState.FREE, ResourceState.LEASED))

    def has_enable_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Allow operators to enable a disabled resource."""
        return self._may_decide(request, object_id, (ResourceState.DISABLED,))

    def has_release_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Allow operators to release a leased resource."""
        return self._may_decide(request, object_id, (ResourceState.LEASED,))

    def _may_decide(
        self, request: HttpRequest, object_id: str | None, states: tuple[ResourceState, ...]
    ) -> bool:
        """Return whether to show a button: by role and state; without an object, by role in any
        project.
        """
        projects = projects_of(request, Role.OPERATOR)
        if object_id is None:
            return bool(projects)
        resource = cast("Resource | None", self.get_object(request, object_id))
        if resource is None or resource.pool.project_id not in projects:
            return False
        return resource.state in states

    @action(description=_("Ban"), permissions=["ban"], url_path="ban")
    @confirmed(
        _("Ban this resource? It is not leased again until the ban is lifted."), verb=_("Ban")
    )
    @shows_refusals
    def ban(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Exclude the resource from leasing until it is unbanned."""
        return self._decide(request, object_id, _ban(), gettext("Banned."))

    @action(description=_("Lift the ban"), permissions=["unban"], url_path="unban")
    @confirmed(_("Lift the ban on this resource?"), verb=_("Lift the ban"))
    @shows_refusals
    def unban(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Lift the ban; the resource is free at once."""
        done = partial(pools.unban, now=database_now())
        return self._decide(request, object_id, done, gettext("Released."))

    @action(description=_("Disable"), permissions=["disable"], url_path="disable")
    @confirmed(_("Disable this resource? It is not leased until it is enabled."), verb=_("Disable"))
    @shows_refusals
    def disable(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Exclude the resource from leasing until it is enabled."""
        return self._decide(request, object_id, pools.disable, gettext("Disabled."))

    @action(description=_("Enable"), permissions=["enable"], url_path="enable")
    @confirmed(_("Lift the ban on this resource?"), verb=_("Enable"))
    @shows_refusals
    def enable(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Make a disabled resource available again."""
        done = partial(pools.enable, now=database_now())
        return self._decide(request, object_id, done, gettext("Released."))

    @action(description=_("Release"), permissions=["release"], url_path="release")
    @confirmed(
        _("End the lease of this resource? Its holder may still use it for a while."),
        verb=_("Release"),
    )
    @shows_refusals
    def release(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End its lease."""
        done = partial(pools.release, now=database_now())
        return self._decide(request, object_id, done, gettext("Released."))

    @action(description=_("Reset score"), permissions=["operate"], url_path="reset")
    @confirmed(_("Reset failures and score of this resource?"), verb=_("Reset score"))
    @shows_refusals
    def reset(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Reset score, failures and cool-down."""
        done = partial(pools.reset, now=database_now())
        return self._decide(request, object_id, done, gettext("Score reset."))

    def _decide(
        self, request: HttpRequest, object_id: str, decide: Decide, text: str
    ) -> HttpResponse:
        resource = cast("Resource | None", self.get_object(request, object_id))
        if resource is None or not self.has_operate_permission(request, object_id):
            raise PermissionDenied
        decide(resource=resource, actor=person_of(request))
        messages.success(request, text)
        return HttpResponseRedirect(reverse("admin:seeds_resource_change", args=[object_id]))

    @action(description=_("Ban"), permissions=["operate"])
    @asks_first(
        verb=_("Ban"), loss=_("They are not leased again until the ban is lifted."), final=False
    )
    def ban_selected(self, request: HttpRequest, queryset: QuerySet[Resource]) -> None:
        """Exclude the resources from leasing until they are unbanned."""
        self._decide_all(request, queryset, _ban())

    @action(description=_("Lift the ban"), permissions=["operate"])
    def unban_selected(self, request: HttpRequest, queryset: QuerySet[Resource]) -> None:
        """Lift the bans; the resources are free at once."""
        self._decide_all(request, queryset, partial(pools.unban, now=database_now()))

    @action(description=_("Disable"), permissions=["operate"])
    def disable_selected(self, request: HttpRequest, queryset: QuerySet[Resource]) -> None:
        """Exclude the resources from leasing until they are enabled."""
        self._decide_all(request, queryset, pools.disable)

    @action(description=_("Enable"), permissions=["operate"])
    def enable_selected(self, request: HttpRequest, queryset: QuerySet[Resource]) -> None:
        """Make the disabled resources available again."""
        self._decide_all(request, queryset, partial(pools.enable, now=database_now()))

    @action(description=_("Release"), permissions=["operate"])
    @asks_first(
        verb=_("Release"), loss=_("Their leases end. Their holders may still use them for a while.")
    )
    def release_selected(self, request: HttpRequest, queryset: QuerySet[Resource]) -> None:
        """End their leases."""
        self._decide_all(request, queryset, partial(pools.release, now=database_now()))

    @action(description=_("Reset score"), permissions=["operate"])
    @asks_first(verb=_("Reset score"), loss=_("Their failures and scores are reset."))
    def reset_selected(self, request: HttpRequest, queryset: QuerySet[Resource]) -> None:
        """Reset scores, failures and cool-downs."""
        self._decide_all(request, queryset, partial(pools.reset, now=database_now()))

    def _decide_all(
        self, request: HttpRequest, queryset: QuerySet[Resource], decide: Decide
    ) -> None:
        """Apply ``decide`` to each resource; report how many are in a state that does not allow
        it.
        """
        rows = list(queryset)
        projects = projects_of(request, Role.OPERATOR)
        if not all(resource.pool.project_id in projects for resource in rows):
            raise PermissionDenied
        done, refused = 0, 0
        for resource in rows:
            try:
                decide(resource=resource, actor=person_of(request))
                done += 1
            except DomainError:
                refused += 1
        if done:
            text = ngettext("%(count)d resource updated.", "%(count)d resources updated.", done)
            messages.success(request, text % {"count": done})
        if refused:
            text = ngettext(
                "%(count)d resource skipped: its state does not allow this.",
                "%(count)d resources skipped: their states do not allow this.",
                refused,
            )
            messages.warning(request, text % {"count": refused})


def _ban() -> Decide:
    return partial(pools.ban, now=database_now())


def _moment(at: datetime, text: str, describe: Callable[[datetime], str]) -> SafeString:
    description = describe(at).split(",")[0]
    return format_html(
        '<time class="cy-moment" datetime="{}" title="{}">{}</time>',
        at.isoformat(),
        timezone.localtime(at).strftime("%Y-%m-%d %H:%M:%S"),
        text % {"time": description},
    )
