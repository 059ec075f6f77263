"""State changes of builds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from apps.projects.events import BUILD_CHANGED
from apps.projects.models import Build
from apps.projects.states import BUILD_FINAL, BUILD_MOVES, BuildState
from apps.runtime.services import emit


def move_build(
    build: Build,
    to: BuildState,
    *,
    now: datetime,
    held_by: str | None = None,
    unchanged: tuple[str, ...] = (),
    **fields: Any,
) -> bool:
    """Move a build to another state by a compare-and-set update, in the caller's transaction.

    ``held_by``: require that the build belongs to the worker of that boot. ``unchanged``: fields
    that must still have the values of ``build``.

    Returns False if the move is not allowed, or the row was changed concurrently; ``build`` is then
    unchanged.
    """
    rows = Build.objects.filter(pk=build.pk, state__in=BUILD_MOVES[to])
    if held_by is not None:
        rows = rows.filter(boot=held_by)
    if to in BUILD_FINAL:
        fields["ended_at"] = max(now, build.created_at)
    if unchanged:
        rows = rows.filter(**{name: getattr(build, name) for name in unchanged})
    if not rows.update(state=to, **fields):
        return False
    build.state = to
    for name, value in fields.items():
        setattr(build, name, value)
    notify(build)
    return True


def notify(build: Build) -> None:
    """Emit ``BUILD_CHANGED`` on commit."""
    emit(
        BUILD_CHANGED,
        project=build.project_id,
        payload={
            "build": build.pk,
            "tag": build.tag,
            "state": str(build.state),
            "step": str(build.step),
        },
    )
