"""The page "Explain an item": what the rules would do with an item, and why. Read-only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import admin
from django.forms import Media, Script
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from apps.projects.admin.project_choice import ProjectChoice, chosen
from apps.routing.admin import explain_context as shown
from apps.routing.admin.explain_form import AT_OUTBOUND, EventKind, ExplainForm
from apps.routing.admin.versions import CompiledVersion, compiled_version, versions_of
from apps.routing.engine.dry_run import Event, Lookup, explain_item, explain_known
from apps.routing.engine.explanations import NO_UUID, ItemExplanation
from apps.routing.engine.items import Item, ItemError, read_item
from apps.routing.engine.life import KnownItem, uuid_of
from apps.routing.engine.messages import TASK_RESULT, TASK_UUID, Counters
from apps.routing.engine.outcomes import TaskState
from apps.routing.engine.rules import Outbound
from apps.routing.engine.track import Track
from apps.routing.queries import LedgerEntry, find_items, find_known_item
from apps.routing.queries.reports import OutboundStatus, routing_status
from apps.routing.queries.tracks import KIND
from apps.routing.states import ItemState

CSS: Final = [
    "dashboard/dashboard.css",
    "configcenter/configcenter.css",
    "routing/routing.css",
    "routing/explain.css",
]
JS: Final[list[Any]] = [Script("access/copy.js", defer=True)]
# Fields kept in the permanent link. The item's text is not among them, its task_uuid may be.
_ASKED: Final = ("inbound", "happening", "status", "at")
_COUNTS: Final = ("routed_count", "retry_times", "group_retry_times")
# Key under which a malformed message that is not JSON is stored.
_RAW: Final = "raw"


@require_http_methods(["GET", "HEAD", "POST"])
def explain_page(request: HttpRequest) -> HttpResponse:
    """Answer ``?project=&version=&item=<task_uuid>`` and the fields of the form.

    The field ``text`` is read from a POST body only.
    """
    choice = chosen(request, KIND)
    context = admin.site.each_context(request) | {
        "title": _("Explain a task"),
        "subtitle": None if choice is None else str(choice.project),
        "media": Media(css={"all": CSS}, js=JS),
        "choice": choice,
    }
    if choice is not None:
        context |= _answer(request, choice)
    return TemplateResponse(request, "admin/routing/explain.html", context)


def _answer(request: HttpRequest, choice: ProjectChoice) -> dict[str, Any]:
    given = request.POST if request.method == "POST" else request.GET
    versions = versions_of(choice.project)
    number = versions.number(given.get("version", ""))
    rules = compiled_version(versions, number)
    name = given.get("item", "").strip()
    entry = _entry(choice.project.pk, name)
    fields = ExplainForm.base_fields
    values = _begin(entry) | {key: text for key, text in given.items() if key in fields}
    # Browsers send the line ends of a text area as CRLF.
    posted = request.POST.get("text", "").replace("\r\n", "\n")
    values["text"] = posted if request.method == "POST" else _text(entry)
    form = _form(rules, entry, values, ask=bool(values["text"]) or request.method == "POST")
    context = {
        "versions": versions,
        "number": number,
        "rules": rules,
        "item": name,
        "entry": entry,
        "entry_state": None if entry is None else ItemState(entry.state).label,
        "form": form,
        "link": _link(choice, given, entry),
    }
    if form.is_bound and form.is_valid() and rules.track is not None:
        now = timezone.now()
        outbounds = routing_status(choice.project.pk, now).outbounds
        explain_request = _ExplainRequest(choice.project.pk, rules.track, entry, outbounds, now)
        context |= _shown(explain_request.explain(form.cleaned_data), values["text"], outbounds)
    return context


def _entry(project: int, name: str) -> LedgerEntry | None:
    return find_items(project=project, task_uuids=[name]).get(name) if name else None


def _text(entry: LedgerEntry | None) -> str:
    if entry is None:
        return ""
    try:
        item = entry.item
    except ItemError:
        return entry.text
    raw = item.get(_RAW)
    if entry.state == TaskState.DEAD and len(item) == 1 and isinstance(raw, str):
        return raw
    return shown.pretty(item)


def _begin(entry: LedgerEntry | None) -> dict[str, Any]:
    """Return the initial values of the form for an item of the ledger."""
    begin = {"text": "", "inbound": "", "happening": EventKind.ARRIVES.value, "routed_count": 1}
    if entry is None:
        return begin
    # A malformed message was never converted; any other item was.
    inbound = entry.inbound if entry.state == TaskState.DEAD else ""
    parked = entry.state == TaskState.PARKED
    return begin | {
        "inbound": inbound,
        "happening": (EventKind.OFFERED if parked else EventKind.NEW).value,
        "at": entry.outbound,
        "routed_count": entry.routed_count,
        "retry_times": entry.retry_times,
        "group_retry_times": entry.group_retry_times,
    }


def _form(
    rules: CompiledVersion, entry: LedgerEntry | None, values: dict[str, Any], *, ask: bool
) -> ExplainForm:
    track = rules.track
    inbounds = [] if track is None else list(track.entrances)
    outbounds = [] if track is None else list(track.outbounds)
    if entry is not None and entry.outbound and entry.outbound not in outbounds:
        # These rules no longer have the outbound; the form offers it all the same, because the
        # effect of a removed outbound can be explained too.
        outbounds.append(entry.outbound)
    named = {"inbounds": inbounds, "outbounds": outbounds}
    return ExplainForm(values, **named) if ask else ExplainForm(None, initial=values, **named)


def _link(choice: ProjectChoice, given: Mapping[str, str], entry: LedgerEntry | None) -> str:
    """Return the permanent link to this explanation, without the text of the item."""
    parameters = {"project": str(choice.project.pk), "version": given.get("version", "")}
    parameters |= {"item": "" if entry is None else str(entry.task_uuid)}
    parameters |= {key: given.get(key, "") for key in (*_ASKED, *_COUNTS)}
    return reverse("routing-explain") + "?" + urlencode({k: v for k, v in parameters.items() if v})


@dataclass(frozen=True, slots=True)
class _ExplainRequest:
    """Context of an explanation: the rules, the ledger entry, the reported state of outbounds."""

    project: int
    track: Track
    entry: LedgerEntry | None
    # State of outbounds as reported by the routers, by name.
    said: Mapping[str, OutboundStatus]
    now: datetime

    def explain(self, asked: Mapping[str, Any]) -> ItemExplanation:
        """Explain the event that the form describes; ``asked`` is its cleaned data."""
        happening, text = asked["happening"], asked["text"]
        if happening not in AT_OUTBOUND:
            ledger = (
                partial(find_known_item, self.project) if happening == EventKind.ARRIVES else None
            )
            return self._coming(text, asked, ledger)
        try:
            item = read_item(text)
        except ItemError:
            return self._coming(text, asked, None)
        known = _known(self.entry, item, asked)
        if happening == EventKind.RESULT:
            back = {TASK_UUID: known.uuid, TASK_RESULT: _status(asked["status"])}
            back["group_retry_times"] = known.counters.group_retry_times
            return self._coming(item | back, asked, known)
        event = Event.TIMED_OUT if happening == EventKind.TIMED_OUT else Event.OFFERED
        return explain_known(self.track, known, event, now=self.now, full=self._is_full)

    def _coming(
        self, item: str | Item, asked: Mapping[str, Any], known: KnownItem | Lookup | None
    ) -> ItemExplanation:
        inbound = asked["inbound"] or None
        return explain_item(
            self.track, item, inbound=inbound, known=known, now=self.now, full=self._is_full
        )

    def _is_full(self, outbound: Outbound) -> bool:
        status = self.said.get(outbound.name)
        return status is not None and status.full


def _status(text: str) -> int | str:
    """Return a status as spiders log it: a number where the text is one, else the text."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


