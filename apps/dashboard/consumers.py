"""Websocket consumers of the live pages; they relay events and never write."""

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
from apps.dashboard.events import AGENTS, EVERYTHING, log_group, project_group, run_group, subject
from apps.joblogs.queries import sees_stream
from apps.jobs.models import Run
from apps.projects.models import Project

# Throttle: at most five messages per second and socket, each with the newest events.
SEND_EVERY_SECONDS: Final = 0.2
# Permissions are checked again after this time, so that a logout closes open sockets.
CHECK_EVERY_SECONDS: Final = 15.0
# Close code when the user has lost the permission.
NO_LONGER_ALLOWED: Final = 4403


class LiveConsumer(AsyncJsonWebsocketConsumer):
    """Joins the groups that the user may see, and forwards their events, throttled.

    Each message to the browser is ``{"events": [{"kind": ..., "payload": {...}}, ...]}``.
    """

    async def connect(self) -> None:
        """Join the allowed groups; reject the handshake if there are none."""
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
        """Leave all groups."""
        for group in self._joined:
            await self.channel_layer.group_discard(group, self.channel_name)
        if self._sender is not None:
            self._sender.cancel()

    async def receive(
        self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any
    ) -> None:
        """Ignore messages from the browser."""

    async def relay_event(self, message: dict[str, Any]) -> None:
        """Queue an event of one of the groups; the channel layer calls this."""
        key = (message["kind"], subject(message["payload"]))
        # Events carry absolute values, so the newest one of a kind and run replaces earlier ones.
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
            # The browser has disconnected; ``disconnect`` follows.
            return
        finally:
            self._sender = None

    async def _still_allowed(self, now: float) -> bool:
        if now < self._check_at:
            return True
        self._check_at = now + CHECK_EVERY_SECONDS
        return sorted(await self._allowed_groups()) == sorted(self._joined)

    async def _allowed_groups(self) -> Sequence[str]:
        """Return the groups that this socket may join now."""
        # Reads session and user again: a logout or a new password ends the session.
        user = await get_user(self.scope)
        if not isinstance(user, User):
            return ()
        groups: Sequence[str] = await database_sync_to_async(self._groups_now)(user)
        return groups

    def _groups_now(self, user: User) -> Sequence[str]:
        session = self.scope["session"]
        if not session.is_alive():
            return ()
        # Users who must first change their password or enter a code see nothing.
        if user.must_change_password or not user.is_active or needs_factor(user, session):
            return ()
        return self.groups_for(user)

    def groups_for(self, user: User) -> Sequence[str]:
        """Return the groups of this page that ``user`` may see. Called in a thread."""
        raise NotImplementedError


class RunConsumer(LiveConsumer):
    """``/ws/runs/<run>``: events of one run."""

    def groups_for(self, user: User) -> Sequence[str]:
        """Return the run's group if the run is visible."""
        run = int(self.scope["url_route"]["kwargs"]["run"])
        return [run_group(run)] if Run.objects.visible_to(user).filter(pk=run).exists() else []


class LogConsumer(LiveConsumer):
    """``/ws/logs/run:7`` or ``/ws/logs/build:3``: new lines of one log."""

    def groups_for(self, user: User) -> Sequence[str]:
        """Return the log's group if its run or build is visible."""
        stream: str = self.scope["url_route"]["kwargs"]["stream"]
        return [log_group(stream)] if sees_stream(user, stream) else []


class HomeConsumer(LiveConsumer):
    """``/ws/home``: runs of all visible projects."""

    def groups_for(self, user: User) -> Sequence[str]:
        """Return one group for users who see everything, else one for each project."""
        if user.sees_everything:
            return [EVERYTHING]
        visible = Project.objects.visible_to(user).values_list("pk", flat=True)
        return [project_group(pk) for pk in visible]


class AgentsConsumer(LiveConsumer):
    """``/ws/agents``: states of all agents."""

    def groups_for(self, user: User) -> Sequence[str]:
        """Allow users with a role in any project."""
        return [AGENTS] if has_role_somewhere(user, Role.VIEWER) else []


class UnknownPathConsumer(AsyncJsonWebsocketConsumer):
    """Rejects unknown websocket paths without logging, since any client can request them."""

    async def connect(self) -> None:
        """Reject the handshake."""
        await self.close()
