"""Services of builds for workers and the sweep: claim, heartbeat, steps, end, reap."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.utils.translation import gettext as _

from apps.projects.engine.builder import BuiltImage
from apps.projects.engine.tags import ImageName, TagReading
from apps.projects.errors import ProjectError
from apps.projects.models import Build, Image
from apps.projects.services.build_moves import move_build, notify
from apps.projects.services.builds import BUILD_TASK, queue_build
from apps.projects.services.images import store_description
from apps.projects.states import BuildState, BuildStep, ImageSource
from apps.runtime.deferral import defer
from yardkit import topology

BEAT_SECONDS: Final = 5.0
# A worker counts as dead after this time without a heartbeat.
LEASE_SECONDS: Final = 30.0
# Workers are woken again for builds that wait longer, since a message may have been lost.
WAKE_SECONDS: Final = 30.0
MAX_ATTEMPTS: Final = 2
MAX_REASON: Final = 4000


@transaction.atomic
def claim_build(*, build_id: int, worker: str, now: datetime) -> Build | None:
    """Claim a queued build for ``worker`` with a new boot; None if the build is not queued."""
    build = Build.objects.select_related("project").filter(pk=build_id).first()
    if build is None:
        return None
    claimed = move_build(
        build,
        BuildState.RUNNING,
        now=now,
        worker=worker[:200],
        boot=secrets.token_hex(4),
        beat_at=now,
        started_at=max(now, build.created_at),
    )
    return build if claimed else None


def beat_build(*, build: Build, now: datetime) -> bool:
    """Renew the lease of a build; False if it no longer belongs to this worker."""
    return bool(_mine(build).update(beat_at=now))


def state_of_build(*, build: Build) -> str | None:
    """Return the state of a build; None if it no longer belongs to this worker."""
    state = _mine(build).values_list("state", flat=True).first()
    return None if state is None else str(state)


@transaction.atomic
def enter_step(*, build: Build, step: BuildStep, now: datetime) -> bool:
    """Record the beginning of ``step``; False if the build no longer belongs to this worker."""
    steps = [*_ended(build.steps, now)]
    steps.append({"step": step.value, "started_at": now.isoformat(), "ended_at": None})
    if not _mine(build).update(step=step, steps=steps):
        return False
    build.step, build.steps = step, steps
    notify(build)
    return True


def note_commit(*, build: Build, commit: str) -> bool:
    """Record the commit of the tag; False if the build no longer belongs to this worker."""
    build.commit = commit
    return bool(_mine(build).update(commit=commit))


@transaction.atomic
def succeed_build(
    *, build: Build, image: ImageName, built: BuiltImage, now: datetime
) -> Image | None:
    """Record success and list the image, in one transaction.

    Returns None, without listing the image, if the build no longer belongs to this worker or is
    being cancelled.
    """
    steps = [*_ended(build.steps, now)]
    if not move_build(
        build,
        BuildState.SUCCEEDED,
        now=now,
        held_by=build.boot,
        steps=steps,
        reason="",
        warning=built.warning[:MAX_REASON],
    ):
        return None
    listed, _created = Image.objects.update_or_create(
        project=build.project,
        name=image.repository,
        tag=image.tag,
        defaults={
            "build": build,
            "source": ImageSource.BUILD,
            "digest": built.digest,
            "size_bytes": built.size_bytes,
            "labels": built.labels,
            "commit": built.commit,
            "created_at": now,
            "removed_at": None,
        },
    )
    store_description(image=listed, description=built.description, now=now)
    return listed


@transaction.atomic
def end_build(*, build: Build, state: BuildState, reason: str, now: datetime) -> bool:
    """Record failure or cancellation; False if the build no longer belongs to this worker."""
    steps = [*_ended(build.steps, now)]
    fields: dict[str, Any] = {"steps": steps}
    if reason:
        fields["reason"] = reason[:MAX_REASON]
    return move_build(build, state, now=now, held_by=build.boot, **fields)


def reap_builds(*, now: datetime) -> int:
    """Mark builds of silent workers as lost, and retry each of them once; return their number."""
    lost = 0
    for build in Build.objects.stale(now=now, lease_seconds=LEASE_SECONDS).select_related(
        "project"
    ):
        reason = _("worker %(worker)s has not reported for %(seconds)d s") % {
            "worker": build.worker,
            "seconds": LEASE_SECONDS,
        }
        lost += _lose(build, now, reason=reason)
    return lost


def leave_builds(*, worker: str, now: datetime) -> int:
    """Requeue the builds of a stopping worker for other workers.

    The builds start again at once, and the handover does not count as a failed attempt: restarting
    workers ends no build.
    """
    reason = _("worker %(worker)s was stopped") % {"worker": worker}
    begun = Build.objects.filter(
        worker=worker[:200], state__in=(BuildState.RUNNING, BuildState.CANCELLING)
    )
    return sum(
        _lose(build, now, reason=reason, counts=False) for build in begun.select_related("project")
    )


@transaction.atomic
def _lose(build: Build, now: datetime, *, reason: str, counts: bool = True) -> bool:
    wanted = build.state == BuildState.RUNNING
    if not move_build(
        build,
        BuildState.LOST,
        now=now,
        held_by=build.boot,
        unchanged=("state", "beat_at"),
        reason=reason,
        steps=[*_ended(build.steps, now)],
    ):
        return False
    attempt = build.attempt + counts
    if wanted and attempt <= MAX_ATTEMPTS:
        _try_again(build, now, attempt)
    return True


def _try_again(build: Build, now: datetime, attempt: int) -> None:
    try:
        with transaction.atomic():
            queue_build(
                project=build.project,
                tag=build.tag,
                reading=TagReading(build.release, build.name, build.version),
                now=now,
                commit=build.commit,
                requested_by=build.requested_by,
                repeats=build,
                attempt=attempt,
                no_cache=build.no_cache,
            )
    except ProjectError:
        # Builds were disabled, or another build of the tag was queued.
        return


def wake_builds(*, now: datetime) -> int:
    """Wake workers for queued builds again, at growing intervals; return their number."""
    woken = 0
    for build in Build.objects.filter(
        state=BuildState.QUEUED, created_at__lt=now - timedelta(seconds=WAKE_SECONDS)
    ):
        told_at = build.beat_at or build.created_at
        pause = max(timedelta(seconds=WAKE_SECONDS), (now - build.created_at) / 2)
        if now - told_at < pause:
            continue
        with transaction.atomic():
            waits = Build.objects.filter(
                pk=build.pk, state=BuildState.QUEUED, beat_at=build.beat_at
            )
            if waits.update(beat_at=now):
                defer(BUILD_TASK, queue=topology.BUILDS, build=build.pk)
                woken += 1
    return woken


def _mine(build: Build) -> Any:
    """Return the query for the row, if it belongs to the worker that claimed ``build``."""
    return Build.objects.filter(
        pk=build.pk, boot=build.boot, state__in=(BuildState.RUNNING, BuildState.CANCELLING)
    )


def _ended(steps: list[dict[str, Any]], now: datetime) -> list[dict[str, Any]]:
    return [{**step, "ended_at": step["ended_at"] or now.isoformat()} for step in steps]
