"""A project with a biz on embedded stores, and people who call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.access.states import Role
from apps.projects.models import Project
from apps.requeststore.services.store import RequestStore, shared_request_store
from tests.access.factories import Api, make_user
from tests.requeststore.factories import make_bizzes


@pytest.fixture
def project(db: None, request_nodes: dict[str, str]) -> Project:
    """With the biz ``news``: four splits on two nodes."""
    return make_bizzes(
        news={
            "description": "News of the day",
            "epochs": [{"splits": 4, "nodes": ["default", "second"]}],
            "flags": {"7": "no such page"},
        }
    )


@pytest.fixture
def yard(project: Project) -> RequestStore:
    """What the web process itself uses."""
    return shared_request_store()


class Caller(Api):
    """A REST client of somebody with one role in the project."""

    def __init__(self, project: Project, role: Role = Role.OPERATOR, **token: Any) -> None:
        super().__init__(make_user(roles={project: role}), **token)
        self.project = project

    def submit(self, *requests: Any, status: int = 201, **options: Any) -> Any:
        """What handing these in answers; the status must be that."""
        headers = {name: options.pop(name) for name in list(options) if name[0].isupper()}
        body = {"project": self.project.pk, "biz": "news", "requests": list(requests)} | options
        answer = self.post("requests", body, **headers)
        assert answer.status_code == status, answer.content
        return answer.json()

    def show(self, path: str, status: int = 200) -> Any:
        """What a GET answers."""
        answer = self.get(path)
        assert answer.status_code == status, answer.content
        return answer.json()

    def raw(self, body: bytes) -> Any:
        """The response to a body as it is."""
        return self._client.post(
            "/api/v1/requests", body, content_type="application/json", headers=self.headers
        )


@pytest.fixture
def caller(project: Project) -> Caller:
    return Caller(project)


def as_json(value: Any) -> bytes:
    """Of a body that is sent as it is."""
    return json.dumps(value).encode()
