"""The work of a build worker: one build from its claim to its end."""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import connection, transaction
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from apps.projects.engine.builder import (
    BuildControl,
    BuildLog,
    BuildPlan,
    BuildStopped,
    BuiltImage,
    build_image,
)
from apps.projects.engine.builder.control import StopReason
from apps.projects.engine.builder.engine import FAILURES, BuildEngine
from apps.projects.engine.builder.plan import EngineOptions
from apps.projects.engine.git_process import Credentials
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.engine.tags import ImageName, TagReading, image_name
from apps.projects.models import Build, Image
from apps.projects.reasons import text_of
from apps.projects.services.build_states import (
    BEAT_SECONDS,
    beat_build,
    claim_build,
    end_build,
    enter_step,
    note_commit,
    state_of_build,
    succeed_build,
)
from apps.projects.services.builds import BUILD_TASK
from apps.projects.services.connection import git_remote
from apps.projects.states import BuildState, BuildStep
from apps.runtime.deferring import defer
from apps.runtime.errors import DATABASE_ERRORS
from apps.runtime.services import database_now, enqueue, shared_broker
from yardkit import failpoints, topology
from yardkit.broker import BrokerError, Outgoing
from yardkit.guard import keep_running
from yardkit.outage import Outage
from yardkit.protocol import LogBatch, encode
from yardkit.timers import Timers

logger = logging.getLogger(__name__)

# How soon a cancelled build ends.
LOOK_SECONDS: Final = 1.0
CONFIRM_SECONDS: Final = 2.0
LAST_LINES_SECONDS: Final = 10.0
# Set when this process leaves its builds to others.
leaving: Final = threading.Event()
_FOLDER = re.compile(r"(\d{1,18})-([0-9a-f]{8})")


def work_on_build(*, build_id: int, worker: str) -> str | None:
    """Do the build if it still waits; the state it came to, None when there was nothing to do.

    A process that is ``leaving`` begins none, also in the moment in which it still listens.
    """
    if leaving.is_set():
        defer(BUILD_TASK, queue=topology.BUILDS, build=build_id)
        return None
    build = claim_build(build_id=build_id, worker=worker, now=database_now())
    if build is None:
        return None
    failpoints.hit("projects.build.claimed")
    return _BuildWork(build).run()


def engine_options() -> EngineOptions:
    """The Docker Engine of the settings."""
    return EngineOptions(
        url=settings.DOCKER_URL,
        network=settings.BUILD_NETWORK,
        memory_bytes=settings.BUILD_MEMORY_BYTES,
        # The same for every worker of this installation, and of no other.
        owner=salted_hmac("crawlyard.builds", "owner").hexdigest()[:16],
    )


def plan_of(build: Build, folder: Path) -> BuildPlan:
    """All that the plain part needs to know."""
    project = build.project
    remote = git_remote(project)
    secrets = [
        *Credentials(remote.username, remote.password).secrets,
        str(project.registry_password),
        str(project.webhook_secret),
    ]
    reading = TagReading(build.release, build.name, build.version)
    return BuildPlan(
        build=build.pk,
        boot=build.boot,
        remote=remote,
        tag=build.tag,
        expected_commit=build.commit,
        dockerfile=project.dockerfile,
        script=project.build_script,
        arguments={str(name): str(value) for name, value in project.build_arguments.items()},
        image=image_name(project.slug, reading),
        labels={
            "crawlyard.project": project.slug,
            "crawlyard.tag": build.tag,
            "crawlyard.release": build.release,
            "crawlyard.name": build.name,
            "crawlyard.version": build.version,
        },
        engine=engine_options(),
        folder=folder,
        max_image_bytes=project.max_image_bytes,
        no_cache=build.no_cache,
        secrets=tuple(each for each in secrets if len(each) > 2),
    )


