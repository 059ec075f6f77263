"""Keys that lead somewhere: ``g`` and then a letter, from every page of the admin."""

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
    """``keys`` as they are pressed, one after the other."""

    keys: tuple[str, ...]
    title: str
    link: str = ""


# The letter after ``g``, and the name of the address; offered to those whose sidebar has it.
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
# What the script of the page does by itself.
HERE: Final[list[tuple[tuple[str, ...], Promise]]] = [
    (("Ctrl", "k"), _("Search pages, runs, jobs, agents, requests")),
    (("/",), _("Go to the search field of this list")),
    (("?",), _("Show these keys")),
    (("Esc",), _("Close what is open")),
]


def places(request: HttpRequest) -> list[Shortcut]:
    """The pages that this person may go to by keys."""
    items = [item for group in linked_pages(request) for item in group["items"]]
    titles = {item["link"]: item["title"] for item in items}
    found = [(letter, reverse(view)) for letter, view in PLACES.items()]
    return [
        Shortcut(("g", letter), str(titles[link]), link) for letter, link in found if link in titles
    ]
