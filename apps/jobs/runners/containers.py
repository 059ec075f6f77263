"""Options of containers; the only module that sets them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from docker import APIClient
from docker.types import LogConfig, Mount

from apps.jobs.runners.base import BOOT, RUN, RUN_DIR, RunSpec, spider_program

LABEL: Final = "crawlyard."
RUN_LABEL: Final = "crawlyard.run"
BOOT_LABEL: Final = "crawlyard.boot"
HOST_LABEL: Final = "crawlyard.host"
INSTALLATION_LABEL: Final = "crawlyard.installation"
# Path of the run's folder inside the container.
FOLDER: Final = "/crawlyard"
# User of containers if the runner is root; otherwise containers use the runner's user.
USER_ID: Final = 10001
LOG_BYTES: Final = 64 * 1024**2
LOG_FILES: Final = 4
TMP_BYTES: Final = 256 * 1024**2
_NAME = re.compile(r"[^a-zA-Z0-9_.-]")


def container_name(run: int, boot: str) -> str:
    """Return the container name of an execution. Engines reject a name that is in use."""
    return f"crawlyard-run-{run}-{_NAME.sub('', boot)}"


def user() -> tuple[int, int]:
    """Return user ID and group ID of the container: never root."""
    return (USER_ID, USER_ID) if os.geteuid() == 0 else (os.geteuid(), os.getegid())


def make_folder(folder: Path) -> None:
    """Create the run's folder, owned by the container's user."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(folder, *user())


def container_options(
    api: APIClient,
    spec: RunSpec,
    *,
    image: str,
    network: str,
    labels: dict[str, str],
    has_init: bool,
) -> dict[str, Any]:
    """Return the arguments of ``create_container``; no other job data is passed to the engine.

    The image's own entry point is kept only if the job has neither command nor spider.
    """
    program = [*spec.command] or (spider_program("python3", spec.spider) if spec.spider else [])
    uid, gid = user()
    return {
        "image": image,
        "name": container_name(spec.run, spec.boot),
        "entrypoint": program[:1] or None,
        "command": program[1:] or None,
        "user": f"{uid}:{gid}",
        "environment": {
            "HOME": "/tmp",  # noqa: S108 - inside the container
            "PYTHONUNBUFFERED": "1",
            **spec.environment,
            RUN_DIR: FOLDER,
            RUN: str(spec.run),
            BOOT: spec.boot,
        },
        "labels": {**spec.labels, **labels, RUN_LABEL: str(spec.run), BOOT_LABEL: spec.boot},
        "host_config": _host_config(api, spec, network=network, has_init=has_init),
    }


def _host_config(api: APIClient, spec: RunSpec, *, network: str, has_init: bool) -> dict[str, Any]:
    """Return limits, mounts and isolation of the container."""
    folder = Mount(FOLDER, str(spec.folder.resolve()), type="bind")
    volumes = [
        Mount(volume.target, volume.source, type="bind", read_only=volume.read_only)
        for volume in spec.volumes
    ]
    options: dict[str, Any] = api.create_host_config(
        network_mode=network,
        nano_cpus=int(spec.limits.cpus * 1e9),
        mem_limit=spec.limits.memory_bytes,
        # Equal to the memory limit, which disables swap.
        memswap_limit=spec.limits.memory_bytes,
        pids_limit=spec.limits.pids,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        read_only=True,
        tmpfs={"/tmp": f"rw,nosuid,nodev,size={TMP_BYTES}"},  # noqa: S108 - its own
        mounts=[folder, *volumes],
        restart_policy={"Name": "no"},
        init=True if has_init else None,
        log_config=LogConfig(
            type=LogConfig.types.JSON,
            config={"max-size": str(LOG_BYTES), "max-file": str(LOG_FILES)},
        ),
    )
    return options
