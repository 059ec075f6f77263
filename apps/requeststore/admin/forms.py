"""Forms of the request pages: filters, look-up, submission, reopening."""

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
from apps.requeststore.engine.biz import Biz
from apps.requeststore.engine.entity import MAX_URL
from apps.requeststore.engine.flags import EXPIRED, MOVING, NEW, PROCESSED, TAKEN
from apps.requeststore.queries.stories import LABELS

_TYPED: Final = {"spellcheck": "false", "autocomplete": "off"}


def flags_of(biz: Biz) -> list[tuple[int, str]]:
    """Return every flag that a request of this biz may have, with its meaning."""
    named: list[tuple[int, object]] = [
        (NEW, LABELS["new"]),
        (TAKEN, LABELS["taken"]),
        (PROCESSED, LABELS["processed"]),
        (biz.failed_flag, LABELS["failed"]),
        (EXPIRED, LABELS["expired"]),
        (MOVING, LABELS["moving"]),
    ]
    own: list[tuple[int, object]] = [(int(flag), text) for flag, text in biz.flags.items()]
    return [(flag, f"{flag} · {text}") for flag, text in dict(own + named).items()]


class RequestFilter(forms.Form):
    """Filter of the list of requests."""

    flag = forms.TypedChoiceField(
        label=_("Flag"),
        required=False,
        coerce=int,
        empty_value=None,
        widget=UnfoldAdminSelectWidget,
    )
    since = moment_field(_("Stored since"))
    until = moment_field(_("Stored before"))

    def __init__(self, data: Any, biz: Biz) -> None:
        super().__init__(data)
        choices = [("", "–"), *flags_of(biz)]
        self.fields["flag"].choices = choices  # type: ignore[attr-defined]  # a choice field


class RequestLookUpForm(forms.Form):
    """Look-up by ID. The ID is text, because it is copied from logs, queues and answers."""

    id = forms.RegexField(
        r"^\s*[0-9]{1,19}\s*$",
        label=_("Request ID"),
        widget=UnfoldAdminTextInputWidget(_TYPED | {"inputmode": "numeric"}),
        error_messages={"invalid": _("Enter a whole number of at most 19 digits.")},
    )


class TryOutForm(forms.Form):
    """Submission of a single request."""

    url = forms.CharField(
        label=_("URL"), max_length=MAX_URL, widget=UnfoldAdminTextInputWidget(_TYPED)
    )
    rule = forms.ChoiceField(label=_("Rule"), required=False, widget=UnfoldAdminSelectWidget)
    method = forms.ChoiceField(
        label=_("Method"),
        choices=[(method, method) for method in ("GET", "POST", "HEAD")],
        widget=UnfoldAdminSelectWidget,
    )
    body = forms.CharField(
        label=_("Body"), required=False, widget=UnfoldAdminTextareaWidget({"rows": 3} | _TYPED)
    )

    def __init__(self, data: Any, biz: Biz) -> None:
        super().__init__(data)
        rules = [
            ("", _("Default of the request group")),
            *((name, name) for name in sorted(biz.rules)),
        ]
        self.fields["rule"].choices = rules  # type: ignore[attr-defined]  # a choice field

    def request(self) -> dict[str, Any]:
        """Return the request in the format of the REST API."""
        return {name: value for name, value in self.cleaned_data.items() if value}


class ExtractForm(RequestFilter):
    """Selection of ended requests whose kept pages are read again; all by default."""

    def __init__(self, data: Any, biz: Biz) -> None:
        super().__init__(data, biz)
        ended = [flag for flag in flags_of(biz) if flag[0] > NEW]
        self.fields["flag"].choices = [("", "–"), *ended]  # type: ignore[attr-defined]  # a choice field


class ReopenForm(forms.Form):
    """Selection of ended requests to reopen."""

    flag = forms.TypedChoiceField(label=_("Final flag"), coerce=int, widget=UnfoldAdminSelectWidget)
    since = moment_field(_("Stored since"))
    until = moment_field(_("Stored before"))

    def __init__(self, data: Any, biz: Biz) -> None:
        super().__init__(data)
        ended = [flag for flag in flags_of(biz) if flag[0] > NEW]
        # The most frequent choice comes first.
        ended.sort(key=lambda each: each[0] != biz.failed_flag)
        self.fields["flag"].choices = ended  # type: ignore[attr-defined]  # a choice field