class _BuildWork:
    """One claimed build. Also the ``Teller`` of its steps."""

    def __init__(self, build: Build) -> None:
        self.build = build
        self.folder = Path(settings.BUILDS_DIR) / f"{build.pk}-{build.boot}"
        self.control = BuildControl(limit_seconds=build.project.build_timeout_seconds)
        self.plan = plan_of(build, self.folder)
        self.log = BuildLog(
            stream=build.stream, boot=build.boot, send=send_lines, secrets=self.plan.secrets
        )

    def run(self) -> str:
        """The state it came to, or ``lost`` when it is no longer this worker's."""
        clear_folders()
        self.folder.mkdir(mode=0o700, parents=True)
        beat = _BuildHeartbeat(self.build, self.control)
        beat.start()
        try:
            state = self._run()
        finally:
            beat.stop()
            shutil.rmtree(self.folder, ignore_errors=True)
            self.log.close(LAST_LINES_SECONDS)
            self._leave_rest()
        tidy(self.plan.engine, but=self.build)
        return state

    def _leave_rest(self) -> None:
        """The broker is away: the database keeps the last lines until it is back."""
        rest = self.log.rest()
        try:
            with transaction.atomic():
                for batch in rest:
                    enqueue(key=topology.LOGS.name, body=batch)
        except DATABASE_ERRORS:
            lines = sum(len(batch.lines) for batch in rest)
            logger.exception("build %s: %d lines of its log are lost", self.build.pk, lines)

    def _run(self) -> str:
        try:
            build_image(
                self.plan, control=self.control, log=self.log, teller=self, store=self._store
            )
        except BuildStopped as stopped:
            if stopped.why is StopReason.CANCELLED:
                return self._end(BuildState.CANCELLED, "")
            return self._lost()
        except ProjectInputError as refused:
            return self._end(BuildState.FAILED, text_of(refused))
        except DATABASE_ERRORS:
            # Nothing can be written down now: the sweep will find it.
            logger.exception("build %s: the database is away", self.build.pk)
            return self._lost()
        except Exception as error:
            logger.exception("build %s failed unforeseen", self.build.pk)
            text = self.log.clean(f"{type(error).__name__}: {error}")
            return self._end(BuildState.FAILED, _("unforeseen: %(error)s") % {"error": text})
        return BuildState.SUCCEEDED

    def enter(self, step: str) -> None:
        """The next step begins."""
        self.control.check()
        if not enter_step(build=self.build, step=BuildStep(step), now=database_now()):
            raise BuildStopped(StopReason.GIVEN_UP)

    def commit(self, commit: str) -> None:
        """The tag leads there."""
        if not note_commit(build=self.build, commit=commit):
            raise BuildStopped(StopReason.GIVEN_UP)

    def _store(self, built: BuiltImage, engine: BuildEngine) -> None:
        name = self.plan.image
        if not succeed_build(build=self.build, image=name, built=built, now=database_now()):
            engine.remove(built.digest)
            cancelled = state_of_build(build=self.build) == BuildState.CANCELLING
            raise BuildStopped(StopReason.CANCELLED if cancelled else StopReason.GIVEN_UP)
        failpoints.hit("projects.build.stored")
        # After the commit, as everything that leaves the database; ``tidy`` does it otherwise.
        with contextlib.suppress(*FAILURES):
            engine.tag(built.digest, name.repository, name.tag)
        self.log.say(f"succeeded: {name}", source=BuildStep.STORE)

    def _end(self, state: BuildState, reason: str) -> str:
        said = reason or self.build.__class__(state=state).get_state_display()
        level = "ERROR" if state == BuildState.FAILED else "WARNING"
        self.log.say(f"{state}: {said}", source=self.build.step, level=level)
        self.log.tick(force=True)
        reason = self.log.masked(reason)
        if end_build(build=self.build, state=state, reason=reason, now=database_now()):
            return state
        # A cancel came while it was failing.
        return self._lost()

    def _lost(self) -> str:
        logger.warning("build %s is no longer this worker's", self.build.pk)
        return BuildState.LOST


class _BuildHeartbeat(threading.Thread):
    """Says that the worker is at it, and looks whether it still should be."""

    def __init__(self, build: Build, control: BuildControl) -> None:
        super().__init__(name=f"build-{build.pk}-beat", daemon=True)
        self._build = build
        self._control = control
        self._ended = threading.Event()
        self._timers = Timers()
        self._outage = Outage(logger, f"heartbeat of build {build.pk}")

    def run(self) -> None:
        """Beat until ``stop()``, whatever fails meanwhile: a silent worker loses its build."""
        try:
            keep_running(self.name, self._beat, self._ended)
        finally:
            connection.close()

    def _beat(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            try:
                self._look()
            except DATABASE_ERRORS as error:
                # If the database stays away for longer than the lease, the sweep ends the build.
                self._outage.failed(error)
                self._timers.hasten("beat")
                connection.close()
            else:
                self._outage.recovered()

    def stop(self) -> None:
        """Wait for its end."""
        self._ended.set()
        self.join(10.0)

    def _look(self) -> None:
        state = state_of_build(build=self._build)
        if state is None:
            self._control.stop(StopReason.GIVEN_UP)
        elif state == BuildState.CANCELLING:
            self._control.stop(StopReason.CANCELLED)
        if self._timers.due("beat", BEAT_SECONDS) and not beat_build(
            build=self._build, now=database_now()
        ):
            self._control.stop(StopReason.GIVEN_UP)


def send_lines(batch: LogBatch) -> bool:
    """Publish lines for the store of logs; False while the broker is away."""
    message = Outgoing(body=encode(batch), key=topology.LOGS.name)
    try:
        shared_broker().publish([message]).result(CONFIRM_SECONDS)
    except (BrokerError, TimeoutError):
        return False
    return True


def clear_folders() -> None:
    """Remove what killed workers have left."""
    root = Path(settings.BUILDS_DIR)
    if not root.is_dir():
        return
    for folder in root.iterdir():
        found = _FOLDER.fullmatch(folder.name)
        if found and not Build.objects.active().filter(pk=int(found[1]), boot=found[2]).exists():
            shutil.rmtree(folder, ignore_errors=True)


def tidy(
    options: EngineOptions,
    *,
    but: Build | None = None,
    connect: Callable[..., BuildEngine] = BuildEngine,
) -> int:
    """Leave nothing in the engine that leads to no image; how many were removed.

    An image that was stored and not named yet, because its worker died in between, gets its name.
    Layers of unfinished builds stay while another build runs: they may be its own.
    """
    removed = 0
    try:
        engine = connect(options)
    except FAILURES:
        return 0
    try:
        others = Build.objects.active().exclude(state=BuildState.QUEUED)
        others = others.exclude(pk=but.pk if but else 0)
        for digest, label in engine.nameless():
            if label and _belongs(engine, digest, label):
                continue
            # Asked for each: another build may begin at any moment, and take such a layer.
            if label or not others.exists():
                engine.remove(digest)
                removed += 1
    except FAILURES as error:
        logger.warning("the Docker Engine was not tidied: %s", error)
    finally:
        engine.close()
    return removed


def _belongs(engine: BuildEngine, digest: str, label: str) -> bool:
    """Whether a finished image without a name is somebody's."""
    if not label.isascii() or not label.isdigit() or len(label) > 18:
        return False
    stored = Image.objects.filter(build_id=int(label), digest=digest).first()
    if stored is not None:
        name = ImageName(stored.name, stored.tag)
        engine.tag(digest, name.repository, name.tag)
        return True
    build = Build.objects.filter(pk=int(label)).first()
    # An older image of a tag that was built again may still be run by its digest.
    return build is not None and (build.state == BuildState.SUCCEEDED or build.is_active)
