"""The websockets: who may listen, to what, and how often it is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from apps.access.models import Membership, User
from apps.access.states import Role
from apps.dashboard import consumers
from apps.dashboard.relay import send_to_groups
from apps.jobs.models import Run
from tests.access.factories import make_auditor, make_superuser, make_user
from tests.dashboard.sockets import Socket, cookie_of
from tests.jobs.factories import make_job, make_project, make_run
from yardkit.protocol import Event

pytestmark = pytest.mark.django_db(transaction=True)


async def watched_run(**fields: Any) -> Run:
    run: Run = await sync_to_async(make_run)(**fields)
    return run


@sync_to_async
def cookie(run: Run | None = None) -> str:
    """Of a viewer of the run's project, or of somebody who sees everything."""
    user = make_superuser() if run is None else make_user(roles={run.job.project: Role.VIEWER})
    return cookie_of(user)


def counters(run: Run, done: int) -> Event:
    payload = {"run": run.pk, "success": done}
    return Event(kind="run.counters", project=run.job.project_id, payload=payload)


async def is_refused(path: str, cookie: str = "", **options: Any) -> bool:
    socket = Socket(path, cookie, **options)
    accepted = await socket.connect()
    await socket.disconnect()
    return not accepted


async def test_a_member_hears_of_the_run_and_of_no_other() -> None:
    run, other = await watched_run(), await watched_run()
    socket = Socket(f"/ws/runs/{run.pk}", await cookie(run))
    assert await socket.connect()
    await send_to_groups([counters(other, 1), counters(run, 2)])
    payload = {"run": run.pk, "success": 2}
    assert await socket.events() == [{"kind": "run.counters", "payload": payload}]
    assert await socket.is_silent(0.3)
    await socket.disconnect()


async def test_strangers_and_other_peoples_runs_are_refused() -> None:
    run, other = await watched_run(), await watched_run()
    outsider = await cookie(other)
    assert await is_refused(f"/ws/runs/{run.pk}")
    assert await is_refused(f"/ws/runs/{run.pk}", "sessionid=made-up")
    assert await is_refused(f"/ws/runs/{run.pk}", outsider)
    assert await is_refused("/ws/runs/999999999999999999999999", outsider)
    assert await is_refused("/ws/home")
    assert await is_refused("/ws/elsewhere", outsider)
    assert await is_refused("/", outsider)


async def test_an_auditor_hears_of_every_project_until_no_longer_one() -> None:
    run = await watched_run()
    auditor = await sync_to_async(make_auditor)()
    session = await sync_to_async(cookie_of)(auditor)
    socket, home = Socket(f"/ws/runs/{run.pk}", session), Socket("/ws/home", session)
    assert await socket.connect()
    assert await home.connect()
    await send_to_groups([counters(run, 1)])
    payload = {"run": run.pk, "success": 1}
    for each in (socket, home):
        assert await each.events() == [{"kind": "run.counters", "payload": payload}]
        await each.disconnect()
    await sync_to_async(User.objects.filter(pk=auditor.pk).update)(is_auditor=False)
    assert await is_refused(f"/ws/runs/{run.pk}", session)
    assert await is_refused("/ws/home", session)


async def test_another_site_cannot_open_a_socket_with_the_users_cookie() -> None:
    run = await watched_run()
    mine = await cookie()
    assert await is_refused(f"/ws/runs/{run.pk}", mine, origin="https://evil.example")
    assert not await is_refused(f"/ws/runs/{run.pk}", mine)


async def test_a_person_with_a_one_time_password_is_refused() -> None:
    run = await watched_run()
    mine = await cookie()
    await User.objects.aupdate(must_change_password=True)
    assert await is_refused(f"/ws/runs/{run.pk}", mine)


async def test_home_hears_of_the_projects_its_owner_sees() -> None:
    mine, theirs = await watched_run(), await watched_run()
    sockets = [Socket("/ws/home", await cookie(mine)), Socket("/ws/home", await cookie())]
    for socket in sockets:
        assert await socket.connect()
    await send_to_groups([counters(theirs, 1), counters(mine, 2)])
    for socket, expected in zip(sockets, ({mine.pk}, {theirs.pk, mine.pk}), strict=True):
        heard: set[int] = set()
        while len(heard) < len(expected):
            heard |= {event["payload"]["run"] for event in await socket.events()}
        assert heard == expected
        await socket.disconnect()


