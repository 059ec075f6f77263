"""The compose files as a person uses them: a copy of deploy/, its init.sh, docker-compose."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tools.requirement_marks import ROOT

COMPOSE = ("docker-compose",)


def copy_of_deploy(folder: Path) -> Path:
    """deploy/ in ``folder`` with secrets made; returns its compose folder."""
    shutil.copytree(
        ROOT / "deploy", folder / "deploy", ignore=shutil.ignore_patterns("secrets", ".env")
    )
    made = folder / "deploy" / "compose"
    script = (made / "init.sh").read_text(encoding="utf-8")
    (made / "init.sh").write_text(
        script.replace("/var/lib/crawlyard/runner", str(folder / "runner")), encoding="utf-8"
    )
    init(made)
    return made


def init(folder: Path) -> None:
    """Run init.sh there."""
    done = subprocess.run(
        ["sh", "init.sh", "yard.example.org"], cwd=folder, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def compose(folder: Path, *arguments: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """docker-compose there, with nothing of this process's environment but PATH and HOME."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [*COMPOSE, *arguments],
        cwd=folder,
        env=kept,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def services(folder: Path, *arguments: str) -> dict[str, Any]:
    """What ``docker-compose config`` makes of the files: everything merged and checked."""
    done = compose(folder, *arguments, "config")
    assert done.returncode == 0, done.stderr
    # Through JSON, so that no two services share a part of it.
    found: dict[str, Any] = json.loads(json.dumps(yaml.safe_load(done.stdout)["services"]))
    return found
