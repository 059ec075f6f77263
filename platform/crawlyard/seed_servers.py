"""taskHUB's HTTP servers: further ports of the web process, by active rules.

A thread follows the active rules of every project and passes the wanted ports to the event loop,
which listens there. Each port serves the seed's paths of its project only. Failures are stored for
pages and never end the web process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

import uvicorn
from django.conf import settings
from django.db import Error as DatabaseFailure
from django.db import connection

from apps.configcenter.services import ActiveVersion, ConfigWatcher
from apps.projects.models import Project
from apps.routing.engine.files.placeholders import TextTooLong, fill
from apps.routing.engine.rules import Server
from apps.routing.engine.servers import address_of, refusal, shown
from apps.routing.placeholders import placeholders
from apps.routing.queries.tracks import KIND
from apps.routing.services import report_servers
from crawlyard.head_limit import ShortHeads
from yardkit.clock import Clock, SystemClock

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
# Seconds between two attempts to bind a port.
REPORT_SECONDS: Final = 5.0
# Limit for the event loop's answer; then the round is abandoned.
LOOP_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 1
_PATHS: Final = re.compile(r"/(?:task/?|inbound/.+/check_task/?|outbound(?:/.*)?)", re.DOTALL)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[..., Awaitable[Any]]
# Address and port.
Place = tuple[str, int]


class SeedPaths:
    """Paths of the seed for one project: ``/task/`` is ``/projects/<slug>/task/`` here."""

    def __init__(self, application: Application, slug: str) -> None:
        self.slug = slug
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if not _PATHS.fullmatch(path):
            await _not_found(send)
            return
        await self._application({**scope, "path": f"/projects/{self.slug}{path}"}, receive, send)


async def _not_found(send: Send) -> None:
    detail = "only /task/, /inbound/NAME/check_task/ and /outbound/PREFIX are here"
    body = json.dumps({"code": "not_found", "detail": detail, "fields": {}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Uvicorn(uvicorn.Server):
    """Server beside the main one, which handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(slots=True)
class _Listener:
    """One open port."""

    paths: SeedPaths
    server: _Uvicorn
    task: asyncio.Task[None]

    async def stop(self) -> None:
        """Stop; requests in progress get a moment to finish."""
        self.server.should_exit = True
        await asyncio.wait([self.task])


@dataclass(slots=True)
class Listeners:
    """The open ports. For the event loop's thread only."""

    application: Application
    _open: dict[Place, _Listener] = field(default_factory=dict)
    _is_closed: bool = False

    async def close(self) -> None:
        """Close all ports; none is opened again."""
        self._is_closed = True
        await self.arrange({})

    async def arrange(self, wanted: dict[Place, str]) -> dict[Place, str]:
        """Listen on exactly the wanted ports; return the error of each that cannot be opened.

        ``wanted`` maps a place to its project's slug.
        """
        gone = [
            place
            for place, listener in self._open.items()
            if place not in wanted or listener.task.done()
        ]
        await asyncio.gather(*(self._open.pop(place).stop() for place in gone))
        problems: dict[Place, str] = {}
        for place, slug in wanted.items() if not self._is_closed else ():
            if place in self._open:
                self._open[place].paths.slug = slug
                continue
            try:
                self._open[place] = self._listen(place, slug)
            except OSError as error:
                problems[place] = error.strerror or str(error)
        return problems

    def _listen(self, place: Place, slug: str) -> _Listener:
        bound = _bind(place)
        paths = SeedPaths(self.application, slug)
        config = uvicorn.Config(
            paths,
            interface="asgi3",
            http=ShortHeads,
            lifespan="off",
            ws="none",
            log_config=None,
            # The log level applies to all servers of this process.
            log_level=settings.LOG_LEVEL.lower(),
            access_log=False,
            # Clients connect directly: forwarded headers are not trusted here.
            proxy_headers=False,
            timeout_graceful_shutdown=_STOP_SECONDS,
            server_header=False,
        )
        server = _Uvicorn(config)
        task = asyncio.get_running_loop().create_task(server.serve(sockets=[bound]))
        return _Listener(paths, server, task)


def _bind(place: Place) -> socket.socket:
    """Return a socket that other web processes of this host may share. Raises ``OSError``."""
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(place)
        # Listen here: a port in use by another program then raises here, not in the server.
        bound.listen(2048)
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound


