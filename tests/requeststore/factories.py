"""Projects with bizzes, for tests of the request store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from apps.configcenter.services import activate, save_version
from apps.projects.models import Project
from apps.requeststore.engine.entity import Entity
from apps.requeststore.models import Rebalance, Reextraction
from apps.requeststore.services.kind import KIND
from apps.requeststore.services.store import shared_request_store
from tests.access.factories import make_project


def save_bizzes(project: Project, **bizzes: dict[str, Any]) -> int:
    """Save and activate a version with exactly these; its number."""
    saved = save_version(
        kind=KIND, project_id=project.pk, data={"bizzes": bizzes}, actor=None, now=timezone.now()
    )
    activate(version=saved.version, actor=None, now=timezone.now())
    return saved.version.number


def make_bizzes(**bizzes: dict[str, Any]) -> Project:
    """A project with these bizzes, active."""
    project = make_project(slug="crawls")
    save_bizzes(project, **bizzes)
    return project


def pages(number: int, **fields: Any) -> list[Entity]:
    """Requests for pages with different addresses."""
    return [Entity(url=f"https://example.com/{each}", **fields) for each in range(number)]


@dataclass(frozen=True, slots=True)
class Numbered:
    """What has an id in addresses and is no row."""

    pk: str


def make_biz(project: Project, name: str = "news") -> Numbered:
    """A biz of the project with one rule, as this process knows it already."""
    yard = shared_request_store()
    if not any(bound.name == name for bound in yard.bizzes(project.pk)):
        save_bizzes(project, **{name: {"rules": {"page": {"fields": {"title": "h1"}}}}})
        yard.wake()
        yard.poll()
    return Numbered(f"{project.pk}.{name}")


def make_request(project: Project, **fields: Any) -> Numbered:
    """A stored request of the biz ``news``."""
    make_biz(project)
    yard = shared_request_store()
    bound = yard.biz(project.pk, "news")
    (number,) = yard.submit(bound, pages(1, **fields), by="test", now=yard.now())
    return Numbered(str(number))


def make_rebalance(project: Project, **fields: Any) -> Rebalance:
    """A row of one that goes; nothing works on it."""
    plan = {"database": "", "collection": "requests", "epoch": {}}
    cursor = {"plan": plan, "sources": [], "ttl_seconds": 86_400}
    values = {"project": project, "biz": "news", "config_version": 1, "cursor": cursor}
    return Rebalance.objects.create(**(values | fields))


def make_reextraction(project: Project, **fields: Any) -> Reextraction:
    """A row of one that goes; nothing works on it."""
    values = {"project": project, "biz": "news", "config_version": 1}
    return Reextraction.objects.create(**(values | fields))
