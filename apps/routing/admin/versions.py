"""Versions of a project's rules, compiled for the pages "Explain an item" and "Replay"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.http import Http404

from apps.configcenter.models import Configuration
from apps.projects.admin.project_choice import number_in
from apps.projects.models import Project
from apps.routing.engine.rules import Problem, RuleSet
from apps.routing.engine.track import InvalidRules, Track, compile_track
from apps.routing.queries.tracks import KIND, track_of
from apps.routing.texts import translated_problem

SHOWN_VERSIONS: Final = 100
_MOST_NUMBER: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of one project; ``numbers`` are sorted newest first."""

    configuration: Configuration | None
    active: int | None
    numbers: list[int]

    def number(self, asked: str) -> int | None:
        """Return the version number that a query string names; "" means the active version.

        None if no version is active. Raises ``Http404`` if the text is not a valid number or the
        project has no rules; whether the version exists is not checked.
        """
        if not asked:
            return self.active
        number = number_in(asked)
        if self.configuration is None or number is None or number > _MOST_NUMBER:
            raise Http404
        return number


@dataclass(frozen=True, slots=True)
class CompiledVersion:
    """Compiled version of the rules, or the problems that prevent it."""

    number: int
    track: Track | None
    problems: tuple[Problem, ...] = ()


def versions_of(project: Project) -> Versions:
    """Return the project's versions, at most the newest ``SHOWN_VERSIONS``."""
    row = (
        Configuration.objects.filter(kind=KIND, project=project, newest__gte=1)
        .select_related("active")
        .defer("active__content")
        .first()
    )
    if row is None:
        return Versions(None, None, [])
    numbers = row.versions.order_by("-number").values_list("number", flat=True)[:SHOWN_VERSIONS]
    return Versions(row, None if row.active is None else row.active.number, list(numbers))


def compiled_version(versions: Versions, number: int | None) -> CompiledVersion:
    """Return a compiled version; ``number`` None stands for an empty rule set.

    Raises ``Http404`` if the version does not exist.
    """
    if number is None or versions.configuration is None:
        return CompiledVersion(0, compile_track(RuleSet(project="")))
    pk = versions.configuration.versions.filter(number=number).values_list("pk", flat=True).first()
    if pk is None:
        raise Http404
    try:
        return CompiledVersion(number, track_of(pk))
    except InvalidRules as error:
        return CompiledVersion(
            number, None, tuple(translated_problem(problem) for problem in error.problems)
        )
