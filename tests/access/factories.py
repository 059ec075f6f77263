"""People, projects and tokens to test with."""

from __future__ import annotations

import base64
import time
from datetime import datetime
from itertools import count
from typing import Any

from django.test import Client
from django.urls import reverse
from django_otp.oath import TOTP

from apps.access.models import ApiToken, Membership, SecondFactor, User
from apps.access.services import NewToken, create_token
from apps.access.states import Role
from apps.projects.models import Project

_numbers = count(1)
PASSWORD = "correct horse battery"


def make_project(**fields: Any) -> Project:
    """A project with a name of its own."""
    number = next(_numbers)
    return Project.objects.create(**({"name": f"Yard {number}", "slug": f"yard-{number}"} | fields))


def make_user(*, roles: dict[Project, Role] | None = None, **fields: Any) -> User:
    """A staff user with ``roles``."""
    values = {"username": f"user{next(_numbers)}", "is_staff": True, "password": PASSWORD}
    user = User.objects.create_user(**(values | fields))
    for project, role in (roles or {}).items():
        Membership.objects.create(user=user, project=project, role=role)
    return user


def make_superuser(**fields: Any) -> User:
    """Somebody who sees everything."""
    return make_user(is_superuser=True, **fields)


def make_auditor(**fields: Any) -> User:
    """Somebody who reads everything and changes nothing."""
    return make_user(is_auditor=True, **fields)


def make_token(
    user: User,
    *,
    scopes: tuple[str, ...] = ("*:write",),
    project: Project | None = None,
    expires_at: datetime | None = None,
    allowed_networks: tuple[str, ...] = (),
) -> NewToken:
    """A token of ``user``, made by themselves."""
    return create_token(
        actor=user,
        user=user,
        name="test",
        scopes=scopes,
        project=project,
        expires_at=expires_at,
        allowed_networks=allowed_networks,
    )


def bearer(token: NewToken | str) -> dict[str, str]:
    """The header to send."""
    secret = token if isinstance(token, str) else token.secret
    return {"Authorization": f"Bearer {secret}"}


def page(model: Any, name: str, *args: Any) -> str:
    """The address of an admin page."""
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{name}", args=args)


def code_at(factor: SecondFactor, moment: float | None = None) -> str:
    """What a phone shows at ``moment`` (seconds since 1970; default now)."""
    judge = TOTP(base64.b32decode(str(factor.secret)))
    judge.time = time.time() if moment is None else moment
    return f"{judge.token():06d}"


def enter(user: User) -> Client:
    """A browser in which ``user`` is logged in."""
    client = Client()
    client.force_login(user)
    return client


class Api:
    """A REST client that acts through a token of ``user``; a stranger without one."""

    def __init__(self, user: User | None = None, **token: Any) -> None:
        self.token: ApiToken | None = None
        self.headers: dict[str, str] = {}
        if user is not None:
            made = make_token(user, **token)
            self.token = made.token
            self.headers = bearer(made)
        self._client = Client(raise_request_exception=False)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The response; header names may be given with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        address = path if path.startswith("/") else f"/api/v1/{path}"
        extra: dict[str, Any] = {}
        if body is not None:
            extra = {"data": body, "content_type": "application/json"}
        send = getattr(self._client, method.lower())
        return send(address, headers=self.headers | named, **extra)

    def get(self, path: str, **headers: str) -> Any:
        """GET."""
        return self.call("get", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        """POST with a JSON body."""
        return self.call("post", path, {} if body is None else body, **headers)

    def patch(self, path: str, body: Any, **headers: str) -> Any:
        """PATCH with a JSON body."""
        return self.call("patch", path, body, **headers)

    def delete(self, path: str, **headers: str) -> Any:
        """DELETE."""
        return self.call("delete", path, **headers)
