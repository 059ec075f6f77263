"""Form of the page "Explain an item": an item, and the event to explain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

from django import forms
from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

_MOST_COUNT: Final = 2**31 - 1


class EventKind(TextChoices):
    """Event whose effect on the item is explained."""

    ARRIVES = "arrives", _("Task arrives")
    NEW = "new", _("Task arrives as new, ignoring the ledger")
    RESULT = "result", _("Result arrives (task_result)")
    TIMED_OUT = "timed_out", _("Result timeout")
    OFFERED = "offered", _("Queue of a parked task has room again")


# Events of an item that already is at an outbound.
AT_OUTBOUND: Final = frozenset({EventKind.RESULT, EventKind.TIMED_OUT, EventKind.OFFERED})


def _count(label: Any) -> forms.IntegerField:
    return forms.IntegerField(
        label=label,
        min_value=0,
        max_value=_MOST_COUNT,
        required=False,
        widget=UnfoldAdminIntegerFieldWidget,
    )


class ExplainForm(forms.Form):
    """Item, event and counters to explain.

    ``text`` is accepted by POST only, because URLs are written into access logs.
    """

    text = forms.CharField(
        label=_("Task (JSON)"),
        strip=False,
        widget=UnfoldAdminTextareaWidget(
            {"rows": 12, "class": "cy-editor", "spellcheck": "false", "autocomplete": "off"}
        ),
    )
    inbound = forms.ChoiceField(
        label=_("Inbound"),
        required=False,
        widget=UnfoldAdminSelectWidget,
        help_text=_(
            "Its converters and conditions are applied first. Leave empty for a task "
            "from the ledger, which is already converted."
        ),
    )
    happening = forms.ChoiceField(
        label=_("Event"), choices=EventKind, widget=UnfoldAdminSelectWidget
    )
    status = forms.CharField(
        label=_("Status (task_result)"),
        max_length=100,
        required=False,
        widget=UnfoldAdminTextInputWidget,
    )
    at = forms.ChoiceField(
        label=_("Current outbound"), required=False, widget=UnfoldAdminSelectWidget
    )
    routed_count = _count(_("Times routed (routed_count)"))
    retry_times = _count(_("Retries at the outbound (retry_times)"))
    group_retry_times = _count(_("Total retries (group_retry_times)"))

    def __init__(
        self, data: Any, *, inbounds: Iterable[str], outbounds: Iterable[str], **options: Any
    ) -> None:
        super().__init__(data, **options)
        nowhere = ("", _("none: already converted and accepted"))
        cast("forms.ChoiceField", self.fields["inbound"]).choices = [
            nowhere,
            *((name, name) for name in inbounds),
        ]
        cast("forms.ChoiceField", self.fields["at"]).choices = [
            ("", "–"),
            *((name, name) for name in outbounds),
        ]

    def clean(self) -> dict[str, Any]:
        """Require the outbound for an item at an outbound, and the status for a result."""
        values = super().clean() or {}
        happening = values.get("happening")
        if happening in AT_OUTBOUND and not values.get("at") and "at" not in self.errors:
            self.add_error("at", _("Choose the current outbound of the task."))
        if happening == EventKind.RESULT and not values.get("status", "").strip():
            self.add_error("status", _("Enter the status of the result."))
        return values
