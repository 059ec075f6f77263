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
    _("Segments"),
    {
        "description": _("A URL is crawled once per segment, for example once per day."),
        "fields": (("segments", "time_zone"),),
    },
)
_KEYS: Final = (
    _("Keys"),
    {
        "description": _("Seeds with the same key are duplicates."),
        "fields": (("keys", "ignored_parameters"),),
    },
)
_LEASES: Final = (
    _("Leases"),
    {
        "description": _("Leased seeds stay in the URL queue until a spider finishes them."),
        "fields": (("max_retry", "lease_seconds"),),
    },
)
_SIZE: Final = (
    _("Size"),
    {
        "description": _(
            "A Bloom filter detects most new seeds without a query. If it is too small, adding "
            "becomes slower; no seed is lost."
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
                "hour, day, days:3, week, month, none (a single segment) or the name of a plug-in."
            ),
            "keys": _(
                "whole (the text), page (without the part after #), canonical (normalized URL "
                "without JSONP parameters) or the name of a plug-in."
            ),
            "max_retry": _(
                "Number of failed tries after which a seed counts as failed. A seed may have its "
                "own limit."
            ),
            "lease_seconds": _(
                "Seconds until unfinished seeds become pending again; this counts as a failed try."
            ),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("segments", "time_zone", "keys"):
            if name in self.fields:
                self.fields[name].widget.attrs.update({"spellcheck": "false"})
