"""Browser sessions with user, address and expiry; the ``SESSION_ENGINE``.

Not imported by ``services``: daemons have no sessions.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.utils.dateparse import parse_datetime

from apps.access.errors import NoSuchSession
from apps.access.models import LoginSession, User
from apps.access.services.audit import record
from apps.access.services.clients import client_address

# Shortest interval between two writes of a session's last activity.
NOTED_EVERY: Final = timedelta(minutes=1)
_BEGAN, _ADDRESS, _AGENT = "began_at", "address", "agent"


def longest() -> timedelta:
    """Return the absolute lifetime of a session."""
    return timedelta(hours=settings.SESSION_HOURS)


def idle() -> timedelta:
    """Return the idle timeout of a session."""
    return timedelta(minutes=settings.SESSION_IDLE_MINUTES)


class SessionStore(DatabaseStore):
    """Django's database sessions, with a user and an absolute lifetime."""

    row: LoginSession | None = None

    @classmethod
    def get_model_class(cls) -> type[LoginSession]:
        return LoginSession

    def _get_session_from_db(self) -> LoginSession | None:
        # Exists in Django, but not in the stubs.
        self.row = cast("LoginSession | None", super()._get_session_from_db())  # type: ignore[misc]
        return self.row

    def began_at(self) -> datetime:
        """Time of the login."""
        return parse_datetime(str(self.get(_BEGAN, ""))) or timezone.now()

    def get_expiry_age(self, **kwargs: Any) -> int:
        """Return the seconds left of the absolute lifetime, for the cookie."""
        return max(0, int((self.began_at() + longest() - timezone.now()).total_seconds()))

    def create_model_instance(self, data: dict[str, Any]) -> LoginSession:
        """Return the row to store."""
        row = cast(LoginSession, super().create_model_instance(data))
        now = timezone.now()
        row.user_id = int(data["_auth_user_id"]) if data.get("_auth_user_id") else None
        row.began_at = self.began_at()
        row.seen_at = now
        row.expire_date = _end(row.began_at, now)
        row.address, row.agent = str(data.get(_ADDRESS, "")), str(data.get(_AGENT, ""))
        return row

    async def acreate_model_instance(self, data: dict[str, Any]) -> LoginSession:
        return await sync_to_async(self.create_model_instance)(data)

    def is_alive(self) -> bool:
        """Query the database for whether the session has neither been ended nor expired."""
        rows = LoginSession.objects.filter(session_key=self.session_key)
        return bool(self.session_key) and rows.filter(expire_date__gt=timezone.now()).exists()

    def note_seen(self) -> None:
        """Record activity of the user."""
        now = timezone.now()
        if self.row is None or now - self.row.seen_at < NOTED_EVERY:
            return
        LoginSession.objects.filter(session_key=self.session_key).update(
            seen_at=now, expire_date=_end(self.row.began_at, now)
        )


@dataclass(frozen=True, slots=True)
class OwnSession:
    """A session shown to its user. ``handle`` identifies it without giving access."""

    handle: str
    agent: str
    address: str
    began_at: datetime
    seen_at: datetime
    ends_at: datetime
    is_this: bool


def begin(request: HttpRequest) -> None:
    """Record time and address of a login in its session."""
    LoginSession.objects.filter(expire_date__lt=timezone.now()).delete()
    request.session[_BEGAN] = timezone.now().isoformat()
    request.session[_ADDRESS] = client_address(request)[:45]
    request.session[_AGENT] = request.headers.get("User-Agent", "").replace("\x00", "")[:200]


def sessions_of(user: User, *, this: str | None) -> list[OwnSession]:
    """Return the open sessions, newest first; ``this`` is the key of the current one."""
    rows = LoginSession.objects.filter(user=user, expire_date__gt=timezone.now())
    return [
        OwnSession(
            handle=_handle(row.session_key),
            agent=row.agent,
            address=row.address,
            began_at=row.began_at,
            seen_at=row.seen_at,
            ends_at=row.expire_date,
            is_this=row.session_key == this,
        )
        for row in rows.defer("session_data").order_by("-seen_at", "session_key")
    ]


@transaction.atomic
def end_session(*, actor: User, user: User, handle: str) -> None:
    """End the session with this handle. Raises ``NoSuchSession``."""
    keys = LoginSession.objects.filter(user=user).values_list("session_key", flat=True)
    session_key = next((key for key in keys if _handle(key) == handle), None)
    row = LoginSession.objects.filter(session_key=session_key).first()
    if row is None:
        raise NoSuchSession
    row.delete()
    before = {"address": row.address, "agent": row.agent, "began_at": row.began_at}
    record(actor=actor, action="access.end_session", obj=user, before=before)


@transaction.atomic
def end_sessions(*, actor: User | None, user: User, but: str | None = None) -> int:
    """End all sessions of a user except the one with the key ``but``; return their number."""
    rows = LoginSession.objects.filter(user=user).exclude(session_key=but or "")
    count = int(rows.delete()[0])
    if count:
        record(actor=actor, action="access.end_sessions", obj=user, before={"count": count})
    return count


def _end(began: datetime, seen: datetime) -> datetime:
    return min(began + longest(), seen + idle())


def _handle(key: str) -> str:
    return salted_hmac("apps.access.services.sessions", key, algorithm="sha256").hexdigest()[:20]
