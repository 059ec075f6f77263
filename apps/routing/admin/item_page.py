"""Context of the page of one item: state, history and content."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from typing import Any, Final

from django.http import HttpResponse
from django.urls import reverse

from apps.routing.admin.item_texts import history_rows, why
from apps.routing.engine.items import raw_of
from apps.routing.engine.messages import resubmittable
from apps.routing.models import RoutedItem
from apps.routing.querysets import RESUBMITTABLE
from apps.routing.states import TONES, ItemState

# The page shows this much of an item; the whole can be downloaded.
SHOWN_CHARACTERS: Final = 60_000


def item_page(item: RoutedItem, now: datetime) -> dict[str, Any]:
    """Return the template's context. Needs one query, for the related items."""
    state = ItemState(item.state)
    parameters = {"project": item.project_id, "item": str(item.task_uuid)}
    reason, detail = why(item.reason, item.detail)
    raw = raw_text(item)
    text = pretty(item.item) if raw is None else raw
    story = history_rows(item.story)
    known = _relatives(item, [entry.other for entry in story if entry.other])
    return {
        "item": item,
        "state": state,
        "tone": TONES[state],
        "explain": reverse("routing-explain", query=parameters),
        "reason": reason,
        "detail": detail,
        # Each step with the ID of the item that the step refers to, if still stored.
        "story": [(entry, known.get(entry.other)) for entry in story],
        "is_raw": raw is not None,
        "text": text[:SHOWN_CHARACTERS],
        "cut": len(text) > SHOWN_CHARACTERS,
        "size": len(item.item.encode("utf-8", "surrogatepass")),
        "is_late": item.due_at is not None and item.due_at <= now,
        "is_open": not item.is_final,
        "is_resubmittable": item.state in RESUBMITTABLE and item.replaced_by is None,
        "origin": known.get(str(item.resubmit_of)),
        "successor": known.get(str(item.replaced_by)),
        "seconds": ((item.ended_at or now) - item.received_at).total_seconds(),
    }


def pretty(text: str) -> str:
    """Return indented JSON; a text that is not JSON is returned unchanged."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text


def raw_text(item: RoutedItem) -> str | None:
    """Return the received text of a message that is not an item; None for an item."""
    if item.state != ItemState.DEAD:
        return None
    try:
        return raw_of(json.loads(item.item))
    except (ValueError, RecursionError, AttributeError):
        return item.item


def typed_of(item: RoutedItem) -> str:
    """Return the initial text of the editor: the item as it would be resubmitted."""
    raw = raw_text(item)
    if raw is not None:
        return raw
    return json.dumps(resubmittable(json.loads(item.item)), ensure_ascii=False, indent=2)


def whole_item(item: RoutedItem) -> HttpResponse:
    """Return the item's JSON as a download, with headers that keep browsers from rendering it."""
    answer = HttpResponse(item.item, content_type="application/json; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{item.task_uuid}.json"'
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def _relatives(item: RoutedItem, named: list[str]) -> dict[str, int]:
    """Return the IDs of related items that are still stored, by task_uuid."""
    wanted = {related for related in (item.resubmit_of, item.replaced_by) if related is not None}
    wanted |= {uuid.UUID(named_uuid) for named_uuid in named}
    if not wanted:
        return {}
    rows = RoutedItem.objects.filter(project=item.project_id, task_uuid__in=wanted)
    return {str(name): pk for name, pk in rows.values_list("task_uuid", "pk")}
