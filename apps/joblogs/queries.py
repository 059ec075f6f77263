"""Owners of logs, and the permission to read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from apps.access.services import AllProjects, project_ids
from apps.joblogs.engine.lines import BadLines, owner_of
from apps.jobs.models import Run
from apps.projects.models import Build


@dataclass(frozen=True, slots=True)
class Owner:
    """Owner of a log. For a build ``job`` is 0 and ``run`` None."""

    project: int
    job: int
    run: int | None
    image: int | None


def owners_of(streams: Iterable[str]) -> dict[str, Owner]:
    """Return the owners of the streams whose run or build exists. At most two queries."""
    named: dict[str, dict[int, str]] = {"run": {}, "build": {}}
    for stream in streams:
        kind, pk = owner_of(stream)
        named[kind][pk] = stream
    owners: dict[str, Owner] = {}
    if named["run"]:
        runs = Run.objects.filter(pk__in=named["run"])
        for pk, project, job, image in runs.values_list(
            "pk", "job__project_id", "job_id", "image_id"
        ):
            owners[named["run"][pk]] = Owner(project, job, pk, image)
    if named["build"]:
        builds = Build.objects.filter(pk__in=named["build"])
        for pk, project in builds.values_list("pk", "project_id"):
            owners[named["build"][pk]] = Owner(project, 0, None, None)
    return owners


def sees_stream(user: object, stream: str) -> bool:
    """Return whether ``user`` may see the run or build of this stream."""
    try:
        kind, pk = owner_of(stream)
    except BadLines:
        return False
    rows = Run.objects.visible_to(user) if kind == "run" else Build.objects.visible_to(user)
    return rows.filter(pk=pk).exists()


def searched_projects(user: object) -> Collection[int] | None:
    """Return ``Search.projects`` for the user: the visible projects, None for all."""
    projects = project_ids(user)
    return None if isinstance(projects, AllProjects) else projects
