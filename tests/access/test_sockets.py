"""Who may open a websocket. The addresses come from the list of routes, so none is forgotten."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import Client
from django.utils import timezone

from apps.access.models import LoginSession, Membership, User
from apps.access.services.second_factor import begin_factor, confirm_factor
from apps.access.services.sessions import end_sessions
from apps.access.states import Role
from apps.dashboard import consumers
from apps.dashboard.relay import send_to_groups
from apps.jobs.models import Run
from crawlyard.websockets import websocket_urlpatterns
from tests.access.factories import code_at, make_project, make_superuser, make_token, make_user
from tests.dashboard.sockets import Socket, cookie_of
from tests.jobs.factories import make_job, make_run
from yardkit.protocol import Event

pytestmark = pytest.mark.django_db(transaction=True)

# What stands in an address, of the world's run. A new route needs a line here.
ADDRESSES: dict[str, Callable[[Run], str]] = {
    "ws/agents": lambda run: "/ws/agents",
    "ws/home": lambda run: "/ws/home",
    "ws/logs/<str:stream>": lambda run: f"/ws/logs/run:{run.pk}",
    "ws/runs/<int:run>": lambda run: f"/ws/runs/{run.pk}",
}
# Of no project: whoever sees any project hears of agents; home is open to all, of what each sees.
OF_NO_PROJECT = {"ws/agents", "ws/home"}
ROUTES = [str(each.pattern) for each in websocket_urlpatterns if str(each.pattern)]
NOWHERE = "ws/elsewhere"


def event_for(route: str, run: Run) -> Event:
    """Something that a socket of this route tells."""
    if route == "ws/agents":
        return Event(kind="agents.changed")
    if route.startswith("ws/logs"):
        return Event(
            kind="log.grew", project=run.job.project_id, payload={"stream": f"run:{run.pk}"}
        )
    payload = {"run": run.pk, "success": 1}
    return Event(kind="run.counters", project=run.job.project_id, payload=payload)


@dataclass
class World:
    run: Run
    viewer: User
    cookie: str


@sync_to_async
def make_world(role: Role = Role.VIEWER) -> World:
    run = make_run()
    viewer = make_user(roles={run.job.project: role})
    return World(run, viewer, cookie_of(viewer))


async def opens(address: str, cookie: str = "", **options: Any) -> bool:
    socket = Socket(address, cookie, **options)
    accepted = await socket.connect()
    await socket.disconnect()
    return accepted


def test_every_route_is_here() -> None:
    assert set(ROUTES) == set(ADDRESSES)
    last = websocket_urlpatterns[-1]
    assert str(last.pattern) == ""
    assert last.callback.consumer_class is consumers.UnknownPathConsumer
    for each in websocket_urlpatterns[:-1]:
        assert issubclass(each.callback.consumer_class, consumers.LiveConsumer)


@pytest.mark.slow("2 s")
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("role", list(Role))
async def test_members_of_every_role_listen(route: str, role: Role) -> None:
    world = await make_world(role)
    assert await opens(ADDRESSES[route](world.run), world.cookie)


def _session(world: World, **fields: Any) -> None:
    LoginSession.objects.filter(user=world.viewer).update(**fields)


def _has_factor(world: World) -> None:
    factor = begin_factor(user=world.viewer)
    confirm_factor(user=world.viewer, code=code_at(factor))


def _log_out(world: World) -> None:
    client = Client()
    client.cookies["sessionid"] = world.cookie.partition("=")[2]
    client.post("/admin/logout/")


def _set_password(world: World) -> None:
    # Without a word to the sessions: the hash of the password in them has to be enough.
    user = User.objects.get(pk=world.viewer.pk)
    user.set_password("quite another one")
    user.save()


# What makes a socket impossible that was possible, for those who had a role and a session.
TAKEN: dict[str, Callable[[World], Any]] = {
    "deactivated": lambda w: User.objects.filter(pk=w.viewer.pk).update(is_active=False),
    "deleted": lambda w: User.objects.filter(pk=w.viewer.pk).delete(),
    "logged out": _log_out,
    "session ended": lambda w: end_sessions(actor=None, user=w.viewer),
    "session too old": lambda w: _session(w, expire_date=timezone.now() - timedelta(seconds=1)),
    "password changed": _set_password,
    "must change the password": lambda w: User.objects.filter(pk=w.viewer.pk).update(
        must_change_password=True
    ),
    "code not given": _has_factor,
    "role taken": lambda w: Membership.objects.filter(user=w.viewer).delete(),
    "project moved away": lambda w: Run.objects.filter(pk=w.run.pk).update(
        job=make_job(project=make_project())
    ),
}


def _concerns(what: str, route: str) -> bool:
    return not (what == "project moved away" and route in OF_NO_PROJECT)


@pytest.mark.slow("5 s")
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("what", list(TAKEN))
async def test_whom_something_was_taken_from_is_refused(what: str, route: str) -> None:
    if not _concerns(what, route):
        route = "ws/runs/<int:run>"
    world = await make_world()
    assert await opens(ADDRESSES[route](world.run), world.cookie)
    await sync_to_async(TAKEN[what])(world)
    assert not await opens(ADDRESSES[route](world.run), world.cookie)


@pytest.mark.parametrize("route", [*ROUTES, NOWHERE])
async def test_strangers_are_refused(route: str) -> None:
    world = await make_world()
    address = ADDRESSES[route](world.run) if route in ADDRESSES else f"/{NOWHERE}"
    assert not await opens(address)
    assert not await opens(address, "sessionid=made-up")
    assert not await opens(address, f"sessionid={'a' * 32}")
    token = await sync_to_async(lambda: make_token(world.viewer).secret)()
    assert not await opens(address, f"sessionid={token}")


@pytest.mark.parametrize("route", [r for r in ROUTES if r not in OF_NO_PROJECT])
async def test_other_projects_do_not_exist(route: str) -> None:
    world, other = await make_world(), await make_world(Role.ADMIN)
    assert not await opens(ADDRESSES[route](world.run), other.cookie)


@pytest.mark.parametrize("route", ["ws/agents", "ws/home"])
async def test_who_sees_no_project_hears_of_none(route: str) -> None:
    world = await make_world()
    nobody = await sync_to_async(lambda: cookie_of(make_user()))()
    assert not await opens(ADDRESSES[route](world.run), nobody)


@pytest.mark.slow("3 s")
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://localhost.evil.example",
        "http://localhost:8001",
        "null",
        "file://",
        "http://[::1",
        "",
    ],
)
async def test_pages_of_elsewhere_are_refused(route: str, origin: str) -> None:
    world = await make_world()
    everything = await sync_to_async(lambda: cookie_of(make_superuser()))()
    for cookie in (world.cookie, everything):
        assert not await opens(ADDRESSES[route](world.run), cookie, origin=origin)


@pytest.mark.slow("10 s")
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("what", list(TAKEN))
async def test_an_open_socket_hears_nothing_more(
    what: str, route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the latest after ``CHECK_EVERY_SECONDS``, which documents promise as 15."""
    assert consumers.CHECK_EVERY_SECONDS == 15.0
    monkeypatch.setattr(consumers, "CHECK_EVERY_SECONDS", 0.05)
    if not _concerns(what, route):
        route = "ws/runs/<int:run>"
    world = await make_world()
    socket = Socket(ADDRESSES[route](world.run), world.cookie)
    assert await socket.connect()
    event = event_for(route, world.run)
    await send_to_groups([event])
    assert [each["kind"] for each in await socket.events()] == [event.kind]
    await sync_to_async(TAKEN[what])(world)
    # Longer than the time between two checks.
    assert await socket.is_silent(0.1)
    await send_to_groups([event])
    closed = {"type": "websocket.close", "code": consumers.NO_LONGER_ALLOWED}
    assert await socket.frame() == closed
    await socket.disconnect()


def test_the_documents_say_the_time() -> None:
    text = re.sub(r"\s+", " ", (Path(__file__).parents[2] / "docs" / "people.md").read_text())
    assert f"within {consumers.CHECK_EVERY_SECONDS:.0f} s" in text
