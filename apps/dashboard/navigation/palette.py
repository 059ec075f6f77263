"""Search of the command palette: pages, runs, jobs, requests and other named objects.

Replaces the search of the admin theme, which reads every matching row and caches results: this
one reads a few rows of each kind and does not cache, so that it stays fast with millions of rows
and applies the current permissions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from django.apps import apps
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.dashboard.navigation.sidebar import linked_pages
from apps.jobs.models import Run

# Results of each kind.
MAX_RESULTS: Final = 6
MAX_LENGTH: Final = 200
# Models searched by name; objects of large tables are found by ID.
NAMED: Final = [
    ("jobs.Job", "work"),
    ("projects.Project", "folder"),
    ("agents.Agent", "cloud_download"),
    ("jobs.Host", "storage"),
    ("seeds.Frontier", "park"),
    ("seeds.ResourcePool", "key_vertical"),
    ("runtime.Daemon", "memory"),
    ("access.User", "person"),
]
# Pages to read, of models whose admin page is a form.
_PAGES: Final = {"jobs.Job": "dashboard:job"}
# IDs of stored requests contain the time, so they have at least 13 digits.
_REQUEST_ID: Final = re.compile(r"\d{13,20}")
_RUN: Final = re.compile(r"(?:run|运行|#)?\s*#?\s*(\d{1,12})", re.IGNORECASE)
_UUID: Final = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of the palette."""

    title: str
    description: str
    link: str
    icon: str


def search(request: HttpRequest, typed: str) -> list[Hit]:
    """Return matching results, exact IDs first. One query for each kind visible to the person."""
    words = " ".join(typed.replace("\x00", "").split())[:MAX_LENGTH]
    if not words or not isinstance(request.user, User):
        return []
    return [*_by_number(request.user, words), *_pages(request, words), *_named(request, words)]


def _by_number(person: User, words: str) -> Iterator[Hit]:
    run = _RUN.fullmatch(words)
    if run is not None:
        visible = Run.objects.visible_to(person).select_related("job__project")
        for row in visible.filter(pk=run[1]):
            description = f"{row.get_state_display()} · {row.job.project}"
            address = reverse("dashboard:run", args=[row.pk])
            yield Hit(str(row), description, address, "directions_run")
    if _REQUEST_ID.fullmatch(words):
        address = f"{reverse('admin:requeststore_look_up')}?{urlencode({'id': words})}"
        yield Hit(
            _("Look up request %(id)s") % {"id": words}, _("Request store"), address, "search"
        )
    if _UUID.fullmatch(words.lower()):
        address = f"{reverse('admin:routing_find')}?{urlencode({'value': words})}"
        yield Hit(_("Find item %(id)s") % {"id": words}, _("Routing"), address, "receipt_long")


def _pages(request: HttpRequest, words: str) -> Iterator[Hit]:
    wanted = words.lower()
    for group in linked_pages(request):
        title = str(group.get("title", ""))
        for item in group["items"]:
            if wanted in str(item["title"]).lower():
                yield Hit(str(item["title"]), title or _("Page"), item["link"], item["icon"])


def _named(request: HttpRequest, words: str) -> Iterator[Hit]:
    for name, icon in NAMED:
        model: type[Model] = apps.get_model(name)
        its_admin = admin.site._registry.get(model)
        if its_admin is None or not its_admin.has_view_permission(request):
            continue
        rows = its_admin.get_queryset(request)
        matching, _repeats = its_admin.get_search_results(request, rows, words)
        address = _PAGES.get(name, f"admin:{model._meta.app_label}_{model._meta.model_name}_change")
        for row in matching.order_by("-pk")[:MAX_RESULTS]:
            kind = str(model._meta.verbose_name)
            yield Hit(str(row), kind, reverse(address, args=[row.pk]), icon)
