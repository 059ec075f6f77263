"""Keyboard shortcuts of the admin: ``g`` and a letter opens a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from apps.dashboard.navigation.sidebar import linked_pages


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A sequence of keys that opens a page."""

    keys: tuple[str, ...]
    title: str
    link: str = ""


# URL name by the letter after ``g``; offered if the page is in the user's sidebar.
PLACES: Final[dict[str, str]] = {
    "h": "admin:index",
    "r": "admin:jobs_run_changelist",
    "j": "admin:jobs_job_changelist",
    "i": "admin:alerts_incident_changelist",
    "l": "joblogs:search",
    "a": "admin:agents_agent_changelist",
    "p": "admin:projects_project_changelist",
    "o": "admin:routing_routerreport_changelist",
    "s": "admin:seeds_frontier_changelist",
    "b": "admin:requeststore_shardreport_changelist",
    "u": "admin:sources_sourcestate_changelist",
    "t": "admin:access_auditrecord_changelist",
    "f": "dashboard:health",
}
# Shortcuts handled by the script of the page.
HERE: Final[list[tuple[tuple[str, ...], Promise]]] = [
    (("Ctrl", "k"), _("Search pages, runs, jobs, Agents, requests")),
    (("/",), _("Search this list")),
    (("?",), _("Show keyboard shortcuts")),
    (("Esc",), _("Close dialog")),
]


def places(request: HttpRequest) -> list[Shortcut]:
    """Return the shortcuts to pages that are in the user's sidebar."""
    items = [item for group in linked_pages(request) for item in group["items"]]
    titles = {item["link"]: item["title"] for item in items}
    targets = [(letter, reverse(view)) for letter, view in PLACES.items()]
    return [
        Shortcut(("g", letter), str(titles[link]), link)
        for letter, link in targets
        if link in titles
    ]
