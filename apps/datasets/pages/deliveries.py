"""Page of a dataset's deliveries: lag, accounting, a form for each kind of target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext, ngettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from apps.access.admin.forms import add_refusal
from apps.access.errors import DomainError
from apps.access.models import User
from apps.access.services import has_role
from apps.access.states import Role
from apps.datasets.engine.targets.files import DEFAULT_TEMPLATE, FORMATS
from apps.datasets.models import Dataset, Delivery
from apps.datasets.queries.deliveries import accountings
from apps.datasets.services import deliveries as service
from apps.datasets.states import DeliveryMode, Origin

_LETTERS_SHOWN: Final = 5
TITLES: Final[Mapping[str, Any]] = {
    "folder": _("Folder"),
    "s3": _("S3 bucket"),
    "table": _("Table of the platform"),
    "postgresql": "PostgreSQL",
    "mongodb": "MongoDB",
    "kafka": "Kafka",
    "rabbitmq": "RabbitMQ",
    "clickhouse": "ClickHouse",
    "webhook": _("Webhook"),
}
# Fields of a kind besides name and mode.
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "folder": ("folder", "format", "template"),
    "s3": ("url", "user", "password", "format", "template"),
    "table": ("table", "upsert"),
    "postgresql": ("url", "user", "password", "table", "upsert"),
    "mongodb": ("url", "user", "password", "collection", "upsert"),
    "kafka": ("url", "user", "password", "topic"),
    "rabbitmq": ("url", "user", "password", "queue"),
    "clickhouse": ("url", "user", "password", "table"),
    "webhook": ("url", "key"),
}
_ADDRESSES: Final[Mapping[str, str]] = {
    "s3": "s3://bucket/prefix?endpoint=https://host&region=name",
    "postgresql": "postgresql://host:5432/name",
    "mongodb": "mongodb://host:27017/",
    "kafka": "kafka1:9092,kafka2:9092",
    "rabbitmq": "amqp://host:5672/vhost",
    "clickhouse": "https://host:8443",
    "webhook": "https://host/path",
}
_CREDENTIALS: Final = ("user", "password", "key")


def _text(label: Any, help_text: Any = "", *, required: bool = False, **attributes: str) -> Any:
    widget = UnfoldAdminTextInputWidget(
        {"spellcheck": "false", "autocomplete": "off", **attributes}
    )
    return forms.CharField(
        label=label, required=required, max_length=1000, help_text=help_text, widget=widget
    )


class DeliveryForm(forms.Form):
    """Settings of a delivery of one kind."""

    name = _text(_("Name"), required=True)
    mode = forms.ChoiceField(
        label=pgettext_lazy("delivery", "When"),
        choices=DeliveryMode.choices,
        widget=UnfoldAdminSelectWidget,
    )
    url = _text(_("Address"))
    folder = _text(_("Folder"), _("Name of a folder below that of the project."))
    table = _text(_("Table"), _("Created if it does not exist, except in ClickHouse."))
    collection = _text(_("Collection"), "database.collection")
    topic = _text(_("Topic"))
    queue = _text(_("Queue"), _("Durable; created if it does not exist."))
    format = forms.ChoiceField(
        label=_("Format"),
        choices=[(name, name) for name in FORMATS],
        widget=UnfoldAdminSelectWidget,
    )
    template = _text(_("Path"), DEFAULT_TEMPLATE)
    upsert = forms.ChoiceField(
        label=_("Replace by"),
        choices=[("id", _("Identity of the item")), ("key", _("Key of the dataset"))],
        widget=UnfoldAdminSelectWidget,
    )
    user = _text(_("User"), _("Access key of a bucket."))
    password = _text(_("Password"), _("Stored encrypted, never shown."), type="password")
    key = _text(_("Signing key"), _("Signs each call; at least 16 characters."), type="password")
    from_now = forms.BooleanField(
        label=_("Only new items"),
        required=False,
        help_text=_("Skip the items that are stored already."),
    )

    def __init__(self, kind: str, origin: str, data: Any = None) -> None:
        super().__init__(data, initial={"name": kind})
        self._kind = kind
        kept = ("name", "mode", *FIELDS[kind], "from_now")
        for name in set(self.fields) - set(kept):
            del self.fields[name]
        if "url" in self.fields:
            self.fields["url"].help_text = _ADDRESSES[kind]
        if origin != Origin.JOB:
            del self.fields["mode"]

    def arguments(self) -> dict[str, Any]:
        """Return the values as the service takes them."""
        values = self.cleaned_data
        options = {
            name: values[name]
            for name in FIELDS[self._kind]
            if name not in ("url", *_CREDENTIALS) and values[name]
        }
        return {
            "name": values["name"],
            "kind": self._kind,
            "mode": values.get("mode", DeliveryMode.CONTINUOUS),
            "url": values.get("url", ""),
            "options": options,
            "credentials": {name: values[name] for name in _CREDENTIALS if values.get(name)},
            "from_now": values["from_now"],
        }


def deliveries_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the deliveries of a dataset; editors add one of the kind in ``add``."""
    dataset, may_edit = _dataset(request, pk)
    kind = request.GET.get("add", "")
    form = None
    if kind in FIELDS and may_edit:
        form = DeliveryForm(kind, dataset.origin, request.POST or None)
        if request.method == "POST" and form.is_valid() and _added(form, dataset, request.user):
            messages.success(request, gettext("Delivery added. It starts within seconds."))
            return HttpResponseRedirect(reverse("datasets:deliveries", args=[pk]))
    elif request.method == "POST":
        raise PermissionDenied
    rows = list(dataset.deliveries.order_by("name"))
    counted = accountings(rows)
    context = admin.site.each_context(request)
    context |= {
        "title": gettext("Deliveries of %(name)s") % {"name": dataset.name},
        "dataset": dataset,
        "rows": [
            (row, TITLES.get(row.kind, row.kind), counted[row.pk], _letters(row)) for row in rows
        ],
        "kinds": list(TITLES.items()),
        "kind": kind,
        "form": form,
        "form_title": TITLES.get(kind, ""),
        "may_edit": may_edit,
    }
    return TemplateResponse(request, "datasets/deliveries.html", context)


