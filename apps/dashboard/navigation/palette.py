"""The command palette: from a few typed letters to a page, a run, a job, a request.

The admin theme's own search reads every row that fits and keeps answers in the cache; this one
reads a few of each kind and asks anew, so that it stays quick over millions of rows and shows
nothing that the person may no longer see.
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

# A kind shows so many; who means another one types more of its name.
OF_A_KIND: Final = 6
MOST_LENGTH: Final = 200
# What has a name; kinds with many rows are found by their numbers below.
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
# Ids of stored requests have time in them, so none is short.
_REQUEST_ID: Final = re.compile(r"\d{13,20}")
_RUN: Final = re.compile(r"(?:run|运行|#)?\s*#?\s*(\d{1,12})", re.IGNORECASE)
_UUID: Final = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Hit:
    """One line of the palette."""

    title: str
    description: str
    link: str
    icon: str


def search(request: HttpRequest, typed: str) -> list[Hit]:
    """What fits, the likeliest first. A query for each kind that the person may see."""
    words = " ".join(typed.replace("\x00", "").split())[:MOST_LENGTH]
    if not words or not isinstance(request.user, User):
        return []
    return [
        *_by_number(request.user, words),
        *_pages(request, words),
        *_named(request, words),
    ]


def _by_number(person: User, words: str) -> Iterator[Hit]:
    run = _RUN.fullmatch(words)
    if run is not None:
        found = Run.objects.visible_to(person).select_related("job__project").filter(pk=run[1])
        for each in found:
            told = f"{each.get_state_display()} · {each.job.project}"
            address = reverse("dashboard:run", args=[each.pk])
            yield Hit(str(each), told, address, "directions_run")
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
        found, _repeats = its_admin.get_search_results(request, rows, words)
        address = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
        for row in found.order_by("-pk")[:OF_A_KIND]:
            kind = str(model._meta.verbose_name)
            yield Hit(str(row), kind, reverse(address, args=[row.pk]), icon)
