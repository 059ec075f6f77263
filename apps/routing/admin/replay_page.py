"""The page "Replay": what a saved version of the rules would do with recent items. Read-only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from django import forms
from django.contrib import admin
from django.forms import Media
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
)

from apps.projects.admin.project_choice import ProjectChoice, chosen
from apps.routing.admin.explain_page import CSS
from apps.routing.admin.explain_texts import DIFFERENCES, choice_text
from apps.routing.admin.versions import CompiledVersion, Versions, compiled_version, versions_of
from apps.routing.models import NAME_CHARACTERS
from apps.routing.queries.replays import (
    MOST_ITEMS,
    Replay,
    ReplayedItem,
    ReplayGroup,
    RouteDifference,
    replay,
)
from apps.routing.queries.tracks import KIND
from apps.routing.states import ItemState

FIRST_LIMIT: Final = 1_000
SHOWN_ROWS: Final = 200
SHOWN_GROUPS: Final = 100
_TONES: Final = {
    RouteDifference.NEWLY_REJECTED: "bad",
    RouteDifference.NEWLY_TAKEN: "good",
    RouteDifference.MOVED: "wait",
    RouteDifference.MESSAGE: "wait",
}


class ReplayForm(forms.Form):
    """Selection of items and of two versions of the rules; an empty ``base`` is the active one."""

    version = forms.TypedChoiceField(
        label=gettext_lazy("Version to test"), coerce=int, widget=UnfoldAdminSelectWidget
    )
    base = forms.TypedChoiceField(
        label=gettext_lazy("Compared with"),
        coerce=int,
        empty_value=None,
        required=False,
        widget=UnfoldAdminSelectWidget,
    )
    limit = forms.IntegerField(
        label=gettext_lazy("Number of recent tasks"),
        min_value=1,
        max_value=MOST_ITEMS,
        widget=UnfoldAdminIntegerFieldWidget,
    )
    inbound = forms.CharField(
        label=gettext_lazy("Inbound"),
        max_length=NAME_CHARACTERS,
        required=False,
        widget=UnfoldAdminTextInputWidget,
    )
    outbound = forms.CharField(
        label=gettext_lazy("Outbound"),
        max_length=NAME_CHARACTERS,
        required=False,
        widget=UnfoldAdminTextInputWidget,
    )
    state = forms.ChoiceField(
        label=gettext_lazy("State"), required=False, widget=UnfoldAdminSelectWidget
    )

    def __init__(self, versions: Versions, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        numbers = [(number, f"v{number}") for number in versions.numbers]
        active = _("the active version") if versions.active is None else _active(versions.active)
        cast("forms.ChoiceField", self.fields["version"]).choices = numbers
        cast("forms.ChoiceField", self.fields["base"]).choices = [("", active), *numbers]
        cast("forms.ChoiceField", self.fields["state"]).choices = [
            ("", _("any")),
            *(choice for choice in ItemState.choices if choice[0] != ItemState.DEAD),
        ]


@dataclass(frozen=True, slots=True)
class ReplayTableRow:
    """Group or item of a replay with translated texts."""

    tone: str
    difference: str
    before: str
    after: str
    # The ReplayGroup or ReplayedItem that is shown.
    of: Any
    state: str = ""


@require_safe
def replay_page(request: HttpRequest) -> HttpResponse:
    """Answer ``?project=&version=`` and the other fields of the form."""
    choice = chosen(request, KIND)
    context = admin.site.each_context(request) | {
        "title": _("Replay"),
        "subtitle": None if choice is None else str(choice.project),
        "media": Media(css={"all": CSS}),
        "choice": choice,
        "most": MOST_ITEMS,
    }
    if choice is not None:
        context |= _answer(request, choice)
    return TemplateResponse(request, "admin/routing/replay.html", context)


def _answer(request: HttpRequest, choice: ProjectChoice) -> dict[str, Any]:
    versions = versions_of(choice.project)
    first = {"version": _draft(versions), "limit": FIRST_LIMIT}
    if "version" not in request.GET:
        return {"versions": versions, "form": ReplayForm(versions, initial=first)}
    form = ReplayForm(versions, {"limit": FIRST_LIMIT} | request.GET.dict())
    context: dict[str, Any] = {"versions": versions, "form": form}
    if not form.is_valid():
        return context
    chosen = form.cleaned_data
    base = versions.active if chosen["base"] is None else chosen["base"]
    left, other = compiled_version(versions, base), compiled_version(versions, chosen["version"])
    context |= {"base": left, "draft": other}
    if left.track is None or other.track is None:
        return context | {
            "problems": [version for version in (left, other) if version.track is None]
        }
    result = replay(
        project=choice.project.pk,
        base=left.track,
        draft=other.track,
        limit=chosen["limit"],
        **{name: chosen[name] for name in ("inbound", "outbound", "state") if chosen[name]},
    )
    return context | _result(result, other)


def _draft(versions: Versions) -> int | None:
    """Return the newest version that is not active, else the newest; None without versions."""
    return next(
        (number for number in versions.numbers if number != versions.active),
        next(iter(versions.numbers), None),
    )


def _active(number: int) -> str:
    return _("the active version, v%(number)d") % {"number": number}


def _result(found: Replay, draft: CompiledVersion) -> dict[str, Any]:
    return {
        "found": found,
        "counts": [
            (_TONES[difference], DIFFERENCES[difference], found.count(difference))
            for difference in RouteDifference
            if difference is not RouteDifference.NONE
        ],
        "groups": [_shown(group) for group in found.groups[:SHOWN_GROUPS]],
        "more_groups": max(0, len(found.groups) - SHOWN_GROUPS),
        "rows": [_shown(row) for row in found.rows[:SHOWN_ROWS]],
        "more_rows": found.different - min(len(found.rows), SHOWN_ROWS),
        "seconds": f"{found.seconds:.2f}",
    }


def _shown(each: ReplayGroup | ReplayedItem) -> ReplayTableRow:
    return ReplayTableRow(
        _TONES.get(each.difference, ""),
        str(DIFFERENCES[each.difference]),
        choice_text(each.before),
        choice_text(each.after),
        each,
        str(ItemState(each.state).label) if isinstance(each, ReplayedItem) else "",
    )
