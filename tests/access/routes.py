"""Every REST route of the platform, read from the URL conf."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from django.urls import URLPattern, URLResolver, get_resolver
from rest_framework.views import APIView

from apps.access.api.base import ApiView

# Asked with nothing at all, it says what is missing.
INCOMPLETE = {
    "api/v1/alert-rules/preview",
    "api/v1/datasets/{pk}/history",
    "api/v1/runs/{run}/items/values",
}
# Of the whole platform: for who sees everything.
PLATFORM = {"api/v1/series", "api/v1/series/points", "api/v1/health/parts"}
# Whose run has no items.
EMPTY = {
    "api/v1/images/{pk}/description",
    "api/v1/runs/{run}/stats",
    "api/v1/runs/{run}/compare",
    "api/v1/runs/{run}/pages/warc",
    "api/v1/runs/{run}/files/{file}/download",
}

# Questions that need a body: they change nothing.
ASKING = {
    "api/v1/agents/allocations/preview",
    "api/v1/alert-rules/preview",
    "api/v1/bizzes/{pk}/rules/test",
    "api/v1/config/{pk}/check",
    "api/v1/frontiers/{pk}/look-up",
    "api/v1/jobs/schedule/preview",
    "api/v1/projects/{pk}/tags/preview",
    "api/v1/sources/projects/{pk}/peek",
    "api/v1/routing/projects/{pk}/explain",
    "api/v1/routing/projects/{pk}/replay",
}

API_PREFIX = "api/v1/"
# The schema and its viewers are DRF spectacular's, for whoever is logged in.
NOT_OURS = frozenset({"schema", "docs", "redoc"})
# Of the whole platform: for who sees everything, and changed by superusers.
MACHINERY = (
    "api/v1/daemons",
    "api/v1/dead-letters",
    "api/v1/outbox",
    "api/v1/people",
    "api/v1/periodic-tasks",
)
# The seed service has to answer these, and does not run here.
AWAY = {"api/v1/frontiers/{pk}/export"}
# What belongs to a person, or to nobody, instead of a project.
PERSONAL = {"api/v1/jobs/{job}/notify-me"}
OWN = ("api/v1/tokens", "api/v1/saved-filters", "api/v1/me/password")
GLOBAL = ("api/v1/agents", "api/v1/hosts", "api/v1/host-rules", "api/v1/run-hosts")


@dataclass(frozen=True)
class Route:
    """One address; ``path`` has ``{names}`` where ids go."""

    path: str
    view: type[APIView]
    actions: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        """Of the ids in the address."""
        return re.findall(r"{(\w+)}", self.path)

    def at(self, **ids: Any) -> str:
        """The address."""
        return "/" + self.path.format(**ids)

    def __str__(self) -> str:
        return self.path


def all_routes() -> list[Route]:
    """Of the apps, sorted."""
    found = _walk(get_resolver().url_patterns, "")
    ours = [each for each in found if each.path.startswith(API_PREFIX)]
    return sorted(
        (each for each in ours if each.path.removeprefix(API_PREFIX) not in NOT_OURS),
        key=lambda each: each.path,
    )


def _walk(patterns: list[URLPattern | URLResolver], prefix: str) -> Iterator[Route]:
    for each in patterns:
        here = prefix + _readable(str(each.pattern))
        if isinstance(each, URLResolver):
            yield from _walk(each.url_patterns, here)
            continue
        view = getattr(each.callback, "cls", None)
        if view is None:
            continue
        actions = getattr(each.callback, "actions", None)
        if actions is None:
            methods = ("get", "post", "put", "patch", "delete")
            actions = {name: name for name in methods if hasattr(view, name)}
        yield Route(here, cast("type[ApiView]", view), dict(actions))


def _readable(pattern: str) -> str:
    pattern = re.sub(r"\(\?P<(\w+)>[^)]*\)", r"{\1}", pattern)
    pattern = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", pattern)
    return pattern.replace("^", "").replace("$", "").replace("\\", "")


ROUTES = all_routes()
WITH_IDS = [route for route in ROUTES if route.names]
LISTS = [
    route
    for route in ROUTES
    if not route.names
    and route.actions.get("get") == "list"
    and not route.path.startswith(MACHINERY)
]
