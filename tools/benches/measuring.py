"""What every bench needs: processes of its own, what they use, and the conditions of the day."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psutil
from django.conf import settings

from crawlyard.settings.paths import ROOT

END_SECONDS: Final = 20.0
PYTHON_PATH: Final = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")])}


class BenchFailed(Exception):
    """The measurement is void; the text says why."""


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds so far and resident memory of a process.

    ``main_seconds`` is the part of its first thread.
    """

    cpu_seconds: float = 0.0
    rss_mb: float = 0.0
    main_seconds: float = 0.0


def usage(pid: int | None) -> Usage | None:
    """What a process has used so far; None when it is gone."""
    if not pid:
        return None
    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        main = [one for one in process.threads() if one.id == pid]
        return Usage(
            times.user + times.system,
            process.memory_info().rss / 2**20,
            sum(one.user_time + one.system_time for one in main),
        )
    except psutil.Error:
        return None


def conditions() -> dict[str, Any]:
    """Under which a figure was measured; ``load`` is what else kept the machine busy."""
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "broker": settings.BROKER_URL.partition(":")[0],
        "database": settings.DATABASE_URL.partition(":")[0],
    }


def environment() -> dict[str, str]:
    """That of a process which runs a module of ours."""
    return {**os.environ, **PYTHON_PATH}


def module(name: str, *arguments: str) -> list[str]:
    """The argv of a module of ours."""
    return [sys.executable, "-m", name, *arguments]


@contextmanager
def helper(
    argv: Sequence[str], others: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A process that works until its input closes, which it is told by the end of the block.

    ``others`` are settings of its own.

    Raises:
        BenchFailed: it did not end then.
    """
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment() | dict(others or {}),
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - pipes
    try:
        yield process
    finally:
        with process.stdout:
            process.stdin.close()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise BenchFailed(f"{argv[2]} did not end") from None


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line a helper writes. Raises ``BenchFailed`` when it has ended instead."""
    assert process.stdout is not None  # noqa: S101 - helper() asks for a pipe
    line = process.stdout.readline()
    if not line:
        raise BenchFailed(f"a process of the bench ended with exit status {process.wait()}")
    return line.strip()