@pytest.mark.slow("1 s")
async def test_updates_are_thinned_out_and_the_last_one_arrives() -> None:
    run = await watched_run()
    socket = Socket(f"/ws/runs/{run.pk}", await cookie())
    assert await socket.connect()
    loop = asyncio.get_running_loop()
    started = loop.time()
    for number in range(300):
        await send_to_groups([counters(run, number)])
        await asyncio.sleep(0.002)
    heard: list[int] = []
    messages = 0
    while not heard or heard[-1] != 299:
        heard += [event["payload"]["success"] for event in await socket.events()]
        messages += 1
    seconds = loop.time() - started
    assert heard == sorted(set(heard))
    # The first one goes out at once; after it at most one in 0.2 s.
    assert messages <= 2 + seconds / consumers.SEND_EVERY_SECONDS
    await socket.disconnect()


async def test_what_a_browser_says_changes_nothing() -> None:
    run = await watched_run()
    socket = Socket(f"/ws/runs/{run.pk}", await cookie())
    assert await socket.connect()
    for frame in ({"text": '{"type": "stop"}'}, {"text": "no json"}, {"bytes": b"\x00\xff"}):
        await socket.say(**frame)
    await send_to_groups([counters(run, 1)])
    assert await socket.events()
    await socket.disconnect()
    await run.arefresh_from_db()
    assert run.state == "queued"


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("what", ["role", "logout", "account", "project"])
async def test_a_right_that_is_taken_away_closes_the_socket(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "CHECK_EVERY_SECONDS", 0.0)
    run = await watched_run()
    mine = await cookie(run)
    socket = Socket(f"/ws/runs/{run.pk}", mine)
    assert await socket.connect()
    await send_to_groups([counters(run, 1)])
    assert await socket.events()
    await take_away(what, run, mine)
    await send_to_groups([counters(run, 2)])
    assert await socket.frame() == {"type": "websocket.close", "code": consumers.NO_LONGER_ALLOWED}
    await socket.disconnect()


@sync_to_async
def take_away(what: str, run: Run, cookie: str) -> None:
    if what == "role":
        Membership.objects.all().delete()
    elif what == "logout":
        client = Client()
        client.cookies["sessionid"] = cookie.partition("=")[2]
        client.post("/admin/logout/")
    elif what == "account":
        User.objects.update(is_active=False)
    else:
        Run.objects.filter(pk=run.pk).update(job=make_job(project=make_project()))


async def test_the_agents_pages_hear_of_agents_and_of_nothing_else() -> None:
    run = await watched_run()
    socket = Socket("/ws/agents", await cookie(run))
    home = Socket("/ws/home", await cookie())
    assert await socket.connect()
    assert await home.connect()
    await send_to_groups([counters(run, 1), Event(kind="agents.changed")])
    assert await socket.events() == [{"kind": "agents.changed", "payload": {}}]
    assert [event["kind"] for event in await home.events()] == ["run.counters"]
    await socket.disconnect()
    await home.disconnect()
    # Who sees no project sees no agent either.
    assert await is_refused("/ws/agents", await sync_to_async(lambda: cookie_of(make_user()))())
    assert await is_refused("/ws/agents")


async def test_whoever_looks_at_a_log_hears_that_it_has_grown() -> None:
    run, other = await watched_run(), await watched_run()
    mine = await cookie(run)
    socket, page = Socket(f"/ws/logs/run:{run.pk}", mine), Socket(f"/ws/runs/{run.pk}", mine)
    assert await socket.connect()
    assert await page.connect()
    grown = [
        Event(kind="log.grew", project=one.job.project_id, payload={"stream": one.stream})
        for one in (run, other)
    ]
    await send_to_groups([*grown, counters(run, 2)])
    payload = {"stream": run.stream}
    assert await socket.events() == [{"kind": "log.grew", "payload": payload}]
    # Lines come more often than figures: the other pages are not woken by them.
    assert [event["kind"] for event in await page.events()] == ["run.counters"]
    await socket.disconnect()
    await page.disconnect()
    for stream in (other.stream, "build:987654", "run:x", "run:0", f"run:{2**70}"):
        assert await is_refused(f"/ws/logs/{stream}", mine)
