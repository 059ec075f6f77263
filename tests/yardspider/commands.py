"""Running the real command in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_KEPT = {"PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT"}


@dataclass
class Done:
    """A finished command: exit status, stdout, stderr, and the folder it ran in."""

    status: int
    output: str
    errors: str
    folder: Path

    @property
    def summary(self) -> dict[str, Any]:
        """The JSON object that ``--json`` prints."""
        content: dict[str, Any] = json.loads(self.output)
        return content

    def items(self) -> list[dict[str, Any]]:
        text = (self.folder / "items.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


def environment(**extra: str) -> dict[str, str]:
    """A clean one: no setting of the machine that runs the tests reaches the command."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT}
    return {**kept, "PYTHONPATH": str(ROOT / "platform"), **extra}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "yardspider", *arguments]


def run(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> Done:
    """The command with these arguments, run to its end in ``folder``."""
    done = subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(**(env or {})),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr, folder)


def run_command(spider: str, *arguments: str, folder: Path, speed: float = 0) -> Done:
    """``run SPIDER --local`` at full speed with spider arguments; items in ``items.jsonl``."""
    options = [option for argument in arguments for option in ("--argument", argument)]
    return run(
        folder,
        *("run", spider, "--local", "--json", "--set", f"speed={speed}"),
        *("--output", "items.jsonl", *options),
    )
