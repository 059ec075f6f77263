"""The websockets of the live pages. They relay and never write."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from channels.auth import get_user
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer

from apps.access.models import User
from apps.access.services import has_role_somewhere
from apps.access.services.second_factor import needs_factor
from apps.access.states import Role
from apps.dashboard.events import (
    AGENTS,
    EVERYTHING,
    log_group,
    project_group,
    run_group,
    subject,
)
from apps.joblogs.queries import sees_stream
from apps.jobs.models import Run
from apps.projects.models import Project

# At most five messages a second to a socket; each carries the newest state of every run.
SEND_EVERY_SECONDS: Final = 0.2
# A role taken away or a logout silences an open socket at the latest after this.
CHECK_EVERY_SECONDS: Final = 15.0
# Close code of a socket whose owner may no longer look.
NO_LONGER_ALLOWED: Final = 4403


class LiveConsumer(AsyncJsonWebsocketConsumer):
    """Joins the groups its owner may see and sends on what arrives, thinned out.

    Each message to the browser is ``{"events": [{"kind": ..., "payload": {...}}, ...]}``.
    """

    async def connect(self) -> None:
        """Refuse strangers before the handshake is answered."""
        self._pending: dict[tuple[str, object], dict[str, Any]] = {}
        self._sender: asyncio.Task[None] | None = None
        self._may_send_at = 0.0
        self._joined: list[str] = []
        groups = await self._allowed_groups()
        if not groups:
            await self.close()
            return
        self._check_at = asyncio.get_running_loop().time() + CHECK_EVERY_SECONDS
        for group in groups:
            await self.channel_layer.group_add(group, self.channel_name)
            self._joined.append(group)
        await self.accept()

    async def disconnect(self, code: int) -> None:
        """Leave every group."""
        for group in self._joined:
            await self.channel_layer.group_discard(group, self.channel_name)
        if self._sender is not None:
            self._sender.cancel()

    async def receive(
        self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any
    ) -> None:
        """Nothing that a browser says here changes anything."""

    async def relay_event(self, message: dict[str, Any]) -> None:
        """An event of one of the groups; ``relay`` sent it."""
        key = (message["kind"], subject(message["payload"]))
        # Every event is absolute, so the newest of its kind and run says it all.
        self._pending[key] = {"kind": message["kind"], "payload": message["payload"]}
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_pending())

    async def _send_pending(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._pending:
                await asyncio.sleep(max(0.0, self._may_send_at - loop.time()))
                self._may_send_at = loop.time() + SEND_EVERY_SECONDS
                if not await self._still_allowed(loop.time()):
                    await self.close(NO_LONGER_ALLOWED)
                    return
                pending, self._pending = self._pending, {}
                await self.send_json({"events": list(pending.values())})
        except OSError:
            # The browser is gone; the server says so by a disconnect in a moment.
            return
        finally:
            self._sender = None

    async def _still_allowed(self, now: float) -> bool:
        if now < self._check_at:
            return True
        self._check_at = now + CHECK_EVERY_SECONDS
        return sorted(await self._allowed_groups()) == sorted(self._joined)

    async def _allowed_groups(self) -> Sequence[str]:
        """What this socket may listen to now; empty when nothing."""
        # From the session and the database anew: a logout or a new password ends the session.
        user = await get_user(self.scope)
        if not isinstance(user, User):
            return ()
        groups: Sequence[str] = await database_sync_to_async(self._groups_now)(user)
        return groups

    def _groups_now(self, user: User) -> Sequence[str]:
        session = self.scope["session"]
        if not session.is_alive():
            return ()
        # Whoever must choose a password or give a code first sees nothing else before.
        if user.must_change_password or not user.is_active or needs_factor(user, session):
            return ()
        return self.groups_for(user)

    def groups_for(self, user: User) -> Sequence[str]:
        """The groups of this page that ``user`` may see. Runs in a thread."""
        raise NotImplementedError


class RunConsumer(LiveConsumer):
    """``/ws/runs/<run>``: one run."""

    def groups_for(self, user: User) -> Sequence[str]:
        """The run's own group, if the run is visible."""
        run = int(self.scope["url_route"]["kwargs"]["run"])
        return [run_group(run)] if Run.objects.visible_to(user).filter(pk=run).exists() else []


class LogConsumer(LiveConsumer):
    """``/ws/logs/run:7`` or ``/ws/logs/build:3``: whether a log has grown."""

    def groups_for(self, user: User) -> Sequence[str]:
        """The log's own group, if its run or build is visible."""
        stream: str = self.scope["url_route"]["kwargs"]["stream"]
        return [log_group(stream)] if sees_stream(user, stream) else []


class HomeConsumer(LiveConsumer):
    """``/ws/home``: all runs of the projects its owner sees."""

    def groups_for(self, user: User) -> Sequence[str]:
        """One group for those who see everything, else one a project."""
        if user.sees_everything:
            return [EVERYTHING]
        visible = Project.objects.visible_to(user).values_list("pk", flat=True)
        return [project_group(pk) for pk in visible]


class AgentsConsumer(LiveConsumer):
    """``/ws/agents``: the list of agents, and the page of one."""

    def groups_for(self, user: User) -> Sequence[str]:
        """For whoever sees any project, as the pages themselves."""
        return [AGENTS] if has_role_somewhere(user, Role.VIEWER) else []


class NoSuchPage(AsyncJsonWebsocketConsumer):
    """Refuses every other address, quietly: anybody may ask."""

    async def connect(self) -> None:
        """Refuse."""
        await self.close()
