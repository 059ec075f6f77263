"""Views of the command palette and of the keyboard shortcuts."""

from __future__ import annotations

import time
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _

from apps.dashboard.navigation.palette import search
from apps.dashboard.navigation.shortcuts import HERE, places


def global_context(request: HttpRequest) -> dict[str, Any]:
    """Return the context shared by all pages of the admin; a context processor."""
    return {"shortcut_places": SimpleLazyObject(lambda: places(request))}


def time_zone(request: HttpRequest) -> list[str]:
    """Return the label with the time zone of all pages; the admin theme calls this."""
    return [timezone.get_current_timezone_name(), ""]


def search_view(request: HttpRequest) -> HttpResponse:
    """Return the results of the palette for ``?s=``."""
    began = time.perf_counter()
    hits = search(request, request.GET.get("s", ""))
    context = {"hits": hits, "seconds": time.perf_counter() - began}
    answer = TemplateResponse(request, "dashboard/palette.html", context)
    answer.headers["HX-Trigger"] = "search"
    return answer


def shortcuts_page(request: HttpRequest) -> HttpResponse:
    """Page of the keyboard shortcuts."""
    context = {**admin.site.each_context(request), "title": _("Keyboard shortcuts"), "here": HERE}
    return TemplateResponse(request, "dashboard/shortcuts.html", context)
