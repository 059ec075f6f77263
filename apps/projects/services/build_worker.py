"""Build worker: performs a build from its claim to its end."""

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
from apps.projects.engine.builder.description import describers, remove_describer
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
from apps.runtime.deferral import defer
from apps.runtime.errors import DATABASE_ERRORS
from apps.runtime.services import database_now, enqueue, shared_broker
from yardkit import failpoints, topology
from yardkit.broker import BrokerError, Outgoing
from yardkit.guard import keep_running
from yardkit.outage import Outage
from yardkit.protocol import LogBatch, encode
from yardkit.timers import Timers

logger = logging.getLogger(__name__)

# Interval of checks for a cancellation, in seconds.
LOOK_SECONDS: Final = 1.0
CONFIRM_SECONDS: Final = 2.0
LAST_LINES_SECONDS: Final = 10.0
# Set when this process hands over its builds to other workers.
leaving: Final = threading.Event()
_FOLDER = re.compile(r"(\d{1,18})-([0-9a-f]{8})")


def work_on_build(*, build_id: int, worker: str) -> str | None:
    """Perform a queued build and return its final state; None if the build is not queued.

    A process that is ``leaving`` starts no build, even if it still receives messages.
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
    """Return the Docker Engine that the settings name."""
    return EngineOptions(
        url=settings.DOCKER_URL,
        network=settings.BUILD_NETWORK,
        memory_bytes=settings.BUILD_MEMORY_BYTES,
        # Equal for all workers of this installation, and unique to the installation.
        owner=salted_hmac("crawlyard.builds", "owner").hexdigest()[:16],
    )


def plan_of(build: Build, folder: Path) -> BuildPlan:
    """Return the input of the plain-Python builder."""
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
        scrapy_base=settings.SCRAPY_BASE_IMAGE,
        no_cache=build.no_cache,
        secrets=tuple(secret for secret in secrets if len(secret) > 2),
    )


class _BuildWork:
    """Claimed build in progress, which records the progress of its steps."""

    def __init__(self, build: Build) -> None:
        self.build = build
        self.folder = Path(settings.BUILDS_DIR) / f"{build.pk}-{build.boot}"
        self.control = BuildControl(limit_seconds=build.project.build_timeout_seconds)
        self.plan = plan_of(build, self.folder)
        self.log = BuildLog(
            stream=build.stream, boot=build.boot, send=send_lines, secrets=self.plan.secrets
        )

    def run(self) -> str:
        """Build and return the final state; ``lost`` if this worker no longer owns the build."""
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
        """Store unsent log lines in the outbox, to be sent when the broker is reachable again."""
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
                self.plan, control=self.control, log=self.log, progress=self, store=self._store
            )
        except BuildStopped as stopped:
            if stopped.why is StopReason.CANCELLED:
                return self._end(BuildState.CANCELLED, "")
            return self._lost()
        except ProjectInputError as refused:
            return self._end(BuildState.FAILED, text_of(refused))
        except DATABASE_ERRORS:
            # The end cannot be recorded; the sweep will mark the build as lost.
            logger.exception("build %s: the database is away", self.build.pk)
            return self._lost()
        except Exception as error:
            logger.exception("build %s failed unforeseen", self.build.pk)
            text = self.log.clean(f"{type(error).__name__}: {error}")
            return self._end(BuildState.FAILED, _("unexpected error: %(error)s") % {"error": text})
        return BuildState.SUCCEEDED

    def enter(self, step: str) -> None:
        """Record the beginning of a step. Raises ``BuildStopped``."""
        self.control.check()
        if not enter_step(build=self.build, step=BuildStep(step), now=database_now()):
            raise BuildStopped(StopReason.GIVEN_UP)

    def commit(self, commit: str) -> None:
        """Record the commit of the tag. Raises ``BuildStopped``."""
        if not note_commit(build=self.build, commit=commit):
            raise BuildStopped(StopReason.GIVEN_UP)

    def _store(self, built: BuiltImage, engine: BuildEngine) -> None:
        name = self.plan.image
        if not succeed_build(build=self.build, image=name, built=built, now=database_now()):
            engine.remove(built.digest)
            cancelled = state_of_build(build=self.build) == BuildState.CANCELLING
            raise BuildStopped(StopReason.CANCELLED if cancelled else StopReason.GIVEN_UP)
        failpoints.hit("projects.build.stored")
        # After the commit; if the process dies before this, ``tidy`` names the image.
        with contextlib.suppress(*FAILURES):
            engine.tag(built.digest, name.repository, name.tag)
        self.log.say(f"succeeded: {name}", source=BuildStep.STORE)

    def _end(self, state: BuildState, reason: str) -> str:
        text = reason or self.build.__class__(state=state).get_state_display()
        level = "ERROR" if state == BuildState.FAILED else "WARNING"
        self.log.say(f"{state}: {text}", source=self.build.step, level=level)
        self.log.tick(force=True)
        reason = self.log.masked(reason)
        if end_build(build=self.build, state=state, reason=reason, now=database_now()):
            return state
        # The build was cancelled or reaped while it failed.
        return self._lost()

    def _lost(self) -> str:
        logger.warning("build %s is no longer this worker's", self.build.pk)
        return BuildState.LOST


class _BuildHeartbeat(threading.Thread):
    """Thread that renews the lease of a build and watches for its cancellation."""

    def __init__(self, build: Build, control: BuildControl) -> None:
        super().__init__(name=f"build-{build.pk}-beat", daemon=True)
        self._build = build
        self._control = control
        self._ended = threading.Event()
        self._timers = Timers()
        self._outage = Outage(logger, f"heartbeat of build {build.pk}")

    def run(self) -> None:
        """Send heartbeats until ``stop()``, despite errors: a silent worker loses its build."""
        try:
            keep_running(self.name, self._beat, self._ended)
        finally:
            connection.close()

    def _beat(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            try:
                self._look()
            except DATABASE_ERRORS as error:
                # If the database is unreachable for longer than the lease, the sweep ends the
                # build.
                self._outage.failed(error)
                self._timers.hasten("beat")
                connection.close()
            else:
                self._outage.recovered()

    def stop(self) -> None:
        """Stop and join the thread."""
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
    """Publish log lines; return False while the broker is unreachable."""
    message = Outgoing(body=encode(batch), key=topology.LOGS.name)
    try:
        shared_broker().publish([message]).result(CONFIRM_SECONDS)
    except (BrokerError, TimeoutError):
        return False
    return True


def clear_folders() -> None:
    """Remove folders of killed workers."""
    root = Path(settings.BUILDS_DIR)
    if not root.is_dir():
        return
    for folder in root.iterdir():
        match = _FOLDER.fullmatch(folder.name)
        if match and not Build.objects.active().filter(pk=int(match[1]), boot=match[2]).exists():
            shutil.rmtree(folder, ignore_errors=True)


def tidy(
    options: EngineOptions,
    *,
    but: Build | None = None,
    connect: Callable[..., BuildEngine] = BuildEngine,
) -> int:
    """Remove images and layers of this installation that belong to no listed image.

    Returns their number. An image that was stored but not named, because its worker died, gets its
    name. Layers of unfinished builds are kept while another build runs, which may use them.
    """
    removed = 0
    try:
        engine = connect(options)
    except FAILURES:
        return 0
    try:
        others = Build.objects.active().exclude(state=BuildState.QUEUED)
        others = others.exclude(pk=but.pk if but else 0)
        for container, label in describers(engine):
            if not Build.objects.active().filter(pk=_build_id(label)).exists():
                remove_describer(engine, container)
        for digest, label in engine.nameless():
            if label and _belongs(engine, digest, label):
                continue
            # Query for each layer: another build may begin at any moment and use the layer.
            if label or not others.exists():
                engine.remove(digest)
                removed += 1
    except FAILURES as error:
        logger.warning("the Docker Engine was not tidied: %s", error)
    finally:
        engine.close()
    return removed


def _belongs(engine: BuildEngine, digest: str, label: str) -> bool:
    """Return whether an unnamed finished image belongs to a build; name it if it is listed."""
    build_id = _build_id(label)
    if not build_id:
        return False
    stored = Image.objects.filter(build_id=build_id, digest=digest).first()
    if stored is not None:
        name = ImageName(stored.name, stored.tag)
        engine.tag(digest, name.repository, name.tag)
        return True
    build = Build.objects.filter(pk=build_id).first()
    # A run may still use the digest of an older image whose tag was built again.
    return build is not None and (build.state == BuildState.SUCCEEDED or build.is_active)


def _build_id(label: str) -> int:
    """Return the ID of a build from its label, which is untrusted; 0 if it is none."""
    return int(label) if label.isascii() and label.isdigit() and len(label) <= 18 else 0
