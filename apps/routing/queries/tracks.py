"""The rules of a project as they stand, made ready: for whoever answers questions about them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from apps.configcenter.models import Configuration, ConfigVersion
from apps.routing.engine.files.data import from_data
from apps.routing.engine.track import BadRules, Track, lay

KIND: Final = "routing"


def active_track(project: int) -> Track | None:
    """The track of the active version, or None when there is none; placeholders are kept.

    Raises:
        BadRules: another release saved what this one cannot run.
    """
    version = (
        Configuration.objects.filter(kind=KIND, project_id=project)
        .values_list("active_id", flat=True)
        .first()
    )
    return None if version is None else track_of(version)


@lru_cache(maxsize=64)
def track_of(version: int) -> Track:
    """The track of a saved version, by its id; a version never changes. Raises ``BadRules``."""
    saved = ConfigVersion.objects.get(pk=version)
    rules, problems = from_data(saved.data)
    if rules is None:
        raise BadRules([each for each in problems if not each.warning])
    return lay(rules, saved.number)
