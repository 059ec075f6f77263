"""Step "describe": asks a built image for its spiders. Its answer is untrusted.

The container has no network, no capabilities and limits of memory, processes and time."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated, Any, Final, Literal

import msgspec
from docker.errors import APIError
from docker.types import LogConfig

from apps.projects.engine.builder.control import BuildControl
from apps.projects.engine.builder.engine import FAILURES, POLL_SECONDS, BuildEngine, words_of
from apps.projects.engine.builder.logs import BuildLog
from apps.projects.engine.builder.plan import BUILD_LABEL, BuildPlan

DESCRIBE: Final = "describe"
# Label of the containers that describe: the owner, as in ``LAYER_LABEL``.
DESCRIBE_LABEL: Final = "crawlyard.describes"
DESCRIBE_SECONDS: Final = 120
MAX_BYTES: Final = 4 * 1024**2
_PIDS: Final = 256
_TMP_BYTES: Final = 64 * 1024**2
_USER: Final = "10001:10001"
# The exit status of an image that has no spiders to describe; see ``yardspider.description``.
_NOTHING: Final = 3
# A Scrapy project is asked first: its image has our SDK, too.
_PROGRAM: Final = f"""\
import importlib.util, subprocess, sys
for needed, program in (
    (("scrapy", "yardscrapy"), ["yardscrapy.describe"]),
    (("yardspider",), ["yardspider", "describe"]),
):
    if all(map(importlib.util.find_spec, needed)):
        program = [sys.executable, "-m", *program]
        code = subprocess.call(program, timeout={DESCRIBE_SECONDS})
        if code != {_NOTHING}:
            sys.exit(code)