def _known(entry: LedgerEntry | None, item: Item, asked: Mapping[str, Any]) -> KnownItem:
    """Return the item as a ledger entry at the chosen outbound.

    The task_uuid of ``entry`` takes precedence over that of the typed item.
    """
    parked = asked["happening"] == EventKind.OFFERED
    name = uuid_of(item) or NO_UUID
    # Retries at one outbound are part of the total, so the total is never smaller.
    retries = asked["retry_times"] or 0
    in_all = max(asked["group_retry_times"] or 0, retries)
    return KnownItem(
        uuid=name if entry is None else str(entry.task_uuid),
        state=TaskState.PARKED if parked else TaskState.DISPATCHED,
        outbound=asked["at"],
        counters=Counters(asked["routed_count"] or 0, retries, in_all),
        item=item,
    )


def _shown(
    explanation: ItemExplanation, text: str, said: Mapping[str, OutboundStatus]
) -> dict[str, Any]:
    lines, left = shown.outbound_rows(explanation, said)
    parts = explanation.as_dict()
    message = explanation.message
    return {
        "explanation": explanation,
        "outcome": shown.heading_of(explanation),
        "place": shown.error_position(explanation.refused, text),
        "converted": shown.converter_rows(explanation.steps),
        "inbound_selectors": [
            shown.selector_of(selector)
            for selector in (explanation.inbound.selectors if explanation.inbound else ())
        ],
        "facts": shown.result_facts(explanation),
        "lines": lines,
        "left": left,
        "item_json": shown.pretty(parts["converted"]),
        "counters": None
        if explanation.decision is None
        else shown.counters_text(parts["decision"]["counters"]),
        "message": message,
        "message_json": "" if message is None else shown.pretty(parts["message"]["message"]),
        "message_cut": message is not None and parts["message"]["cut"],
        "is_new": message is not None and explanation.known is None,
    }
