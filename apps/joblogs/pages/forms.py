"""Forms of the log search and of the error groups. Their state is in the URL, for bookmarks."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django import forms
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from apps.access.admin.forms import moment_field
from apps.joblogs.engine.fingerprints import FINGERPRINT
from apps.joblogs.engine.lines import BIGGEST_SEQ, LEVELS
from apps.joblogs.stores.base import Search
from apps.jobs.models import Job
from apps.projects.models import Image, Project

SEARCH_CHARACTERS: Final = 200
_TYPED: Final = {"spellcheck": "false", "autocomplete": "off"}
SPANS: Final = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "1d": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
_SPAN_CHOICES: Final = [
    ("", _("any time")),
    ("15m", _("last 15 minutes")),
    ("1h", pgettext_lazy("span of time", "last hour")),
    ("6h", _("last 6 hours")),
    ("1d", _("last 24 hours")),
    ("7d", _("last 7 days")),
    ("30d", _("last 30 days")),
]
_LEVEL_CHOICES: Final = [
    ("", _("all lines")),
    ("INFO", _("INFO and above")),
    ("WARNING", _("WARNING and above")),
    ("ERROR", _("ERROR and above")),
]


def _number(label: Any) -> forms.IntegerField:
    return forms.IntegerField(
        label=label,
        required=False,
        min_value=1,
        max_value=BIGGEST_SEQ,
        widget=UnfoldAdminTextInputWidget(_TYPED | {"inputmode": "numeric"}),
    )


def _choice(label: Any, choices: Any = ()) -> forms.ChoiceField:
    return forms.ChoiceField(
        label=label, required=False, choices=choices, widget=UnfoldAdminSelectWidget
    )


def _related(label: Any, rows: Any) -> forms.ModelChoiceField[Any]:
    return forms.ModelChoiceField(
        label=label, required=False, queryset=rows, widget=UnfoldAdminSelectWidget
    )


class _JobChoice(forms.ModelChoiceField):  # type: ignore[type-arg]  # of any model
    def label_from_instance(self, obj: Any) -> str:
        return f"{obj.project} / {obj.name}"


class SearchForm(forms.Form):
    """Search form over all logs."""

    text = forms.CharField(
        label=_("Words"),
        required=False,
        max_length=SEARCH_CHARACTERS,
        widget=UnfoldAdminTextInputWidget(_TYPED | {"type": "search"}),
    )
    level = _choice(_("Level"), _LEVEL_CHOICES)
    span = _choice(_("When"), _SPAN_CHOICES)
    project = _related(_("Project"), Project.objects.none())
    job = _JobChoice(
        label=_("Job"), required=False, queryset=Job.objects.none(), widget=UnfoldAdminSelectWidget
    )
    run = _number(_("Run"))
    since = moment_field(_("From"))
    until = moment_field(_("Until"))
    build = _number(_("Build"))
    fingerprint = forms.RegexField(
        FINGERPRINT, required=False, widget=forms.HiddenInput, label=_("Error group")
    )

    def __init__(self, data: Any, user: object) -> None:
        super().__init__(data)
        _limit(self, user)

    def clean(self) -> dict[str, Any]:
        """Check that at most one log is chosen, and that the time range is not reversed."""
        values = super().clean() or self.cleaned_data
        if values.get("run") and values.get("build"):
            self.add_error("build", gettext("Use one of run and build."))
        since, until = values.get("since"), values.get("until")
        if since and until and since >= until:
            self.add_error("until", gettext("Must be after the start time."))
        return values

    def search(self, now: datetime, projects: Any) -> Search:
        """Return the search; ``projects`` are those visible to the user."""
        values = self.cleaned_data
        since = values["since"]
        if since is None and values["span"]:
            since = now - SPANS[values["span"]]
        stream = next((f"{k}:{values[k]}" for k in ("run", "build") if values.get(k)), "")
        level = values["level"]
        return Search(
            projects={values["project"].pk} if values["project"] else projects,
            stream=stream,
            job=values["job"].pk if values["job"] else None,
            levels=LEVELS[LEVELS.index(level) :] if level else (),
            since=since,
            until=values["until"],
            text=values["text"],
            fingerprint=values["fingerprint"],
        )


class ErrorsForm(forms.Form):
    """Filter form of the error groups."""

    project = _related(_("Project"), Project.objects.none())
    job = _JobChoice(
        label=_("Job"), required=False, queryset=Job.objects.none(), widget=UnfoldAdminSelectWidget
    )
    image = _related(_("First image"), Image.objects.none())
    span = _choice(_("When"), _SPAN_CHOICES[1:])
    state = _choice(_("Shown"), [("open", _("Open")), ("ignored", _("Ignored")), ("", _("all"))])

    def __init__(self, data: Any, user: object) -> None:
        given = data.copy()
        given.setdefault("span", "1d")
        given.setdefault("state", "open")
        super().__init__(given)
        _limit(self, user)


def _limit(form: forms.Form, user: object) -> None:
    """Limit the choices to what the user may see."""
    named: dict[str, Any] = {
        "project": Project.objects.visible_to(user).order_by("name"),
        "job": Job.objects.visible_to(user)
        .select_related("project")
        .order_by("project__name", "name"),
        "image": Image.objects.visible_to(user).filter(removed_at=None).order_by("-id"),
    }
    for name, rows in named.items():
        field = form.fields.get(name)
        if isinstance(field, forms.ModelChoiceField):
            field.queryset = rows
            field.empty_label = gettext("all")
