"""Page to change segments, time zone or keys: preview first, then move the seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.widgets import UnfoldAdminIntegerFieldWidget

from apps.access.admin.base import person_of
from apps.access.admin.forms import add_refusal
from apps.access.errors import DomainError
from apps.seeds import services
from apps.seeds.admin import fields
from apps.seeds.admin.frontier_form import RULES
from apps.seeds.admin.hints import hint_of
from apps.seeds.admin.moments import begins, zone_of
from apps.seeds.admin.operation_lines import rules_text
from apps.seeds.admin.refusals import REFUSALS, text_of
from apps.seeds.admin.scope import page_of
from apps.seeds.models import Frontier
from apps.seeds.services.granularity import MovePreview

MOST_SEGMENTS: Final = 60
MOST_TARGETS: Final = 8
MOST_WAIT_MINUTES: Final = 24 * 60


class RulesForm(forms.Form):
    """Form for new segment and key rules."""

    segments = forms.CharField(
        label=gettext_lazy("Segments"),
        max_length=100,
        widget=fields.segments_input(),
        help_text=gettext_lazy("day, hour, days:3, week, month, none, or the name of a plug-in"),
    )
    time_zone = forms.CharField(
        label=gettext_lazy("Time zone"), max_length=50, widget=fields.zone_input()
    )
    keys = forms.CharField(
        label=gettext_lazy("Keys"),
        max_length=100,
        widget=fields.keys_input(),
        help_text=gettext_lazy("whole, page, canonical, or the name of a plug-in"),
    )
    ignored_parameters = fields.ParametersField()
    wait_minutes = forms.IntegerField(
        label=gettext_lazy("Wait for leased seeds, minutes"),
        required=False,
        min_value=0,
        max_value=MOST_WAIT_MINUTES,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text=gettext_lazy(
            "Seeds cannot be moved while some are leased. Leave empty to fail at once instead of "
            "waiting."
        ),
    )

    def rules(self) -> dict[str, Any]:
        """Return the cleaned rules as keyword arguments of the granularity services."""
        return {name: self.cleaned_data[name] for name in RULES}


@dataclass(frozen=True, slots=True)
class PreviewLine:
    """Current segment and the new segments of its seeds."""

    begins: str
    pending: int
    leased: int
    ended: int
    looked_at: int
    targets: list[tuple[str, int]]
    more: int


@dataclass(frozen=True, slots=True)
class ShownPreview:
    """Preview in the words of the page."""

    preview: MovePreview
    rules: str
    lines: list[PreviewLine]
    hidden: int

    @property
    def meeting(self) -> str:
        """Return the number of seeds whose new key is taken by another seed; a range for a
        sample.
        """
        return _between(self.preview.meeting_at_least, self.preview.meeting_at_most)

    @property
    def new_again(self) -> str:
        """Return the number of seeds that would count as new if the seeds were not moved."""
        return _between(self.preview.new_again_at_least, self.preview.new_again_at_most)

    @property
    def kept(self) -> str:
        """Return the number of seeds that keep a key which the new rules reject."""
        return _between(self.preview.kept_at_least, self.preview.kept_at_most)


def page(request: HttpRequest, frontier: Frontier, context: dict[str, Any]) -> HttpResponse:
    """Show the current rules (GET), a preview of others (POST), or start the move (``apply``)."""
    now_ms = int(timezone.now().timestamp() * 1000)
    form = RulesForm(initial={name: getattr(frontier, name) for name in RULES})
    if request.method == "POST":
        form = RulesForm(request.POST)
        if form.is_valid():
            try:
                if "apply" in request.POST:
                    return _begin(request, frontier, form)
                context["shown"] = preview_of(frontier, form)
            except DomainError as error:
                add_refusal(form, error)
            except REFUSALS as error:
                context["problem"] = text_of(error)
    typed = form.data if form.is_bound else form.initial
    shown = {name: str(typed.get(name) or "") for name in RULES[:3]}
    value = form["ignored_parameters"].value()
    shown["ignored_parameters"] = form.fields["ignored_parameters"].prepare_value(value) or ""
    context |= {"form": form, "hint": hint_of(shown, now_ms)}
    return TemplateResponse(request, "admin/seeds/frontier/granularity.html", context)


def _begin(request: HttpRequest, frontier: Frontier, form: RulesForm) -> HttpResponse:
    minutes = form.cleaned_data["wait_minutes"] or 0
    services.change_granularity(
        frontier, **form.rules(), wait_seconds=60.0 * minutes, actor=person_of(request)
    )
    text = _("Move started. Until it is done, no seed is added or leased, and callers wait.")
    messages.success(request, text)
    return HttpResponseRedirect(page_of(frontier.pk))


def preview_of(frontier: Frontier, form: RulesForm) -> ShownPreview:
    """Return the preview of the rules in ``form``. Raises the errors of ``granularity.preview``."""
    rules = form.rules()
    preview = services.preview_granularity(frontier, **rules)
    old, new = zone_of(frontier.time_zone), zone_of(rules["time_zone"])
    lines = []
    for preview_line in preview.segments[:MOST_SEGMENTS]:
        targets = [(begins(target, new), count) for target, count in preview_line.targets.items()]
        lines.append(
            PreviewLine(
                begins=begins(preview_line.segment, old),
                pending=preview_line.pending,
                leased=preview_line.leased,
                ended=preview_line.ended,
                looked_at=preview_line.looked_at,
                targets=targets[:MOST_TARGETS],
                more=max(0, len(targets) - MOST_TARGETS),
            )
        )
    return ShownPreview(preview, rules_text(rules), lines, len(preview.segments) - len(lines))


def _between(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} – {most:,}"
