"""Compiled rules of projects, for pages and REST calls that evaluate them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from apps.configcenter.models import Configuration, ConfigVersion
from apps.routing.engine.files.data import from_data
from apps.routing.engine.track import InvalidRules, Track, compile_track

KIND: Final = "routing"


def active_track(project: int) -> Track | None:
    """Return the compiled active version of a project, or None. Placeholders are not filled.

    Raises:
        InvalidRules: the version was saved by another release, and this one cannot run it.
    """
    version = (
        Configuration.objects.filter(kind=KIND, project_id=project)
        .values_list("active_id", flat=True)
        .first()
    )
    return None if version is None else track_of(version)


@lru_cache(maxsize=64)
def track_of(version: int) -> Track:
    """Return a compiled version by its id. Cached, because versions never change.

    Raises ``InvalidRules``.
    """
    saved = ConfigVersion.objects.get(pk=version)
    rules, problems = from_data(saved.data)
    if rules is None:
        raise InvalidRules([problem for problem in problems if not problem.warning])
    return compile_track(rules, saved.number)
