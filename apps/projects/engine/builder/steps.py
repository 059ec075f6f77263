"""Steps of a build. Each step can be stopped at any time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import msgspec
from docker.errors import APIError

from apps.projects.engine.builder.context import DOCKERFILE, BuildContext, make_context, pin_bases
from apps.projects.engine.builder.control import BuildControl, BuildStepFailed
from apps.projects.engine.builder.description import DESCRIBE, describe_image
from apps.projects.engine.builder.engine import (
    FAILURES,
    BuildEngine,
    BuildLimitWatcher,
    EngineStream,
    building,
    pulling,
    wait_for_engine,
    words_of,
)
from apps.projects.engine.builder.logs import BuildLog
from apps.projects.engine.builder.plan import BUILD_LABEL, LAYER_LABEL, BuildPlan, BuiltImage
from apps.projects.engine.builder.references import Base, check_triggers
from apps.projects.engine.git import FetchedTag, fetch_tag
from yardkit import failpoints

CLONE: Final = "clone"
PREPARE: Final = "prepare"
BUILD: Final = "build"
CHECK: Final = "check"
STORE: Final = "store"

_STEP = re.compile(r"Step (\d+)/(\d+) : (.*)", re.DOTALL)


class BuildProgress(Protocol):
    """Receiver of the progress of a build; raises to abort the build."""

    def enter(self, step: str) -> None: ...

    def commit(self, commit: str) -> None: ...


def build_image(
    plan: BuildPlan,
    *,
    control: BuildControl,
    log: BuildLog,
    progress: BuildProgress,
    store: Callable[[BuiltImage, BuildEngine], None],
) -> None:
    """Run all steps of a build; ``store`` saves the result.

    Raises ``ProjectInputError`` with the reason, or ``BuildStopped``.
    """

    def tick() -> None:
        log.tick()
        control.check()

    progress.enter(CLONE)
    log.say(f"fetching tag {plan.tag} of {plan.remote.url}", source=CLONE)
    fetched = fetch_tag(
        plan.remote,
        plan.tag,
        folder=plan.folder / "clone",
        timeout=control.remaining,
        max_bytes=plan.max_image_bytes,
        watch=tick,
    )
    progress.commit(fetched.commit)
    _log_commit(fetched, plan, log)
    failpoints.hit("projects.build.cloned")
    progress.enter(PREPARE)
    context = make_context(fetched, plan, control)
    if context.recipe:
        text = f"no Dockerfile, but scrapy.cfg: built by the recipe on {plan.scrapy_base}"
        log.say(text, source=PREPARE)
    log.say(f"{context.files} files, {context.size_bytes:,} bytes", source=PREPARE)
    progress.enter(BUILD)
    engine = wait_for_engine(plan.engine, control, log)
    try:
        image = ImageBuild(plan, engine, control, log).run(context)
        progress.enter(CHECK)
        built = _checked(image, fetched.commit, plan, engine)
        log.say(f"{built.digest}, {built.size_bytes:,} bytes", source=CHECK)
        progress.enter(DESCRIBE)
        description, warning = describe_image(plan, engine, built.digest, control, log)
        built = replace(
            built,
            description=None if description is None else msgspec.to_builtins(description),
            warning=warning,
        )
        progress.enter(STORE)
        failpoints.hit("projects.build.before_store")
        tick()
        # Flush the log before the end of the build becomes visible.
        log.tick(force=True)
        store(built, engine)
    except FAILURES as error:
        raise BuildStepFailed("engine_lost", error=log.clean(str(error))) from error
    finally:
        engine.close()


def _log_commit(fetched: FetchedTag, plan: BuildPlan, log: BuildLog) -> None:
    log.say(f"commit {fetched.commit}", source=CLONE)
    expected = plan.expected_commit.lower()
    if expected and expected not in (fetched.commit, fetched.tag_object):
        text = f"the tag has been moved: it was announced with {expected}"
        log.say(text, source=CLONE, level="WARNING")


class ImageBuild:
    """Step "build": runs the build in the engine."""

    def __init__(
        self, plan: BuildPlan, engine: BuildEngine, control: BuildControl, log: BuildLog
    ) -> None:
        self._plan = plan
        self._control = control
        self._log = log
        self._mark = f"build-{plan.build}-{plan.boot}.crawlyard.invalid"
        self._engine = engine
        self._watcher = BuildLimitWatcher(engine, self._mark, plan.max_image_bytes)
        self._step = ""
        self._number = 0
        self.lines: tuple[int, ...] = ()
        self._image = ""

    def run(self, context: BuildContext) -> str:
        """Build the image and return its digest."""
        self.lines = context.lines
        pin_bases(context, self._ids_of(context.bases))
        stream = EngineStream(self._plan.engine, building(context.path, self._parameters()))
        try:
            for message in stream.messages(self._tick):
                self.hear(message)
        except APIError as error:
            raise BuildStepFailed(
                "build_refused", error=self._log.clean(words_of(error))
            ) from error
        finally:
            stream.end()
            self._watcher.end_containers()
            self._log.end_line(source=BUILD)
        if not self._image:
            raise BuildStepFailed("build_without_image")
        return self._image

    def _ids_of(self, bases: Sequence[Base]) -> dict[Base, str]:
        known: dict[tuple[str, str], str] = {}
        for base in bases:
            name = (base.image, base.platform)
            if name not in known:
                self._tick()
                known[name] = self._id_of(base)
        return {base: known[base.image, base.platform] for base in bases}

    def _id_of(self, base: Base) -> str:
        """Return the ID of a base image, which is pulled if missing.

        By the ID the builder uses the same image whose triggers were checked here.
        """
        image = self._engine.image(base.image)
        if image is None or not _is_for(image, base.platform):
            self._pull(base)
            image = self._engine.image(base.image)
        if image is None:
            raise self._no_base(base, "?")
        check_triggers((image.get("Config") or {}).get("OnBuild") or (), base)
        self._log.say(f"{base.image} is {image['Id']}", source=BUILD)
        return str(image["Id"])

    def _pull(self, base: Base) -> None:
        stream = EngineStream(self._plan.engine, pulling(base.image, base.platform))
        try:
            for message in stream.messages(self._tick):
                if "error" in message:
                    raise self._no_base(base, str(message["error"]))
                if "status" in message:
                    self._hear_status(message)
        except APIError as error:
            raise self._no_base(base, words_of(error)) from error
        finally:
            stream.end()
            self._log.end_line(source=BUILD)

    def _no_base(self, base: Base, why: str) -> BuildStepFailed:
        step, error = f"FROM {base.image}", self._log.clean(why)
        return BuildStepFailed("build_line_failed", line=base.line, step=step, error=error)

    def _tick(self) -> None:
        self._log.tick()
        self._control.check()
        self._watcher.check()

    def _parameters(self) -> dict[str, Any]:
        plan, memory = self._plan, self._plan.engine.memory_bytes
        return {
            "dockerfile": DOCKERFILE,
            "rm": True,
            "forcerm": True,
            "nocache": plan.no_cache,
            "buildargs": dict(plan.arguments),
            "labels": {**plan.labels, LAYER_LABEL: plan.layer, BUILD_LABEL: str(plan.build)},
            # Disable swap, which would double the memory limit.
            "container_limits": {"memory": memory, "memswap": memory},
            "network_mode": plan.engine.network,
            "extra_hosts": {self._mark: "127.0.0.1"},
            "use_config_proxy": False,
        }

    def hear(self, message: dict[str, Any]) -> None:
        """Process a message of the builder. Raises ``BuildStepFailed``."""
        if "error" in message or "errorDetail" in message:
            detail = message.get("errorDetail") or {}
            text = self._log.clean(str(detail.get("message") or message.get("error")))
            self._log.end_line(source=BUILD)
            if not self._step:
                raise BuildStepFailed("build_refused", error=text)
            line = self.lines[self._number - 1] if self._number <= len(self.lines) else 0
            code = "build_line_failed" if line else "build_step_failed"
            raise BuildStepFailed(code, line=line, step=self._step, error=text)
        if "stream" in message:
            self._hear_text(str(message["stream"]))
        elif "aux" in message:
            self._image = str((message["aux"] or {}).get("ID") or self._image)
        elif "status" in message:
            self._hear_status(message)

    def _hear_text(self, text: str) -> None:
        step = _STEP.fullmatch(text.rstrip("\n"))
        # Only the next number begins a step: the output of a command may look like a step, too.
        if step and int(step[1]) == self._number + 1:
            self._number = int(step[1])
            self._step = self._log.clean(step[3])
            failpoints.hit("projects.build.step")
        self._log.write(text, source=BUILD)

    def _hear_status(self, message: dict[str, Any]) -> None:
        """Process a status message of a pull, or of an ADD from a URL, which has no container."""
        progress = message.get("progressDetail") or {}
        if int(progress.get("current") or 0) > self._plan.max_image_bytes:
            raise BuildStepFailed(
                "build_too_large", limit=self._plan.max_image_bytes, size=int(progress["current"])
            )
        if not progress:
            self._log.write(f"{message['status']}\n", source=BUILD)


def _is_for(image: dict[str, Any], platform: str) -> bool:
    """Return whether the image is for a platform such as linux/arm64."""
    there = f"{image.get('Os')}/{image.get('Architecture')}"
    return not platform or f"{platform}/".startswith(f"{there}/")


def _checked(digest: str, commit: str, plan: BuildPlan, engine: BuildEngine) -> BuiltImage:
    image = engine.image(digest)
    if image is None:
        raise BuildStepFailed("build_without_image")
    labels = {str(name): str(value) for name, value in _labels_of(image).items()}
    size = int(image.get("Size") or 0)
    if size > plan.max_image_bytes:
        engine.remove(digest)
        raise BuildStepFailed("image_too_large", limit=plan.max_image_bytes, size=size)
    missing = {name for name, value in plan.labels.items() if labels.get(name) != value}
    if missing or labels.get(BUILD_LABEL) != str(plan.build):
        engine.remove(digest)
        raise BuildStepFailed("image_labels", labels=", ".join(sorted(missing)) or BUILD_LABEL)
    return BuiltImage(str(image["Id"]), size, labels, commit)


def _labels_of(found: dict[str, Any]) -> dict[str, Any]:
    return (found.get("Config") or {}).get("Labels") or {}
