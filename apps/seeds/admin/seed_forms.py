"""Forms that add seeds, from text or a file, and their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

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

from apps.seeds.admin.moments import zone_of
from apps.seeds.admin.refusals import PATIENCE_SECONDS, code_text
from apps.seeds.engine.seeds import MAX_RETRY_LIMIT
from apps.seeds.models import Frontier
from apps.seeds.services import client_of
from yardkit.protocol import Seed, SeedAnswer
from yardkit.protocol.seeds import MAX_SEEDS

SHOWN_REFUSED: Final = 20
MOMENTS: Final = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M"]
# More seeds have to be imported as a file.
MOST_CHARACTERS: Final = 4 * 1024 * 1024
FILES: Final = ".txt,.jsonl,.ndjson,.gz,text/plain,application/gzip"
NOW: Final = "now"
NEVER_AGAIN: Final = "default"
LATER: Final = "later"
URGENT: Final = "urgent"
WHEN: Final = (
    (NOW, gettext_lazy("now, in the current segment")),
    (NEVER_AGAIN, gettext_lazy("only once (default segment)")),
    (URGENT, gettext_lazy("only once, before all others")),
    (LATER, gettext_lazy("not before …")),
)


class SeedTimeForm(forms.Form):
    """Fields for the time of a seed, shared by all forms that accept seeds."""

    when = forms.ChoiceField(
        label=gettext_lazy("Crawl"), choices=WHEN, initial=NOW, widget=UnfoldAdminSelectWidget
    )
    not_before = forms.DateTimeField(
        label=gettext_lazy("Not before"),
        required=False,
        widget=UnfoldAdminTextInputWidget({"type": "datetime-local", "step": "1"}),
        input_formats=MOMENTS,
    )

    def __init__(self, *args: Any, frontier: Frontier, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.frontier = frontier
        self.fields["not_before"].help_text = _("Times are in the time zone %(zone)s.") % {
            "zone": frontier.time_zone
        }

    def clean(self) -> dict[str, Any]:
        """Require a time when "later" is chosen."""
        values = super().clean() or self.cleaned_data
        lacks = values.get("when") == LATER and not values.get("not_before")
        if lacks and "not_before" not in self.errors:
            self.add_error("not_before", _("Enter a time."))
        return values

    def seed(self, data: str, now: datetime) -> Seed:
        """Return a seed with ``data`` and the time of the form."""
        when = self.cleaned_data["when"]
        most = self.cleaned_data.get("max_retry")
        if when in (NEVER_AGAIN, URGENT):
            return Seed(data, max_retry=most, urgent=when == URGENT)
        moment = now
        if when == LATER:
            typed: datetime = self.cleaned_data["not_before"]
            moment = typed.replace(tzinfo=zone_of(self.frontier.time_zone))
        return Seed(data, active_at=int(moment.timestamp() * 1000), max_retry=most)


class AddSeedsForm(SeedTimeForm):
    """Form that adds one seed per line."""

    seeds = forms.CharField(
        label=gettext_lazy("Seeds, one per line"),
        max_length=MOST_CHARACTERS,
        widget=UnfoldAdminTextareaWidget(
            {"rows": 10, "class": "cy-editor", "spellcheck": "false", "autocomplete": "off"}
        ),
        help_text=gettext_lazy("Usually URLs; at most 10,000. Empty lines are skipped."),
    )
    max_retry = forms.IntegerField(
        label=gettext_lazy("Tries"),
        required=False,
        min_value=0,
        max_value=MAX_RETRY_LIMIT,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text=gettext_lazy("Leave empty for the URL queue's default."),
    )
    field_order = ("seeds", "when", "not_before", "max_retry")

    def clean_seeds(self) -> list[str]:
        """Return the non-empty lines. Raises ``ValidationError`` for too many."""
        lines = [line.strip() for line in self.cleaned_data["seeds"].splitlines()]
        lines = [line for line in lines if line]
        if len(lines) > MAX_SEEDS:
            text = _("%(count)s lines are too many: at most %(most)s. Import them as a file.")
            raise forms.ValidationError(
                text % {"count": f"{len(lines):,}", "most": f"{MAX_SEEDS:,}"}
            )
        return lines


class FileForm(forms.Form):
    """File to import; the page's script sends it to the REST API unchanged."""

    use_required_attribute = False
    file = forms.FileField(
        label=gettext_lazy("File"),
        widget=UnfoldAdminFileFieldWidget({"accept": FILES}),
        help_text=gettext_lazy(
            "A text file with one seed per line (crawled only once), or an exported .jsonl file, "
            "which keeps states and times. May be compressed (.gz)."
        ),
    )


@dataclass(slots=True)
class AddedSeeds:
    """Result of adding typed seeds."""

    new: int = 0
    duplicates: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)

    @property
    def shown(self) -> list[tuple[str, str]]:
        """Return the first rejected seeds, each with its reason."""
        return self.refused[:SHOWN_REFUSED]

    @property
    def more(self) -> int:
        """Return the number of rejected seeds that are not listed."""
        return len(self.refused) - len(self.shown)


def add_seeds(frontier: Frontier, seeds: list[Seed]) -> AddedSeeds:
    """Add all seeds in one call. Raises the errors of ``SeedClient.add``."""
    client = client_of(frontier, timeout=PATIENCE_SECONDS)
    return counted(seeds, client.add(seeds))


def counted(seeds: Iterable[Seed], answers: Iterable[SeedAnswer]) -> AddedSeeds:
    """Count new and known seeds, and collect the rejected ones."""
    added = AddedSeeds()
    codes: Counter[str] = Counter()
    for seed, answer in zip(seeds, answers, strict=True):
        codes[answer.code] += 1
        if answer.code not in ("new", "duplicate"):
            added.refused.append((seed.data, code_text(answer.code, answer.text)))
    added.new, added.duplicates = codes["new"], codes["duplicate"]
    return added
