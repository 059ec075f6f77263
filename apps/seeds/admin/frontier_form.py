"""Form to create and edit a frontier."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminTextareaWidget

from apps.seeds.admin.fields import ParametersField, keys_input, segments_input, zone_input
from apps.seeds.models import Frontier

# Read-only here: a change of these fields moves the seeds (see the granularity page).
RULES: Final = ("segments", "time_zone", "keys", "ignored_parameters")
_NAMES: Final = (None, {"fields": (("project", "name"), "description", "is_paused")})
_TIME: Final = (
    _("When is a known URL new again?"),
    {
        "description": _(
            "Two equal seeds are never in one segment, and may be in two: the segment is the "
            "time in which a URL is crawled once."
        ),
        "fields": (("segments", "time_zone"),),
    },
)
_KEYS: Final = (
    _("When are two URLs one?"),
    {
        "description": _("Two seeds with the same key are one."),
        "fields": (("keys", "ignored_parameters"),),
    },
)
_LEASES: Final = (
    _("Handing out"),
    {
        "description": _(
            "Seeds are leased: they stay here until their spider says that they are finished."
        ),
        "fields": (("max_retry", "lease_seconds"),),
    },
)
_SIZE: Final = (
    _("Size"),
    {
        "description": _(
            "A filter tells most new seeds without a look into the store. It never decides "
            "alone: too small a filter makes adding slower and loses nothing."
        ),
        "fields": (("expected_seeds", "false_positive_rate"),),
    },
)
FIELDSETS: Final = (_NAMES, _TIME, _KEYS, _LEASES, _SIZE)
# Fieldsets of an existing frontier.
SETTINGS: Final = (_NAMES, _LEASES, _SIZE)


class FrontierForm(forms.ModelForm):  # type: ignore[type-arg]
    """Form of a frontier; ``ignored_parameters`` is entered one name per line."""

    ignored_parameters = ParametersField()

    class Meta:
        model = Frontier
        fields: ClassVar = [
            "project",
            "name",
            "description",
            "is_paused",
            *RULES,
            "max_retry",
            "lease_seconds",
            "expected_seeds",
            "false_positive_rate",
        ]
        widgets: ClassVar = {
            "description": UnfoldAdminTextareaWidget({"rows": 2}),
            "segments": segments_input(),
            "time_zone": zone_input(),
            "keys": keys_input(),
        }
        help_texts: ClassVar = {
            "segments": _(
                "day, hour, days:3, week, month; none: one segment for all times; or the name of "
                "a plug-in. Not finer than an hour."
            ),
            "keys": _(
                "whole: the text as it is; page: all before #; canonical: parameters sorted and "
                "JSONP's left out; or the name of a plug-in."
            ),
            "max_retry": _("After so many failures a seed has failed, unless it brings its own."),
            "lease_seconds": _(
                "Whoever does not finish seeds within so many seconds loses them, and a try is "
                "counted."
            ),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("segments", "time_zone", "keys"):
            if name in self.fields:
                self.fields[name].widget.attrs.update({"spellcheck": "false"})
