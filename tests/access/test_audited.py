"""Every route of REST that changes something leaves a record of who did what to which object.

The routes come from the URL conf, and each is called so that it succeeds; those that another
process has to answer are refused, and must have written nothing.
"""

from __future__ import annotations

from typing import Any

import pytest

from apps.access.states import Role
from apps.seeds.services import clients
from tests.access.factories import PASSWORD, Api, make_project, make_superuser, make_user
from tests.access.routes import ASKING
from tests.access.test_routes import OWN, ROUTES, World, calls, path_of
from tests.plugins.audit_trail import QUIET, Watched
from tests.rest.test_every_post import BODIES, ELSEWHERE, address

pytestmark = pytest.mark.django_db

# What changes one of each; PUT sends it with all else that GET shows. Of what POST sends, see
# tests/rest/test_every_post.py.
CHANGES: dict[str, dict[str, Any]] = {
    "agents/{pk}": {"mode": "draining"},
    "channels/{pk}": {"enabled": False},
    "datasets/{dataset}/deliveries/{pk}": {"options": {"table": "others"}},
    "datasets/{pk}": {"keep_days": 9},
    "datasets/{pk}/runs/{run}": {"pinned": True},
    "frontiers/{pk}": {"description": "told anew"},
    "host-rules/{pk}": {"requests_per_second": 2.5},
    "job-links/{pk}": {"condition": "failed"},
    "jobs/{job}/yields/standing": {"drop_below": 0.3},
    "jobs/{pk}": {"speed": 3},
    "log-policies/{pk}": {"days": 8},
    "memberships/{pk}": {"role": "viewer"},
    "people/{pk}": {"first_name": "Ada"},
    "projects/{pk}": {"description": "told anew"},
    "resource-pools/{pk}": {"description": "told anew"},
    "resources/{pk}": {"name": "other"},
    "run-hosts/{pk}": {"mode": "draining"},
    "saved-filters/{pk}": {"name": "other"},
    "source-credentials/{pk}": {"username": "me"},
}
# Beside what tests/rest/test_every_post.py sends.
SENT: dict[str, dict[str, Any]] = {
    "me/password": {"old_password": PASSWORD, "new_password": "a wholly other one 1"},
    "resources/{pk}/ban": {"reason": "blocked"},
}
# What a secret is, is never shown; a PUT names it anew.
HIDDEN = {"resources/{pk}": {"secret": {"user": "me"}}}
# The seed service, a git server or a record API has to answer; and people are changed by PATCH.
AWAY = {
    "delete": {"frontiers/{pk}"},
    "put": {"people/{pk}"},
    "post": ELSEWHERE.keys() | {"projects/{pk}/test-connection", "sources/projects/{pk}/dry-run"},
}
CALLS = [
    (method, route)
    for route in ROUTES
    for method in calls(route)
    if method != "get" and route.path not in ASKING
]


@pytest.fixture
def world(request_nodes: dict[str, str]) -> World:
    project = make_project()
    return World(project, make_user(roles={project: Role.ADMIN}))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "TIMEOUT_SECONDS", 0.2)


def body_of(method: str, path: str, address: str, api: Api, world: World) -> dict[str, Any]:
    """What is sent, and changes something."""
    if method == "post":
        return SENT.get(path) or BODIES.get(path, lambda world: {})(world)
    if method == "delete":
        return {}
    shown = api.get(address).json() | HIDDEN.get(path, {}) if method == "put" else {}
    return shown | CHANGES[path]


@pytest.mark.slow("15 s")
@pytest.mark.parametrize(("method", "route"), CALLS, ids=[f"{m} {r}" for m, r in CALLS])
def test_what_was_done_stands_in_the_trail(
    method: str, route: Any, world: World, watched: list[Watched]
) -> None:
    path = route.path.removeprefix("api/v1/")
    own = route.path.startswith(OWN)
    person = world.owner if own else make_superuser()
    at = address(path, world) if method == "post" else path_of(route, world)
    api = Api(person)
    body = {} if path in AWAY.get(method, ()) else body_of(method, path, at, api, world)
    watched.clear()
    answer = api.call(method, at, body)
    (one,) = watched
    assert one.faults() == []
    if path in AWAY.get(method, ()):
        return
    assert answer.status_code < 400, answer.content
    assert one.entries or one.view_name in QUIET, "it was done, and nobody wrote it down"
    for entry in one.entries:
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
    sent = BODIES["saved-filters"](World(make_project(), make_user()))
    assert Api(make_user()).post("saved-filters", sent).status_code == 201
    (fault,) = watched[-1].faults()
    assert "access_savedfilter" in fault
    watched.clear()
