"""Admin of notification channels: a form per kind; secrets are write-only."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET
from unfold.decorators import action, display
from unfold.widgets import (
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.base import person_of, projects_of, shows_refusals
from apps.access.admin.confirm import confirmed
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.states import Role
from apps.alerts.admin.styles import CSS, NOTICE_TONES, result_text
from apps.alerts.errors import BadChannel
from apps.alerts.models import Channel
from apps.alerts.queries.recipients import run_end_counts
from apps.alerts.services.channel_fields import read_fields, shown_host
from apps.alerts.services.channel_kinds import FIELDS, ChannelField
from apps.alerts.services.channels import change_channel, create_channel, delete_channel
from apps.alerts.services.delivery import secrets_of
from apps.alerts.services.notices import send_test
from apps.alerts.services.subscriptions import subscribe
from apps.alerts.states import ChannelKind
from apps.jobs.models import Job
from apps.projects.admin.project_choice import number_in
from apps.projects.models import Project
from apps.runtime.fields import CLEAR, SealedText, SecretFormField, SecretInput

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Channel]
else:
    _ModelForm = forms.ModelForm

SHOWN_NOTICES: Final = 10
ICONS: Final = {
    ChannelKind.MAIL: "mail",
    ChannelKind.SMS: "sms",
    ChannelKind.WEBHOOK: "webhook",
    ChannelKind.DINGTALK: "smart_toy",
    ChannelKind.WECOM: "forum",
    ChannelKind.FEISHU: "near_me",
    ChannelKind.SLACK: "tag",
    ChannelKind.TEAMS: "groups",
    ChannelKind.DISCORD: "sports_esports",
    ChannelKind.TELEGRAM: "send",
    ChannelKind.PAGERDUTY: "pager",
    ChannelKind.OPSGENIE: "emergency",
    ChannelKind.NTFY: "notifications",
}
_HINTS: Final = {
    ChannelKind.MAIL: _("E-mail, through the mail server of this installation."),
    ChannelKind.SMS: _("Text messages, through any gateway with an HTTP API."),
    ChannelKind.WEBHOOK: _("Signed JSON, posted to an HTTP endpoint of your own."),
    ChannelKind.DINGTALK: _("DingTalk group, through its custom robot."),
    ChannelKind.WECOM: _("WeCom group, through its robot."),
    ChannelKind.FEISHU: _("Feishu or Lark group, through its custom robot."),
    ChannelKind.SLACK: _("Slack channel, through an incoming webhook."),
    ChannelKind.TEAMS: _("Teams channel or chat, through a workflow webhook."),
    ChannelKind.DISCORD: _("Discord channel, through its webhook."),
    ChannelKind.TELEGRAM: _("Telegram chat or group, through a bot."),
    ChannelKind.PAGERDUTY: _("Alerts in PagerDuty, resolved when the incident ends."),
    ChannelKind.OPSGENIE: _("Alerts in Opsgenie, closed when the incident ends."),
    ChannelKind.NTFY: _("Push messages on phones and desktops, through ntfy."),
}
_NOTIFY: Final = (
    ("failure", _("failed, lost and missed runs")),
    ("end", _("each end of a run")),
    ("", _("what alert rules send")),
)
# Prefix of the kind's own form fields, so that none clashes with a model field.
_OWN: Final = "own_"


class ChannelForm(_ModelForm):
    """Fields shared by all channel kinds; ``form_of`` adds those of one kind."""

    kind_of: ClassVar[str] = ChannelKind.MAIL

    class Meta:
        model = Channel
        fields = ("project", "name", "language", "enabled")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stored = secrets_of(self.instance) if self.instance.pk else {}
        for field in FIELDS[self.kind_of]:
            shown = self.fields[_OWN + field.name]
            if field.is_secret:
                # Shows only that a secret is stored, never its value.
                shown.initial = SealedText("") if field.name in self.stored else ""
            else:
                value = self.instance.settings.get(field.name, field.default)
                shown.initial = _as_text(value) if self.instance.pk else _as_text(field.default)

    def typed(self) -> dict[str, Any]:
        """Return the submitted values by the names in ``channel_fields``."""
        values: dict[str, Any] = {}
        for field in FIELDS[self.kind_of]:
            value = self.cleaned_data.get(_OWN + field.name)
            if value is CLEAR:
                values[field.name] = ""
            elif field.is_secret and not value:
                continue
            else:
                values[field.name] = value
        return values

    def clean(self) -> dict[str, Any]:
        """Validate with the service's reader and attach its errors to the fields."""
        values: dict[str, Any] = super().clean() or {}
        try:
            read_fields(self.kind_of, self.typed(), stored=self.stored)
        except BadChannel as error:
            for name, texts in error.fields.items():
                self.add_error(_OWN + name, [str(text) for text in texts])
        return values


