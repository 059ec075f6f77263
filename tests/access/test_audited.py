"""Every route of REST that changes something leaves a record of who did what to which object.

The routes come from the URL conf. What one needs beside the objects that ``MAKERS`` makes stands in
``BODIES``; whichever is refused for want of more must have written nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from apps.access.states import Role
from apps.seeds.services import calling
from tests.access.factories import Api, make_project, make_superuser, make_user
from tests.access.test_routes import ASKING, ROUTES, World, path_of
from tests.plugins.trail import Watched

pytestmark = pytest.mark.django_db

# (method, path): what is sent. Of routes that need nothing, {} is sent.
BODIES: dict[tuple[str, str], Callable[[World], dict[str, Any]]] = {
    ("patch", "api/v1/agents/{pk}"): lambda w: {"mode": "draining"},
    ("post", "api/v1/host-rules"): lambda w: {"host": "*.a.test", "requests_per_second": 2.5},
    ("patch", "api/v1/host-rules/{pk}"): lambda w: {"requests_per_second": 2.5},
    ("post", "api/v1/jobs"): lambda w: {
        "project": w.project.pk,
        "name": "New",
        "spider": "yardspider.spiders:SiteSpider",
    },
    ("patch", "api/v1/channels/{pk}"): lambda w: {"enabled": False},
    ("patch", "api/v1/jobs/{pk}"): lambda w: {"speed": 3},
    ("post", "api/v1/memberships"): lambda w: {
        "project": w.project.pk,
        "user": make_user().username,
        "role": "viewer",
    },
    ("patch", "api/v1/projects/{pk}"): lambda w: {"description": "told anew"},
    ("post", "api/v1/projects"): lambda w: {"name": "One more", "slug": "one-more"},
    ("patch", "api/v1/run-hosts/{pk}"): lambda w: {"mode": "draining"},
    ("post", "api/v1/tokens"): lambda w: {"name": "reader", "scopes": ["jobs:read"]},
    ("post", "api/v1/saved-filters"): lambda w: {
        "path": "/admin/jobs/run/",
        "name": "more",
        "query": "state=lost",
    },
    ("patch", "api/v1/saved-filters/{pk}"): lambda w: {"name": "other"},
    ("post", "api/v1/source-credentials"): lambda w: {"project": w.project.pk, "name": "vendor"},
    ("post", "api/v1/resources/{pk}/ban"): lambda w: {"reason": "blocked"},
}
CALLS = [
    (method, route)
    for route in ROUTES
    for method in route.actions
    if method not in ("get", "head") and route.path not in ASKING
]


@pytest.fixture
def world(request_nodes: dict[str, str]) -> World:
    project = make_project()
    return World(project, make_user(roles={project: Role.ADMIN}))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "TIMEOUT_SECONDS", 0.2)


@pytest.mark.parametrize(("method", "route"), CALLS, ids=[f"{m} {r}" for m, r in CALLS])
def test_what_was_done_stands_in_the_trail(
    method: str, route: Any, world: World, watched: list[Watched]
) -> None:
    own = route.path.startswith(("api/v1/tokens", "api/v1/saved-filters"))
    person = world.owner if own else make_superuser()
    path = path_of(route, world) if route.names else route.at()
    body = BODIES.get((method, route.path), lambda w: {})(world)
    watched.clear()
    answer = Api(person).call(method, path, body)
    (one,) = watched
    # Of a change of nothing there is nothing to tell, whatever time is noted in the row.
    if body or method not in ("put", "patch"):
        assert one.faults() == []
    else:
        one.tables.clear()
    if (method, route.path) in BODIES:
        assert answer.status_code < 400, answer.content
        assert one.entries, "it was done, and nobody wrote it down"
    for entry in one.entries if answer.status_code < 400 else ():
        assert entry.actor_id == person.pk
        assert entry.token_id is not None
        assert entry.request_id == answer["X-Request-Id"]
        assert entry.object_type
        assert entry.object_id or method == "delete"
        if method in ("put", "patch"):
            assert entry.before is not None
            assert entry.after is not None
        if method == "delete":
            assert entry.before is not None


def test_the_watch_sees_what_is_not_written_down(
    watched: list[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or this file would prove nothing."""
    monkeypatch.setattr("apps.access.services.filters.record", lambda **given: None)
    sent = BODIES["post", "api/v1/saved-filters"](World(make_project(), make_user()))
    assert Api(make_user()).post("saved-filters", sent).status_code == 201
    (fault,) = watched[-1].faults()
    assert "access_savedfilter" in fault
    watched.clear()
