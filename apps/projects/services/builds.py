"""Services of builds for users and webhooks: queue, cancel, repeat."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import record
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.engine.tags import TagReading, read_tag
from apps.projects.errors import (
    AlreadyBuilt,
    BuildMoveRefused,
    BuildNotActive,
    BuildsDisabled,
    BuildStillActive,
    TagNotRead,
)
from apps.projects.models import Build, Project
from apps.projects.reasons import text_of
from apps.projects.services.build_moves import move_build, notify
from apps.projects.states import BUILD_FINAL, BuildState
from apps.runtime.deferral import defer
from yardkit import topology

BUILD_TASK: Final = "projects.build"


@transaction.atomic
def queue_build(
    *,
    project: Project,
    tag: str,
    reading: TagReading,
    now: datetime,
    commit: str = "",
    actor: User | None = None,
    requested_by: str = "",
    repeats: Build | None = None,
    attempt: int = 1,
    no_cache: bool = False,
) -> Build:
    """Insert a build, and wake a worker on commit.

    A tag that was built is built again only if ``repeats`` is one of its builds, or if its last
    build failed.

    Raises:
        BuildsDisabled: the project does not build tags, or has no git URL.
        AlreadyBuilt: the tag is being built or was built; ``.build`` is that build.
    """
    if not project.builds_enabled:
        raise BuildsDisabled
    if not project.git_url:
        raise BuildsDisabled(_("This project has no git address to clone."))
    _refuse_another(project, tag, repeats)
    build = Build(
        project=project,
        tag=tag,
        release=reading.release,
        name=reading.name,
        version=reading.version,
        commit=commit,
        attempt=attempt,
        repeats=repeats,
        no_cache=no_cache,
        requested_by=requested_by or (actor.get_username() if actor else ""),
        created_at=now,
    )
    try:
        with transaction.atomic():
            build.save(force_insert=True)
    except IntegrityError:
        # A concurrent delivery has queued the build.
        _refuse_another(project, tag, repeats)
        raise
    defer(BUILD_TASK, queue=topology.BUILDS, build=build.pk)
    notify(build)
    return build


def _refuse_another(project: Project, tag: str, repeats: Build | None) -> None:
    builds = Build.objects.filter(project=project, tag=tag)
    if active := builds.active().first():
        raise AlreadyBuilt(active, _("Tag %(tag)s is being built already.") % {"tag": tag})
    if repeats is None and (built := builds.filter(state=BuildState.SUCCEEDED).first()):
        raise AlreadyBuilt(built)


@transaction.atomic
def build_tag(
    *, project: Project, tag: str, now: datetime, actor: User | None, commit: str = ""
) -> Build:
    """Build a tag on request of a user.

    Raises:
        TagNotRead: the tag does not match the project's template; the text is the reason.
        BuildsDisabled, AlreadyBuilt: as ``queue_build``.
    """
    try:
        reading = read_tag(project.tag_template, tag)
    except ProjectInputError as error:
        raise TagNotRead(fields={"tag": [text_of(error)]}) from error
    build = queue_build(
        project=project, tag=tag, commit=commit, reading=reading, now=now, actor=actor
    )
    record(actor=actor, action="projects.build_tag", obj=build, after={"tag": tag})
    return build


@transaction.atomic
def cancel_build(*, build: Build, now: datetime, actor: User | None) -> None:
    """Cancel a build: a queued build at once, a running build by its worker.

    Raises:
        BuildNotActive: the build has ended.
        BuildMoveRefused: the build is already being cancelled.
    """
    before = build.state
    reason = _("cancelled by %(who)s") % {"who": actor.get_username() if actor else "system"}
    # If a worker claims the build between the two moves, the second move finds it running.
    done = _cancel_waiting(build, now, reason) or move_build(
        build, BuildState.CANCELLING, now=now, reason=reason
    )
    if not done:
        build.refresh_from_db()
        raise BuildNotActive if build.state in BUILD_FINAL else BuildMoveRefused
    record(
        actor=actor,
        action="projects.cancel_build",
        obj=build,
        before={"state": before},
        after={"state": build.state},
    )


def _cancel_waiting(build: Build, now: datetime, reason: str) -> bool:
    waiting = Build.objects.filter(pk=build.pk, state=BuildState.QUEUED)
    if not waiting.update(
        state=BuildState.CANCELLED, ended_at=max(now, build.created_at), reason=reason
    ):
        return False
    build.refresh_from_db()
    notify(build)
    return True


@transaction.atomic
def rebuild(*, build: Build, now: datetime, actor: User | None, no_cache: bool = True) -> Build:
    """Build the tag of ``build`` again; after success its image has the new digest.

    Raises:
        BuildStillActive: the build has not ended.
        BuildsDisabled, AlreadyBuilt: as ``queue_build``.
    """
    if build.state not in BUILD_FINAL:
        raise BuildStillActive
    again = queue_build(
        project=build.project,
        tag=build.tag,
        reading=TagReading(release=build.release, name=build.name, version=build.version),
        now=now,
        actor=actor,
        repeats=build,
        no_cache=no_cache,
    )
    record(
        actor=actor,
        action="projects.rebuild",
        obj=again,
        after={"repeats": build.pk, "no_cache": no_cache},
    )
    return again