@require_POST
def move_delivery(request: HttpRequest, pk: int, delivery: int, what: str) -> HttpResponse:
    """Pause, resume, deliver again, retry or delete; requires the role editor."""
    dataset, may_edit = _dataset(request, pk)
    action = _ACTIONS.get(what)
    if action is None:
        raise Http404
    row = get_object_or_404(Delivery, dataset=dataset, pk=delivery)
    if not may_edit or not isinstance(request.user, User):
        raise PermissionDenied
    try:
        messages.success(request, action(row, request.user, request.POST))
    except DomainError as error:
        messages.error(request, str(error.detail))
    return HttpResponseRedirect(reverse("datasets:deliveries", args=[pk]))


def _dataset(request: HttpRequest, pk: int) -> tuple[Dataset, bool]:
    visible = Dataset.objects.visible_to(request.user).select_related("project")
    dataset = get_object_or_404(visible, pk=pk)
    return dataset, has_role(request.user, dataset.project_id, Role.EDITOR)


def _letters(delivery: Delivery) -> list[Any]:
    return list(delivery.dead_letters.all()[:_LETTERS_SHOWN]) if delivery.failed else []


def _added(form: DeliveryForm, dataset: Dataset, person: Any) -> bool:
    try:
        service.create_delivery(dataset=dataset, actor=person, **form.arguments())
    except DomainError as error:
        add_refusal(form, error)
        return False
    return True


def _pause(row: Delivery, person: User, _values: Any) -> str:
    service.pause_delivery(delivery=row, actor=person)
    return gettext("Paused. New items wait.")


def _resume(row: Delivery, person: User, _values: Any) -> str:
    service.resume_delivery(delivery=row, actor=person)
    return gettext("Resumed.")


def _again(row: Delivery, person: User, values: Any) -> str:
    run = str(values.get("run", "")).strip()
    number = int(run) if run.isascii() and run.isdigit() and len(run) < 19 else None
    service.deliver_again(delivery=row, actor=person, run=number)
    return gettext("Items are delivered again.")


def _retry(row: Delivery, person: User, _values: Any) -> str:
    number = service.retry_failures(delivery=row, actor=person)
    return ngettext(
        "%(count)d item is delivered again.", "%(count)d items are delivered again.", number
    ) % {"count": number}


def _delete(row: Delivery, person: User, _values: Any) -> str:
    service.delete_delivery(delivery=row, actor=person)
    return gettext("Delivery deleted. What the target has stays there.")


_ACTIONS: Final[Mapping[str, Callable[[Delivery, User, Any], str]]] = {
    "pause": _pause,
    "resume": _resume,
    "again": _again,
    "retry": _retry,
    "delete": _delete,
}
