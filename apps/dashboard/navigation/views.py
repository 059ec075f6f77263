"""What the palette asks, and the page that lists the keys."""

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
    """What every page of the admin has beside its own; the admin theme calls it."""
    return {"shortcut_places": SimpleLazyObject(lambda: places(request))}


def time_zone(request: HttpRequest) -> list[str]:
    """Which zone the times of every page are in, as a label; the admin theme calls it."""
    return [timezone.get_current_timezone_name(), ""]


def search_view(request: HttpRequest) -> HttpResponse:
    """The lines of the palette for ``?s=``."""
    began = time.perf_counter()
    hits = search(request, request.GET.get("s", ""))
    context = {"hits": hits, "seconds": time.perf_counter() - began}
    answer = TemplateResponse(request, "dashboard/palette.html", context)
    answer.headers["HX-Trigger"] = "search"
    return answer


def shortcuts_page(request: HttpRequest) -> HttpResponse:
    """Every key there is."""
    context = {
        **admin.site.each_context(request),
        "title": _("Keys"),
        "here": HERE,
    }
    return TemplateResponse(request, "dashboard/shortcuts.html", context)
