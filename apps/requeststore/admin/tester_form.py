"""Form of the page "Test rule": a rule and pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.widgets import (
    UnfoldAdminFileFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from apps.requeststore.errors import BadTest
from apps.requeststore.extraction import ResponsePage
from apps.requeststore.models import SamplePage
from apps.requeststore.services.rule_tests import MAX_DEFINITION_BYTES
from apps.requeststore.services.sample_pages import MAX_BODY_BYTES

TRY: Final = "try"
KEEP: Final = "keep"
DOWNLOAD: Final = "download"
ALL: Final = ""
MOST_PAGES: Final = 50
# Example for a rule that does not exist yet.
TEMPLATES: Final = {
    "html": """type: html
each: div.item
at_least: 1
fields:
  title: {css: "h2::text", required: true}
  price: {css: ".price::text", regex: "([0-9.,]+)", as: number}
  link: {css: "a::attr(href)", as: url}
"""
}
_TYPES: Final = [
    ("text/html; charset=utf-8", "HTML"),
    ("application/json", "JSON"),
    ("application/xml", "XML"),
    ("text/plain; charset=utf-8", gettext_lazy("text")),
]


class TesterForm(forms.Form):
    """Sent by POST only, because URLs with their parameters end up in access logs."""

    what = forms.ChoiceField(
        choices=[(mode, mode) for mode in (TRY, KEEP, DOWNLOAD)], required=False
    )
    definition = forms.CharField(
        label=gettext_lazy("Rule (YAML or JSON)"),
        strip=False,
        max_length=MAX_DEFINITION_BYTES,
        widget=UnfoldAdminTextareaWidget(
            {"rows": 16, "class": "cy-editor", "spellcheck": "false", "autocomplete": "off"}
        ),
    )
    sample = forms.ChoiceField(
        label=gettext_lazy("Test on"), required=False, widget=UnfoldAdminSelectWidget
    )
    url = forms.CharField(
        label=gettext_lazy("Page URL"),
        max_length=8000,
        required=False,
        widget=UnfoldAdminTextInputWidget({"spellcheck": "false", "autocomplete": "off"}),
        help_text=gettext_lazy("Relative links are resolved against this URL."),
    )
    status = forms.IntegerField(
        label=gettext_lazy("Status"),
        min_value=100,
        max_value=599,
        required=False,
        initial=200,
        widget=UnfoldAdminIntegerFieldWidget,
    )
    content_type = forms.ChoiceField(
        label=gettext_lazy("Kind"), choices=_TYPES, required=False, widget=UnfoldAdminSelectWidget
    )
    body = forms.CharField(
        label=gettext_lazy("Page source"),
        strip=False,
        required=False,
        max_length=MAX_BODY_BYTES,
        widget=UnfoldAdminTextareaWidget(
            {"rows": 8, "class": "cy-editor", "spellcheck": "false", "autocomplete": "off"}
        ),
    )
    file = forms.FileField(
        label=gettext_lazy("Or upload a file"),
        required=False,
        widget=UnfoldAdminFileFieldWidget,
        help_text=gettext_lazy("At most 1 MiB; the encoding is detected."),
    )

    def __init__(self, *args: Any, samples: Sequence[SamplePage] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        everything = _("All sample pages of this rule (%(count)d)") % {"count": len(samples)}
        cast("forms.ChoiceField", self.fields["sample"]).choices = [
            (ALL, everything),
            *((str(sample.pk), _title(sample)) for sample in samples),
        ]

    def clean(self) -> dict[str, Any]:
        """Require a URL for a page that is to be stored or downloaded."""
        values = super().clean() or {}
        mode = values.get("what")
        if mode == DOWNLOAD and not values.get("url"):
            self.add_error("url", _("Enter a URL."))
        if mode == KEEP and not self.has_page():
            self.add_error("body", _("Paste a page, or choose a file."))
        file = values.get("file")
        if file is not None and file.size > MAX_BODY_BYTES:
            self.add_error("file", _("At most %(most)d bytes.") % {"most": MAX_BODY_BYTES})
        return values

    def has_page(self) -> bool:
        """Return whether a page was pasted or uploaded."""
        values = self.cleaned_data
        return bool(values.get("body") or values.get("file"))

    def page(self) -> ResponsePage:
        """Return the pasted or uploaded page."""
        values = self.cleaned_data
        kind = values.get("content_type") or _TYPES[0][0]
        file = values.get("file")
        if file is not None:
            # Bytes: the page itself declares its encoding.
            body, kind = file.read(), kind.partition(";")[0]
        else:
            # Browsers send line ends of a text area as CRLF.
            body = values["body"].replace("\r\n", "\n").encode("utf-8", "replace")
            kind = kind if "charset" in kind else f"{kind}; charset=utf-8"
        return ResponsePage(
            url=values.get("url") or "https://example.com/",
            status=values.get("status") or 200,
            headers=[("Content-Type", kind)],
            body=body,
        )

    def chosen(self, rows: Any, rule: str) -> list[ResponsePage | SamplePage]:
        """Return the selected sample pages. Raises ``BadTest`` when there is none."""
        number = self.cleaned_data.get("sample")
        samples = rows.filter(pk=int(number)) if number else rows.filter(rule__in={rule, ""})
        pages: list[ResponsePage | SamplePage] = list(samples[:MOST_PAGES])
        if not pages:
            text = _("No page to test on: paste one, upload a file, or download one.")
            raise BadTest(fields={"body": [text]})
        return pages


def _title(sample: SamplePage) -> str:
    url = sample.url if len(sample.url) <= 80 else f"{sample.url[:80]}…"
    return f"#{sample.pk} {url} ({sample.status})"