def form_of(kind: str, *, adding: bool) -> type[ChannelForm]:
    """Return the form class for a channel kind."""
    own = {_OWN + field.name: _form_field(field) for field in FIELDS[kind]}
    if adding:
        own["notify"] = forms.ChoiceField(
            label=_("Notify of"),
            required=False,
            choices=_NOTIFY,
            initial="failure",
            widget=UnfoldAdminSelectWidget,
            help_text=_("Of all jobs of the project; more on the pages of jobs and rules."),
        )
    return cast("type[ChannelForm]", type("ChannelForm", (ChannelForm,), {"kind_of": kind, **own}))


def _form_field(field: ChannelField) -> forms.Field:
    about: dict[str, Any] = {"label": field.label, "help_text": field.help, "required": False}
    if field.is_secret:
        return SecretFormField(**about, widget=_secret_input())
    if field.asks == "flag":
        return forms.BooleanField(**about, widget=UnfoldBooleanSwitchWidget())
    if field.asks == "choice":
        return forms.ChoiceField(**about, choices=field.choices, widget=UnfoldAdminSelectWidget())
    if field.asks == "lines":
        widget = UnfoldAdminTextareaWidget({"rows": 4, "spellcheck": "false"})
        return forms.CharField(**about, widget=widget)
    return forms.CharField(**about, widget=UnfoldAdminTextInputWidget({"spellcheck": "false"}))


def _secret_input() -> SecretInput:
    look = UnfoldAdminTextInputWidget()
    return SecretInput(attrs={"class": look.attrs.get("class", "")})


def _as_text(value: Any) -> Any:
    if isinstance(value, list):
        return "\n".join(value)
    if isinstance(value, dict):
        return "\n".join(f"{name}: {text}" for name, text in value.items())
    return value


def _notices(channel: Channel) -> dict[str, Any]:
    rows = channel.notices.select_related("incident")[:SHOWN_NOTICES]
    shown = [(row, NOTICE_TONES[row.state], result_text(row)) for row in rows]
    return {"channel": channel, "notices": shown, "ends": run_end_counts(channel)}


def _job_of(request: HttpRequest) -> Job | None:
    """Return the job of whose page the user came, if the user may edit it."""
    jobs: Any = Job.objects.visible_to(request.user, Role.EDITOR)
    job: Job | None = jobs.filter(pk=number_in(request.GET.get("job", "")) or 0).first()
    return job


