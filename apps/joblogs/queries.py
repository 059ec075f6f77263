"""Reading logs: whose they are, their end, and what comes before and after a line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from django.db.models import Sum

from apps.joblogs.engine.lines import BadLines, owner_of
from apps.joblogs.models import LogLine, LogStream
from apps.joblogs.querysets import LogLineQuerySet
from apps.jobs.models import Run
from apps.projects.models import Build

MAX_LINES: Final = 1000


def projects_of(streams: Iterable[str]) -> dict[str, int]:
    """The project of each stream whose run or build exists. Two queries."""
    owners: dict[str, dict[int, str]] = {"run": {}, "build": {}}
    for stream in streams:
        kind, pk = owner_of(stream)
        owners[kind][pk] = stream
    runs = Run.objects.filter(pk__in=owners["run"]).values_list("pk", "job__project_id")
    builds = Build.objects.filter(pk__in=owners["build"]).values_list("pk", "project_id")
    found = {owners["run"][pk]: project for pk, project in runs} if owners["run"] else {}
    if owners["build"]:
        found |= {owners["build"][pk]: project for pk, project in builds}
    return found


def sees_stream(user: object, stream: str) -> bool:
    """Whether ``user`` sees the run or the build of this stream."""
    try:
        kind, pk = owner_of(stream)
    except BadLines:
        return False
    rows = Run.objects.visible_to(user) if kind == "run" else Build.objects.visible_to(user)
    return rows.filter(pk=pk).exists()


def tail(
    stream: str, limit: int, *, among: LogLineQuerySet[LogLine] | None = None
) -> list[LogLine]:
    """The last ``limit`` lines, the oldest of them first."""
    return list(reversed(_lines(stream, among).order_by("-id")[:limit]))


def after(
    stream: str, line: int, limit: int, *, among: LogLineQuerySet[LogLine] | None = None
) -> list[LogLine]:
    """Up to ``limit`` lines that were stored after the one with this id; 0 is the beginning."""
    return list(_lines(stream, among).filter(id__gt=line).order_by("id")[:limit])


def before(
    stream: str, line: int, limit: int, *, among: LogLineQuerySet[LogLine] | None = None
) -> list[LogLine]:
    """The ``limit`` lines before the one with this id, the oldest of them first."""
    rows = _lines(stream, among).filter(id__lt=line).order_by("-id")[:limit]
    return list(reversed(rows))


def dropped(stream: str) -> int:
    """How many lines of it were given up before they could be stored."""
    total: int | None = LogStream.objects.filter(stream=stream).aggregate(total=Sum("dropped"))[
        "total"
    ]
    return total or 0


def _lines(stream: str, among: LogLineQuerySet[LogLine] | None) -> LogLineQuerySet[LogLine]:
    return (LogLine.objects.all() if among is None else among).of(stream)
