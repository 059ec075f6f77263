"""Page to look up a URL: whether it would be new, since when it is known, and its actions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.widgets import UnfoldAdminTextInputWidget

from apps.seeds.admin.moments import begins, lasting, moment_of, zone_of
from apps.seeds.admin.refusals import PATIENCE_SECONDS
from apps.seeds.admin.seed_forms import LATER, NEVER_AGAIN, NOW, SeedTimeForm
from apps.seeds.engine.seeds import DEFAULT_SEGMENT, FINAL, MAX_DATA_BYTES, PENDING, TIMELESS_DUE
from apps.seeds.models import Frontier
from apps.seeds.services import client_of
from yardkit.protocol.seeds import KnownSeed, SeedLookedUp, SeedState

STATES: Final[dict[SeedState, Any]] = {
    SeedState.INIT: gettext_lazy("pending"),
    SeedState.RETRY: gettext_lazy("pending retry"),
    SeedState.RUNNING: gettext_lazy("leased"),
    SeedState.SUCCEEDED: gettext_lazy("succeeded"),
    SeedState.FAILED: gettext_lazy("failed"),
    SeedState.IGNORED: gettext_lazy("ignored"),
}
TONES: Final = {
    SeedState.INIT: "info",
    SeedState.RETRY: "warning",
    SeedState.RUNNING: "info",
    SeedState.SUCCEEDED: "success",
    SeedState.FAILED: "danger",
    SeedState.IGNORED: "default",
}
_WHEN: Final = (
    (NOW, gettext_lazy("now")),
    (LATER, gettext_lazy("at …")),
    (NEVER_AGAIN, gettext_lazy("without a time (default segment)")),
)


class SeedLookUpForm(SeedTimeForm):
    """Look-up form. ``url`` is sent by POST only, because query strings end up in access logs."""

    url = forms.CharField(
        label=gettext_lazy("URL"),
        max_length=MAX_DATA_BYTES,
        widget=UnfoldAdminTextInputWidget({"spellcheck": "false", "autocomplete": "off"}),
    )
    field_order = ("url", "when", "not_before")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        when = self.fields["when"]
        when.label, when.choices = _("Add it"), _WHEN  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class LookUpAnswer:
    """Result of a look-up, as the page shows it."""

    looked_up: SeedLookedUp
    segment: str
    due_at: datetime | None
    due_in: str
    known: KnownSeed | None
    state: str = ""
    tone: str = ""
    added_at: datetime | None = None
    changed_at: datetime | None = None
    known_due_at: datetime | None = None
    deadline: datetime | None = None
    ext: str = ""

    @property
    def is_final(self) -> bool:
        """Return whether the seed is finished and can be reopened."""
        return self.known is not None and self.known.state in FINAL

    @property
    def is_pending(self) -> bool:
        """Return whether the seed waits to be leased."""
        return self.known is not None and self.known.state in PENDING

    @property
    def is_leased(self) -> bool:
        """Return whether the seed is leased: it can be neither reopened nor forgotten."""
        return self.known is not None and self.known.state == SeedState.RUNNING


def look_up(form: SeedLookUpForm, now: datetime) -> LookUpAnswer:
    """Query the seed service. Raises the errors of ``SeedClient.look_up``."""
    frontier: Frontier = form.frontier
    seed = form.seed(form.cleaned_data["url"].strip(), now)
    answer = client_of(frontier, timeout=PATIENCE_SECONDS).look_up(seed)
    return answer_of(frontier, answer, now)


def answer_of(frontier: Frontier, looked_up: SeedLookedUp, now: datetime) -> LookUpAnswer:
    """Convert the service's answer to display values in the frontier's time zone."""
    zone = zone_of(frontier.time_zone)
    due = None if looked_up.due <= TIMELESS_DUE else moment_of(looked_up.due)
    waits = 0.0 if due is None else (due - now).total_seconds()
    known = looked_up.known
    answer: dict[str, Any] = {
        "looked_up": looked_up,
        "segment": begins(looked_up.segment, zone),
        "due_at": due,
        "due_in": lasting(waits) if waits > 1 else "",
        "known": known,
    }
    if known is not None:
        answer |= {
            "state": str(STATES[known.state]),
            "tone": TONES[known.state],
            "added_at": moment_of(known.added_at),
            "changed_at": moment_of(known.changed_at),
            "known_due_at": None if known.due <= TIMELESS_DUE else moment_of(known.due),
            "deadline": None if known.deadline is None else moment_of(known.deadline),
            "ext": json.dumps(known.ext, ensure_ascii=False, indent=2) if known.ext else "",
        }
    return LookUpAnswer(**answer)


def is_segment(text: str) -> bool:
    """Return whether ``text`` is a segment as sent by the page's forms."""
    return text.isascii() and text.isdigit() and len(text) < 14 and int(text) >= DEFAULT_SEGMENT