sys.exit({_NOTHING})
"""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Text = Annotated[str, msgspec.Meta(max_length=1000)]


class Argument(msgspec.Struct, frozen=True):
    """Declared argument of a spider."""

    name: Name
    type: Literal["str", "int", "float", "bool", "list", "dict", "any"] = "str"
    default: Any = None
    required: bool = False
    description: Text = ""


class DescribedSpider(msgspec.Struct, frozen=True):
    """Spider of a project, under the name that a job uses."""

    name: Name
    class_name: Annotated[str, msgspec.Meta(max_length=1000)] = msgspec.field(
        default="", name="class"
    )
    description: Text = ""
    arguments: Annotated[list[Argument], msgspec.Meta(max_length=200)] = []
    settings: dict[str, Any] = {}


class ModuleError(msgspec.Struct, frozen=True):
    """Module whose spiders are unknown, and why."""

    module: Text
    error: Text


class Description(msgspec.Struct, frozen=True):
    """Answer of ``yardspider describe`` or ``yardscrapy describe``."""

    version: Literal[1]
    kind: Literal["yardspider", "scrapy"]
    spiders: Annotated[list[DescribedSpider], msgspec.Meta(max_length=20_000)] = []
    settings: dict[str, Any] = {}
    errors: Annotated[list[ModuleError], msgspec.Meta(max_length=20_000)] = []


class NotDescribed(Exception):
    """The image did not describe its spiders; the text says why."""


def read_description(raw: bytes) -> Description:
    """Return the last line of an output as a description. Raises ``NotDescribed``."""
    if len(raw) > MAX_BYTES:
        raise NotDescribed(f"its description is larger than {MAX_BYTES:,} bytes")
    line = raw.strip().rsplit(b"\n", 1)[-1]
    try:
        return msgspec.convert(_storable(msgspec.json.decode(line)), type=Description)
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotDescribed(f"its description cannot be read: {error}") from error


def _storable(value: Any) -> Any:
    """Return the value without NUL characters, which PostgreSQL rejects."""
    if isinstance(value, str):
        return value.replace("\x00", "")
    if isinstance(value, dict):
        return {_storable(name): _storable(item) for name, item in value.items()}
    return [_storable(item) for item in value] if isinstance(value, list) else value


def describe_image(
    plan: BuildPlan, engine: BuildEngine, digest: str, control: BuildControl, log: BuildLog
) -> tuple[Description | None, str]:
    """Return the description of an image, and a warning if there should be one.

    Never fails a build: an image without Python or without our packages has none. Raises only
    ``BuildStopped``.
    """
    try:
        raw = _output(plan, engine, digest, control, log)
        if raw is None:
            log.say("the image describes no spiders", source=DESCRIBE)
            return None, ""
        description = read_description(raw)
    except (NotDescribed, *FAILURES) as error:
        text = words_of(error) if isinstance(error, APIError) else str(error)
        warning = log.clean(text)
        log.say(f"no description: {warning}", source=DESCRIBE, level="WARNING")
        return None, warning
    for problem in description.errors:
        text = log.clean(f"{problem.module}: {problem.error}")
        log.say(text, source=DESCRIBE, level="WARNING")
    log.say(f"{len(description.spiders)} spiders ({description.kind})", source=DESCRIBE)
    return description, ""


def _output(
    plan: BuildPlan, engine: BuildEngine, digest: str, control: BuildControl, log: BuildLog
) -> bytes | None:
    """Return what the image prints; None if it has nothing to describe."""
    api = engine.api
    container = api.create_container(**_options(plan, engine, digest))["Id"]
    try:
        try:
            api.start(container)
        except APIError as error:
            if "executable file not found" in words_of(error):
                return None
            raise
        state = _ended(engine, container, control, log)
        if state["ExitCode"] == _NOTHING:
            return None
        if state["ExitCode"]:
            raise NotDescribed(_reason(engine, container, state))
        return _read(engine, container)
    finally:
        with contextlib.suppress(APIError):
            api.remove_container(container, force=True, v=True)


def _options(plan: BuildPlan, engine: BuildEngine, digest: str) -> dict[str, Any]:
    """Return the arguments of ``create_container``: as little as an import of modules needs."""
    memory = plan.engine.memory_bytes
    return {
        "image": digest,
        "entrypoint": ["python3", "-c", _PROGRAM],
        "command": [],
        "user": _USER,
        "environment": {"HOME": "/tmp", "PYTHONUNBUFFERED": "1"},  # noqa: S108 - its own
        "labels": {DESCRIBE_LABEL: plan.engine.owner},
        "host_config": engine.api.create_host_config(
            network_mode="none",
            mem_limit=memory,
            memswap_limit=memory,
            pids_limit=_PIDS,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            read_only=True,
            tmpfs={"/tmp": f"rw,nosuid,nodev,size={_TMP_BYTES}"},  # noqa: S108 - its own
            restart_policy={"Name": "no"},
            log_config=LogConfig(
                type=LogConfig.types.JSON, config={"max-size": "16m", "max-file": "1"}
            ),
        ),
    }


def _ended(
    engine: BuildEngine, container: str, control: BuildControl, log: BuildLog
) -> dict[str, Any]:
    """Wait for the end of the container and return its state."""
    # Half of what is left of the build's time: this step must not be why a build fails.
    seconds = min(float(DESCRIBE_SECONDS), control.remaining / 2)
    deadline = time.monotonic() + seconds
    while True:
        state: dict[str, Any] = engine.api.inspect_container(container)["State"]
        if state["Status"] not in ("created", "running"):
            return state
        if time.monotonic() >= deadline:
            raise NotDescribed(f"time limit: describing took longer than {seconds:.0f} s")
        log.tick()
        control.wait(POLL_SECONDS)


def _read(engine: BuildEngine, container: str) -> bytes:
    # Not streamed: the engine keeps no more than the log's limit.
    output: bytes = engine.api.logs(container, stdout=True, stderr=False)
    return output


def _reason(engine: BuildEngine, container: str, state: dict[str, Any]) -> str:
    if state.get("OOMKilled"):
        return "the memory limit was exceeded"
    output = engine.api.logs(container, stdout=False, stderr=True, tail=1)
    line = output.decode("utf-8", "replace").strip()
    return f"exit status {state['ExitCode']}: {line}"


def describers(engine: BuildEngine) -> list[tuple[str, str]]:
    """Return (container, build ID) of this installation's containers that describe."""
    label = f"{DESCRIBE_LABEL}={engine.options.owner}"
    containers = engine.api.containers(all=True, filters={"label": [label]})
    # The label of the image is one of its containers, too.
    return [
        (container["Id"], (container.get("Labels") or {}).get(BUILD_LABEL, ""))
        for container in containers
    ]


def remove_describer(engine: BuildEngine, container: str) -> None:
    """Remove a container that a killed worker left."""
    with contextlib.suppress(APIError):
        engine.api.remove_container(container, force=True, v=True)