class SeedServers:
    """Keep the ports of active rules open until stopped."""

    def __init__(
        self,
        application: Application,
        loop: asyncio.AbstractEventLoop,
        *,
        clock: Clock | None = None,
    ) -> None:
        self.process = f"{socket.gethostname()}:{os.getpid()}"
        self._listeners = Listeners(application)
        self._loop = loop
        self._clock = clock or SystemClock()
        self._wanted: dict[int, Server] = {}
        self._reported: dict[int, tuple[str, str]] = {}
        self._is_away = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; the database may be unreachable."""
        self._thread = threading.Thread(target=self._run, name="seed-servers", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Close the ports within ``timeout`` seconds. Not for the event loop's thread."""
        self._stopping.set()
        with contextlib.suppress(TimeoutError):
            closed = asyncio.run_coroutine_threadsafe(self._listeners.close(), self._loop)
            closed.result(timeout)
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        follower = ConfigWatcher(kind=KIND, apply=self._use, clock=self._clock)
        started = False
        tell_at = 0.0
        while not self._stopping.is_set():
            try:
                if started:
                    changed = follower.poll()
                else:
                    follower.setup()
                    started = changed = True
                if changed or self._clock.monotonic() >= tell_at:
                    tell_at = self._clock.monotonic() + REPORT_SECONDS
                    self._round()
                self._is_away = False
            except (DatabaseFailure, TimeoutError) as error:
                self._note(error)
            except Exception:  # a failure here must not end the web process
                logger.exception("taskHUB's own ports stay as they are")
            # Return the connection to the pool: this thread needs it for moments only.
            connection.close()
            self._stopping.wait(POLL_SECONDS)
        with contextlib.suppress(DatabaseFailure):
            report_servers(process=self.process, servers={}, now=self._clock.now())
            connection.close()

    def _note(self, error: Exception) -> None:
        """Log one line for each outage, however often it is noticed."""
        if not self._is_away:
            why = str(error).strip().partition("\n")[0] or type(error).__name__
            logger.warning("taskHUB's own ports stay as they are: %s", why)
        self._is_away = True

    def _use(self, project: int, active: ActiveVersion | None) -> None:
        """Read only the ``server`` part of the rules; the router validates the rest."""
        server = None if active is None else active.data.get("server")
        if server:
            self._wanted[project] = Server(bind=str(server["bind"]), port=int(server["port"]))
        else:
            self._wanted.pop(project, None)

    def _round(self) -> None:
        reported: dict[int, tuple[str, str]] = {}
        places: dict[Place, str] = {}
        owners: dict[Place, int] = {}
        slugs = dict(Project.objects.filter(pk__in=self._wanted).values_list("pk", "slug"))
        for project in sorted(slugs):
            server, problem = _filled(self._wanted[project], slugs[project])
            problem = problem or refusal(server, settings.ROUTING_SERVERS)
            if not problem:
                place = (address_of(server), server.port)
                if place in owners:
                    problem = f"the project {slugs[owners[place]]} has this port"
                else:
                    owners[place], places[place] = project, slugs[project]
            reported[project] = (shown(self._wanted[project]), problem)
        arranged = asyncio.run_coroutine_threadsafe(self._listeners.arrange(places), self._loop)
        for place, problem in arranged.result(LOOP_SECONDS).items():
            project = owners[place]
            reported[project] = (reported[project][0], problem)
        self._log(reported)
        if reported or self._reported:
            report_servers(process=self.process, servers=reported, now=self._clock.now())
        self._reported = reported

    def _log(self, told: dict[int, tuple[str, str]]) -> None:
        for project, (address, problem) in told.items():
            if self._reported.get(project) != (address, problem):
                if problem:
                    logger.warning("taskHUB's own port %s is not open: %s", address, problem)
                else:
                    logger.info("taskHUB's own port %s is open", address)


def _filled(server: Server, slug: str) -> tuple[Server, str]:
    """Return the server with its placeholders replaced, and the error if one has no value."""
    try:
        bind, unknown = fill(server.bind, placeholders(slug))
    except TextTooLong as error:
        return server, str(error)
    if unknown:
        return server, f"there is no placeholder {{{unknown[0]}}}"
    return Server(bind=bind, port=server.port), ""
