"""Projects with a git address, and builds in any state."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from apps.projects.engine.tags import TagReading
from apps.projects.models import Build, Image, Project
from apps.projects.states import BUILD_FINAL, BuildState
from tests.access.factories import make_project

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
READING = TagReading("prod", "news", "1.0")
TAG = "prod/news/1.0"


def make_git_project(**fields: Any) -> Project:
    """A project whose code stands on a git server."""
    project = make_project()
    values: dict[str, Any] = {"git_url": "https://git.example.com/news.git", **fields}
    for name, value in values.items():
        setattr(project, name, value)
    project.save()
    return project


def make_build(
    *, project: Project | None = None, state: BuildState = BuildState.QUEUED, **fields: Any
) -> Build:
    """A build in any state."""
    values: dict[str, Any] = {
        "project": project or make_git_project(),
        "tag": TAG,
        "release": READING.release,
        "name": READING.name,
        "version": READING.version,
        "state": state,
        "created_at": NOW,
    }
    if state in BUILD_FINAL:
        values["ended_at"] = NOW
    if state in (BuildState.RUNNING, BuildState.CANCELLING):
        values |= {"boot": "b1", "worker": "w1", "beat_at": NOW, "started_at": NOW}
    return Build.objects.create(**{**values, **fields})


def make_image(*, project: Project | None = None, **fields: Any) -> Image:
    """An image that a job may choose."""
    values: dict[str, Any] = {
        "project": project or make_git_project(),
        "name": "crawlyard/yard/news",
        "tag": "prod-1.0",
        "digest": "sha256:" + "a" * 64,
        "size_bytes": 50_000_000,
        "created_at": NOW,
    }
    return Image.objects.create(**{**values, **fields})
