"""Page of a dataset's settings: key, schema, checks, retention."""

from __future__ import annotations

import json
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from apps.access.admin.forms import add_refusal
from apps.access.models import User
from apps.access.services import has_role
from apps.access.states import Role
from apps.datasets.engine.checks import MOST_SCHEMA_BYTES
from apps.datasets.engine.schemas import inferred_schema
from apps.datasets.errors import SettingsRefused
from apps.datasets.models import Dataset
from apps.datasets.services.changes import change_dataset
from apps.jobs.arguments import parse_json
from apps.projects.models import Project

_BIGGEST: Final = 2**31 - 1
_MEBIBYTE: Final = 1024 * 1024
# Runs whose fields make the inferred schema.
_RUNS: Final = 10
# One example of each check, in the order of engine/checks.py.
EXAMPLES: Final[list[tuple[Any, str]]] = [
    (_("reject items that do not match the schema; flag keeps and marks them"), "schema"),
    (_("flag items whose field does not match a regular expression"), "pattern"),
    (_("a run stores at least this many items"), "items_at_least"),
    (_("share of items with a value in the field, 0 to 1"), "fill_rate"),
    (_("all numbers of the field lie between min and max"), "range"),
    (_("largest share of rejected items"), "rejected_at_most"),
    (_("largest share of flagged items"), "flagged_at_most"),
    (_("largest number of items that share the key of another"), "duplicates_at_most"),
    (_("largest difference from the usual number of items in percent"), "change"),
]
_EXAMPLE: Final[dict[str, dict[str, Any]]] = {
    "schema": {"action": "reject"},
    "pattern": {"field": "url", "pattern": "https://.*"},
    "items_at_least": {"value": 100},
    "fill_rate": {"field": "price", "value": 0.95},
    "range": {"field": "price", "min": 0, "max": 10000},
    "rejected_at_most": {"value": 0.01},
    "flagged_at_most": {"value": 0.05},
    "duplicates_at_most": {"value": 0},
    "change": {"percent": 50},
}


def example(name: str) -> str:
    """Return the JSON of an example of a check."""
    return json.dumps({"check": name, **_EXAMPLE[name]})


class _JsonField(forms.CharField):
    """JSON of one type in a text area; an empty text is an empty value."""

    def __init__(self, kind: type, message: Any, rows: int, **kwargs: Any) -> None:
        self._kind, self._message = kind, message
        widget = UnfoldAdminTextareaWidget(
            {"rows": rows, "spellcheck": "false", "class": "cy-mono"}
        )
        super().__init__(required=False, strip=True, widget=widget, **kwargs)

    def prepare_value(self, value: Any) -> Any:
        """Return indented JSON; what was typed stays."""
        if isinstance(value, str):
            return value
        return json.dumps(value, indent=2, ensure_ascii=False) if value else ""

    def to_python(self, value: Any) -> Any:
        """Return the value. Raises ``ValidationError`` with line and column."""
        text = super().to_python(value)
        if not text:
            return self._kind()
        found = parse_json(text, limit=MOST_SCHEMA_BYTES)
        if not isinstance(found, self._kind):
            raise ValidationError(self._message)
        return found


def _number(label: Any, help_text: Any) -> forms.IntegerField:
    widget = UnfoldAdminTextInputWidget({"inputmode": "numeric", "autocomplete": "off"})
    return forms.IntegerField(
        label=label,
        required=False,
        min_value=1,
        max_value=_BIGGEST,
        widget=widget,
        help_text=help_text,
    )


class SettingsForm(forms.Form):
    """Settings of a dataset."""

    key_fields = forms.CharField(
        label=_("Key"),
        required=False,
        max_length=2000,
        widget=UnfoldAdminTextInputWidget({"spellcheck": "false", "autocomplete": "off"}),
        help_text=_(
            "Fields that identify an item over all runs, separated by commas, such as url or sku."
            " Comparisons, the latest items and the history need them."
        ),
    )
    item_schema = _JsonField(
        dict,
        _("Enter a JSON object."),
        12,
        label=_("Schema"),
        help_text=_("JSON Schema. Items that do not match are rejected, or flagged by a check."),
    )
    checks = _JsonField(
        list,
        _("Enter a JSON list of checks."),
        8,
        label=_("Checks"),
        help_text=_("A run whose data fails a check raises an alert."),
    )
    keep_days = _number(_("Days"), _("Older data is deleted."))
    keep_runs = _number(_("Runs"), _("Beyond it the oldest runs are deleted."))
    keep_megabytes = _number(
        _("Size limit (MB)"), _("Beyond it the oldest data is deleted. Pinned runs stay.")
    )

    def clean_key_fields(self) -> list[str]:
        """Return the names."""
        names = str(self.cleaned_data["key_fields"]).split(",")
        return [name.strip() for name in names if name.strip()]

    def settings(self) -> dict[str, Any]:
        """Return the values as the service takes them."""
        values = dict(self.cleaned_data)
        size = values.pop("keep_megabytes")
        return values | {"keep_bytes": None if size is None else size * _MEBIBYTE}


def settings_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the settings, and change them; that needs the role editor."""
    if not isinstance(request.user, User):
        raise Http404
    visible = Dataset.objects.visible_to(request.user).select_related("project")
    dataset = get_object_or_404(visible, pk=pk)
    may_edit = has_role(request.user, dataset.project_id, Role.EDITOR)
    form = SettingsForm(request.POST or None, initial=_initial(dataset))
    if request.method == "POST":
        if not may_edit:
            raise PermissionDenied
        if form.is_valid() and _saved(form, dataset, request.user):
            messages.success(request, gettext("Settings saved. They apply to new items and runs."))
            return HttpResponseRedirect(request.path)
    inherited = _limits(dataset.project)
    for name, field in form.fields.items():
        field.disabled = not may_edit
        field.widget.attrs |= {"placeholder": inherited[name]} if inherited.get(name) else {}
    runs = dataset.runs.filter(stored__gt=0).order_by("-run_number")[:_RUNS]
    inferred = inferred_schema((run.stored, run.fields) for run in runs)
    context = admin.site.each_context(request)
    context |= {
        "title": gettext("Settings of %(dataset)s") % {"dataset": dataset},
        "dataset": dataset,
        "form": form,
        "may_edit": may_edit,
        "inferred": json.dumps(inferred, indent=2, ensure_ascii=False) if inferred else "",
        "examples": [(example(name), text) for text, name in EXAMPLES],
    }
    return TemplateResponse(request, "datasets/settings.html", context)


def _initial(dataset: Dataset) -> dict[str, Any]:
    return {
        "key_fields": ", ".join(dataset.key_fields),
        "item_schema": dataset.item_schema,
        "checks": dataset.checks,
        **_limits(dataset),
    }


def _limits(owner: Dataset | Project) -> dict[str, Any]:
    size = owner.keep_bytes
    return {
        "keep_days": owner.keep_days,
        "keep_runs": owner.keep_runs,
        # Rounded up: the form must not make the limit smaller.
        "keep_megabytes": None if size is None else -(-size // _MEBIBYTE),
    }


def _saved(form: SettingsForm, dataset: Dataset, person: User) -> bool:
    try:
        change_dataset(dataset=dataset, actor=person, **form.settings())
    except SettingsRefused as error:
        add_refusal(form, error)
        return False
    return True
