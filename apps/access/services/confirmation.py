"""Confirmation page for destructive actions.

A GET changes nothing, since any foreign page can cause one. A POST must come from this page: its
form contains a signature over caller, action and selection, so that exactly the confirmed objects
are affected. For irreversible actions on several objects the user types their number.

Not imported by ``services``: daemons have no pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.crypto import constant_time_compare, salted_hmac

# Number of objects listed by name; the others are counted.
NAMED: Final = 10
SEAL: Final = "confirmed"
TYPED: Final = "typed"
_OURS: Final = frozenset({SEAL, TYPED, "csrfmiddlewaretoken"})


def ask_first(
    request: HttpRequest,
    *,
    verb: Any,
    loss: Any,
    ids: Sequence[Any],
    names: Sequence[Any],
    things: Any = "",
    back: str,
    final: bool = True,
    more: Mapping[str, int] | None = None,
    field: Mapping[str, Any] | None = None,
) -> HttpResponse | None:
    """Return the page to show, or None if the user has confirmed.

    ``ids`` identify the objects, ``names`` are those of the first ones, ``loss`` says what is lost.
    ``final``: irreversible, so for several objects their number must be typed. ``more``: further
    counts by kind. ``field`` (``name``, ``label``, ``most``) adds a text input.
    """
    count, seal = len(ids), _seal(request, ids)
    asks_count = final and count > 1
    given, typed = request.POST.get(SEAL, ""), request.POST.get(TYPED, "").strip()
    is_seen = request.method == "POST" and constant_time_compare(given, seal)
    if is_seen and (not asks_count or typed == str(count)):
        return None
    kept = {name for name in request.POST if name not in _OURS}
    kept -= {field["name"]} if field else set()
    context = {
        **admin.site.each_context(request),
        "title": f"{verb}: {count} {things}" if things else verb,
        "verb": verb,
        "loss": loss,
        "count": count,
        "names": [str(object_name) for object_name in names[:NAMED]],
        "left": max(0, count - NAMED),
        "more": dict(more or {}),
        "final": final,
        "asks_count": asks_count,
        "is_wrong": is_seen,
        "has_changed": bool(given) and not is_seen,
        "seal": seal,
        "kept": [(name, value) for name in sorted(kept) for value in request.POST.getlist(name)],
        "field": field,
        "back": back,
    }
    return TemplateResponse(request, "admin/access/confirm.html", context)


def _seal(request: HttpRequest, ids: Sequence[Any]) -> str:
    """Return a signature over caller, action and selection, valid for exactly these."""
    parts = [request.path, request.POST.get("action", ""), *sorted(str(pk) for pk in ids)]
    value = "\n".join([str(request.user.pk), *parts])
    return salted_hmac("apps.access.admin.confirm", value, algorithm="sha256").hexdigest()
