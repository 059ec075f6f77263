"""Form of one alert rule, with plain fields for the configuration's YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django import forms
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from apps.alerts.engine.events import all_sources, find_source
from apps.alerts.engine.rules import Condition, Recovery, Rule
from apps.alerts.states import Severity

STEPS: Final = 3
# (name, text) of channels and of people.
Recipients = tuple[list[tuple[str, str]], list[tuple[str, str]]]
LIMITS: Final = (
    ("above", _("is above")),
    ("below", _("is below")),
    ("rises_by", _("rises by")),
    ("falls_by", _("falls by")),
    ("absent_seconds", _("has no data for (seconds)")),
)
# Form field for a validation error, by the prefix of its place in the configuration.
_PLACES: Final = (
    ("when.times", "times"),
    ("when.in_seconds", "in_seconds"),
    ("when.for_seconds", "for_seconds"),
    ("when", "limit"),
    ("recover.for_seconds", "recover_for"),
    ("recover.quiet_seconds", "quiet_seconds"),
    ("recover", "recover"),
    ("escalate", "step_1_after"),
    ("repeat_seconds", "repeat_seconds"),
    ("name", "name"),
    ("series", "series"),
    ("event", "event"),
    ("label", "label"),
    ("match", "match"),
    ("tell", "tell"),
    ("quiet", "quiet"),
    ("severity", "severity"),
    ("description", "description"),
)


def _line(**attributes: str) -> Any:
    return UnfoldAdminTextInputWidget(attrs={"spellcheck": "false", **attributes})


def _number(label: Any, help_text: Any = "") -> forms.FloatField:
    return forms.FloatField(
        label=label, required=False, help_text=help_text, widget=_line(inputmode="decimal")
    )


class RuleForm(forms.Form):
    """Form of one rule; ``entry`` returns it in the format of the configuration."""

    name = forms.CharField(label=_("Name"), max_length=64, widget=_line())
    enabled = forms.BooleanField(
        label=_("Enabled"), required=False, initial=True, widget=UnfoldBooleanWidget
    )
    description = forms.CharField(
        label=_("Advice"),
        required=False,
        max_length=500,
        widget=UnfoldAdminTextareaWidget({"rows": 2}),
    )
    event = forms.ChoiceField(label=_("Alert on"), required=False, widget=UnfoldAdminSelectWidget)
    series = forms.CharField(
        label=_("Series"),
        required=False,
        max_length=64,
        widget=_line(list="alert-series"),
        help_text=_("Name of the metric, for example queue.ready."),
    )
    label = forms.CharField(
        label=_("Label"),
        required=False,
        max_length=200,
        widget=_line(),
        help_text=_("Wildcards: * and ?. Leave empty to evaluate each label separately."),
    )
    match = forms.CharField(
        label=_("Filters"),
        required=False,
        widget=UnfoldAdminTextareaWidget({"rows": 2, "spellcheck": "false"}),
        help_text=_("Events and conditions only. One filter per line, for example job: news*."),
    )
    kind = forms.ChoiceField(
        label=_("Alert when the value"), choices=LIMITS, widget=UnfoldAdminSelectWidget
    )
    limit = _number(_("Threshold"))
    in_seconds = _number(_("Window (seconds)"), _("Used for rises, falls and repeated events."))
    for_seconds = _number(_("For (seconds)"))
    times = forms.IntegerField(
        label=_("Occurrences"),
        required=False,
        min_value=1,
        widget=_line(inputmode="numeric"),
        help_text=_("Events only: alert after this number within the window."),
    )
    recover = _number(_("Recovers at"), _("Leave empty to use the alert threshold."))
    recover_for = _number(_("For (seconds)"), _("Default: 60."))
    quiet_seconds = _number(_("Recovers after (seconds without the event)"), _("Default: one day."))
    severity = forms.ChoiceField(
        label=_("Severity"),
        choices=Severity.choices,
        initial=Severity.WARNING,
        widget=UnfoldAdminSelectWidget,
    )
    tell = forms.MultipleChoiceField(
        label=_("Recipients"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("None: those of the configuration."),
    )
    repeat_seconds = _number(_("Remind every (seconds)"), _("Leave empty to notify once."))
    quiet = forms.ChoiceField(
        label=_("Quiet hours"), required=False, widget=UnfoldAdminSelectWidget
    )
    note = forms.CharField(label=_("Version note"), required=False, max_length=200, widget=_line())

    def __init__(
        self,
        *args: Any,
        quiet_hours: Any = (),
        recipients: Recipients = ([], []),
        base: Rule | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._base = base
        lasting: list[tuple[str, Any]] = []
        events: list[tuple[str, Any]] = []
        for source in all_sources():
            (lasting if hasattr(source, "now") else events).append((source.name, source.title))
        self.fields["event"].choices = [  # type: ignore[attr-defined]
            ("", gettext("A metric (series)")),
            (gettext("Events (happen once)"), events),
            (gettext("Conditions (ongoing)"), lasting),
        ]
        known = sorted(quiet_hours)
        self.fields["quiet"].choices = [("", "–"), *((name, name) for name in known)]  # type: ignore[attr-defined]
        for number in range(1, STEPS + 1):
            self.fields[f"step_{number}_after"] = _number(_("After (seconds)"))
            self.fields[f"step_{number}_tell"] = forms.MultipleChoiceField(
                label=_("Notify"), required=False, widget=forms.CheckboxSelectMultiple
            )
            self.fields[f"step_{number}_severity"] = forms.ChoiceField(
                label=_("New severity"),
                required=False,
                choices=[("", "–"), *Severity.choices],
                widget=UnfoldAdminSelectWidget,
            )

        for name in ("tell", *(f"step_{number}_tell" for number in range(1, STEPS + 1))):
            kept = [str(each) for each in self.initial.get(name, [])]
            self.fields[name].choices = _choices(recipients, kept)  # type: ignore[attr-defined]  # a choice field

    @property
    def subject(self) -> str:
        """Return what the rule watches, which decides the fields of its condition."""
        event = self._base.event if self._base is not None else self["event"].value()
        source = find_source(event) if event else None
        if source is None:
            return "series"
        return "condition" if hasattr(source, "now") else "event"

    @property
    def steps(self) -> list[Any]:
        """Return the bound fields of each escalation step."""
        names = ("after", "tell", "severity")
        return [[self[f"step_{number}_{name}"] for name in names] for number in range(1, STEPS + 1)]

    def entry(self, base: Rule | None) -> dict[str, Any]:
        """Return the rule in configuration format; for a built-in rule (``base``) only the
        changes."""
        values = self.cleaned_data
        changed: dict[str, Any] = {"name": values["name"]}
        if base is None:
            changed |= self._watched()
        changed |= self._judged(base)
        changed |= {"severity": values["severity"]}
        changed |= {name: values[name] for name in ("description", "quiet") if values[name]}
        if values["repeat_seconds"] is not None:
            changed["repeat_seconds"] = _plain(values["repeat_seconds"])
        if values["tell"]:
            changed["tell"] = values["tell"]
        steps = self._steps()
        if steps:
            changed["escalate"] = steps
        if not values["enabled"]:
            changed["enabled"] = False
        return changed

    def _watched(self) -> dict[str, Any]:
        values = self.cleaned_data
        if not values["event"]:
            label = {"label": values["label"]} if values["label"] not in ("", "*") else {}
            return {"series": values["series"], **label}
        rows = [row.partition(":") for row in values["match"].splitlines() if row.strip()]
        match = {name.strip(): text.strip() for name, _sign, text in rows}
        return {"event": values["event"], **({"match": match} if match else {})}

    def _judged(self, base: Rule | None) -> dict[str, Any]:
        values = self.cleaned_data
        event = base.event if base is not None else values["event"]
        names = ("times", "in_seconds", "for_seconds") if event else ("in_seconds", "for_seconds")
        when = {name: _plain(values[name]) for name in names if values[name] is not None}
        if not event and values["limit"] is not None:
            when[values["kind"]] = _plain(values["limit"])
        recover: dict[str, Any] = {}
        if values["recover"] is not None:
            side = "above" if values["kind"] == "below" else "below"
            recover[side] = _plain(values["recover"])
        if values["recover_for"] is not None:
            recover["for_seconds"] = _plain(values["recover_for"])
        if values["quiet_seconds"] is not None:
            recover["quiet_seconds"] = _plain(values["quiet_seconds"])
        if base is not None and when == base.when.shown():
            when = {}
        condition: dict[str, Any] = {"when": when} if when else {}
        return condition | ({"recover": recover} if recover else {})

    def _steps(self) -> list[dict[str, Any]]:
        steps = []
        for number in range(1, STEPS + 1):
            after = self.cleaned_data.get(f"step_{number}_after")
            tell = self.cleaned_data.get(f"step_{number}_tell", [])
            severity = self.cleaned_data.get(f"step_{number}_severity", "")
            if after is None and not tell and not severity:
                continue
            step: dict[str, Any] = {} if after is None else {"after_seconds": _plain(after)}
            steps.append(
                step
                | ({"tell": tell} if tell else {})
                | ({"severity": severity} if severity else {})
            )
        return steps

    def refuse(self, places: Mapping[str, str]) -> None:
        """Attach validation errors of the engine to their form fields."""
        for place, text in places.items():
            inner = place.partition(".")[2]
            names = (field for begin, field in _PLACES if inner.startswith(begin))
            self.add_error(next(names, None), text)


def initial_of(rule: Rule) -> dict[str, Any]:
    """Return the form's initial values for an existing rule."""
    when, recover = rule.when, rule.recover
    kind = next((name for name, _label in LIMITS if getattr(when, name) is not None), "above")
    values: dict[str, Any] = {
        "name": rule.name,
        "enabled": rule.enabled,
        "description": rule.description,
        "event": rule.event,
        "series": rule.series,
        "label": "" if rule.label == "*" else rule.label,
        "match": "\n".join(f"{name}: {text}" for name, text in rule.match.items()),
        "kind": kind,
        "limit": _shown(getattr(when, kind)),
        "in_seconds": _shown(when.in_seconds or None),
        "for_seconds": _shown(when.for_seconds or None),
        "times": when.times if when.times != Condition().times else None,
        "recover": _shown(recover.below if recover.below is not None else recover.above),
        "severity": rule.severity,
        "tell": list(rule.tell),
        "repeat_seconds": _shown(rule.repeat_seconds or None),
        "quiet": rule.quiet,
    }
    if recover.for_seconds != Recovery().for_seconds:
        values["recover_for"] = _shown(recover.for_seconds)
    if recover.quiet_seconds != Recovery().quiet_seconds:
        values["quiet_seconds"] = _shown(recover.quiet_seconds)
    for number, step in enumerate(rule.escalate[:STEPS], 1):
        values |= {
            f"step_{number}_after": _shown(step.after_seconds),
            f"step_{number}_tell": list(step.tell),
            f"step_{number}_severity": step.severity,
        }
    return values


def _choices(recipients: Recipients, kept: list[str]) -> list[tuple[Any, Any]]:
    """Return channels and people in two groups; with stored names that no longer exist."""
    channels, people = recipients
    known = {name for name, _text in (*channels, *people)}
    channels = [*channels, *((name, name) for name in kept if name not in known)]
    return [(gettext("Channels"), channels), (gettext("People"), people)]


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) else value


def _shown(value: float | None) -> float | int | None:
    return None if value is None else _plain(value)