@admin.register(Channel)
class ChannelAdmin(ProjectScopedAdmin):
    """Editors manage channels of their projects; users who see every project, the platform's."""

    list_display = ("name", "kind_text", "scope", "recipients", "language", "status", "updated_at")
    list_filter = ("kind", "enabled", ("project", VisibleRelatedFilter))
    list_filter_submit = True
    list_select_related = ("project",)
    search_fields = ("name",)
    actions_detail: ClassVar[list[str]] = ["send_test"]
    change_form_after_template = "admin/alerts/channel_notices.html"

    class Media:
        css: ClassVar = {"all": CSS}
        js: ClassVar = ["dashboard/live.js", "dashboard/fragment.js"]

    # --- the list -------------------------------------------------------------------------------

    @display(description=_("kind"), ordering="kind")
    def kind_text(self, channel: Channel) -> str:
        return str(channel.get_kind_display())

    @display(description=_("belongs to"), ordering="project")
    def scope(self, channel: Channel) -> str:
        """Return the project, or "the platform"."""
        return gettext("the platform") if channel.project is None else str(channel.project)

    @display(description=_("recipients"))
    def recipients(self, channel: Channel) -> str:
        """Return recipients or the server's host name, without secrets."""
        receivers = channel.settings.get("to") or channel.settings.get("numbers")
        if receivers:
            more = f" +{len(receivers) - 2}" if len(receivers) > 2 else ""
            return ", ".join(receivers[:2]) + more
        return shown_host(secrets_of(channel), channel.settings)

    @display(description=_("state"), ordering="enabled", label={True: "success", False: "warning"})
    def status(self, channel: Channel) -> tuple[bool, Any]:
        return channel.enabled, _("on") if channel.enabled else _("off")

    # --- the form -------------------------------------------------------------------------------

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Ask for the kind first, then show its form."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        kind = request.GET.get("kind", "")
        if kind not in ChannelKind.values:
            choices = [
                {
                    "kind": member.value,
                    "title": member.label,
                    "icon": ICONS[member],
                    "hint": _HINTS[member],
                }
                for member in ChannelKind
            ]
            context = {
                **self.admin_site.each_context(request),
                "title": _("New channel"),
                "choices": choices,
                "media": self.media,
                "opts": self.opts,
            }
            return TemplateResponse(request, "admin/alerts/channel_kinds.html", context)
        title = _("New channel: %(kind)s") % {"kind": ChannelKind(kind).label}
        response = super().add_view(request, form_url, {**(extra_context or {}), "title": title})
        assert isinstance(response, HttpResponse)  # noqa: S101 - for the type
        return response

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the form with the latest notifications below it."""
        channel = self.get_object(request, object_id)
        more = dict(extra_context or {})
        if isinstance(channel, Channel):
            more |= _notices(channel)
            rows = channel.subscriptions.visible_to(request.user)
            more["subscriptions"] = rows.select_related("job", "project")
            more["may_edit"] = self.has_change_permission(request, channel)
        response = super().change_view(request, object_id, form_url, more)
        assert isinstance(response, HttpResponse)  # noqa: S101 - for the type
        return response

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """Return the kind's form; only platform editors may leave the project empty."""
        made = super().get_form(
            request,
            obj,
            change,
            **{**kwargs, "form": form_of(self._kind(request, obj), adding=obj is None)},
        )
        project = made.base_fields.get("project")
        if project is not None and None not in projects_of(request, Role.EDITOR):
            project.required = True
        return made

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the shared fields, then those of the kind."""
        kind = self._kind(request, obj)
        own = tuple(_OWN + field.name for field in FIELDS[kind])
        return (
            (None, {"fields": (("project", "name"), ("language", "enabled"), *self._notify(obj))}),
            (
                str(ChannelKind(kind).label),
                {
                    "fields": own,
                    "description": _(
                        "Secrets are not shown after saving. Leave a secret field empty to keep "
                        "the stored value."
                    ),
                },
            ),
        )

    @staticmethod
    def _notify(obj: Any) -> tuple[str, ...]:
        return ("notify",) if obj is None else ()

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Suggest a free name, the project if there is one only, and the user's address."""
        kind = self._kind(request, None)
        taken = set(Channel.objects.filter(name__startswith=kind).values_list("name", flat=True))
        names = (kind if number == 1 else f"{kind}-{number}" for number in count(1))
        initial: dict[str, Any] = {"name": next(name for name in names if name not in taken)}
        if job := _job_of(request):
            initial["project"] = job.project_id
        elif None not in projects_of(request, Role.EDITOR):
            initial["project"] = Project.objects.visible_to(request.user, Role.EDITOR).first()
        person = person_of(request)
        if kind == ChannelKind.MAIL and person is not None:
            initial[f"{_OWN}to"] = person.email
        initial |= super().get_changeform_initial_data(request)
        return initial

    def get_queryset(self, request: HttpRequest) -> QuerySet[Channel]:
        """Leave out the channels of people."""
        return cast("QuerySet[Channel]", super().get_queryset(request).filter(person=None))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Name and project are fixed after creation, because rules refer to them."""
        return () if obj is None else ("project", "name")

    @staticmethod
    def _kind(request: HttpRequest, obj: Any) -> str:
        kind = obj.kind if obj is not None else request.GET.get("kind", "")
        return kind if kind in ChannelKind.values else ChannelKind.MAIL

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save through the service, which writes the audit record."""
        if obj.project_id not in projects_of(request, Role.EDITOR):
            raise PermissionDenied
        values: dict[str, Any] = {
            "typed": form.typed(),
            "actor": person_of(request),
            "language": obj.language,
            "enabled": obj.enabled,
        }
        if change:
            saved = change_channel(channel=obj, **values)
        else:
            saved = create_channel(
                project_id=obj.project_id, name=obj.name, kind=form.kind_of, **values
            )
            self._subscribe(request, saved, form.cleaned_data.get("notify", ""))
        obj.__dict__.update(saved.__dict__)

    def _subscribe(self, request: HttpRequest, channel: Channel, when: str) -> None:
        if not when:
            return
        job = _job_of(request)
        if job is not None and channel.project_id not in (None, job.project_id):
            job = None
        subscribe(
            channel=channel,
            project_id=channel.project_id,
            job=job,
            every_end=when == "end",
            actor=person_of(request),
        )

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Do nothing: a channel has no related objects."""

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete through the service, which refuses while rules use the channel."""
        delete_channel(channel=obj, actor=person_of(request))

    def get_urls(self) -> list[URLPattern]:
        """Add the part of a channel's page that refreshes itself."""
        live = self.admin_site.admin_view(require_GET(self.notices_view))
        name = "alerts_channel_notices"
        return [path("<int:pk>/notices", live, name=name), *super().get_urls()]

    def notices_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return the latest notifications of a channel."""
        channel = self.get_object(request, str(pk))
        if not isinstance(channel, Channel):
            raise Http404
        return TemplateResponse(request, "admin/alerts/channel_live.html", _notices(channel))

    # --- a test ---------------------------------------------------------------------------------

    def has_test_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Allow a test to users who may change the channel."""
        channel = self.get_object(request, str(object_id)) if object_id is not None else None
        return channel is not None and self.has_change_permission(request, channel)

    @action(description=_("Send a test"), permissions=["test"], url_path="test")
    @confirmed(_("Send a test through this channel? Its recipients get a message."), verb=_("Send"))
    @shows_refusals
    def send_test(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Queue a test notification; its result appears below the form."""
        channel = self.get_object(request, object_id)
        if not isinstance(channel, Channel):
            raise PermissionDenied
        send_test(channel=channel, actor=person_of(request), now=timezone.now())
        messages.success(request, gettext("Test queued. The response will be shown below."))
        return HttpResponseRedirect(reverse("admin:alerts_channel_change", args=[channel.pk]))
