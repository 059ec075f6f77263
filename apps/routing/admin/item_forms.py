"""Forms of the ledger: filters of the lists, search, and the editor of one item."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from apps.access.admin.forms import moment_field
from apps.routing.engine.items import MAX_BYTES
from apps.routing.models import NAME_CHARACTERS
from apps.routing.querysets import RESUBMITTABLE
from apps.routing.states import ItemState

MOST_VALUE: Final = 1000
MOST_NOTE: Final = 500


def _name(label: Any, known: str = "", most: int = NAME_CHARACTERS) -> forms.CharField:
    widget = UnfoldAdminTextInputWidget({"list": known} if known else {})
    return forms.CharField(label=label, required=False, max_length=most, widget=widget)


class ItemFilter(forms.Form):
    """Filter of the list of all items."""

    state = forms.ChoiceField(
        label=_("State"),
        required=False,
        choices=[("", "–"), *ItemState.choices],
        widget=UnfoldAdminSelectWidget,
    )
    inbound = _name(_("Inbound"), "known-inbounds")
    outbound = _name(_("Outbound"), "known-outbounds")
    since = moment_field(_("Received since"))
    until = moment_field(_("Received before"))


class DeadFilter(forms.Form):
    """Filter of the list of dead letters."""

    state = forms.ChoiceField(
        label=_("State"),
        required=False,
        choices=[
            ("", "–"),
            *[choice for choice in ItemState.choices if choice[0] in RESUBMITTABLE],
        ],
        widget=UnfoldAdminSelectWidget,
    )
    reason = _name(_("Reason"), "known-reasons", 40)
    outbound = _name(_("Outbound"), "known-outbounds")


class ParkedFilter(forms.Form):
    """Filter of the list of parked items."""

    outbound = _name(_("Outbound"), "known-outbounds")


class FindForm(forms.Form):
    """Search for one item by its task_uuid, or for all items that contain a value."""

    value = forms.CharField(
        label=_("Task UUID or value"),
        required=False,
        max_length=MOST_VALUE,
        widget=UnfoldAdminTextInputWidget({"placeholder": _("whole value, exact match")}),
    )
    key = _name(_("Under key"))


class EditItemForm(forms.Form):
    """Editor of an item as JSON, which is submitted again with the changes."""

    item = forms.CharField(
        label=_("Routed task"),
        max_length=2 * MAX_BYTES,
        strip=False,
        widget=UnfoldAdminTextareaWidget({"rows": 24, "class": "cy-editor", "spellcheck": "false"}),
    )
    note = forms.CharField(
        label=_("Note"),
        required=False,
        max_length=MOST_NOTE,
        widget=UnfoldAdminTextInputWidget,
        help_text=_("Reason for the change, kept in the audit trail."),
    )
