"""What a run leaves in its folder: its log, its items, its last word."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path
from typing import Any, Final

from apps.jobs.runners.base import RunExit

# The log of the newest execution.
LOG_FILE: Final = "log.txt"
EXIT_FILE: Final = "exit.json"
_LOG_TAIL_BYTES: Final = 16_384
# What a run wrote is foreign: no more of it than this is read, or kept as its reason.
_EXIT_FILE_BYTES: Final = 1024 * 1024
_REASON_CHARACTERS: Final = 1000


def log_file(folder: Path, boot: str) -> Path:
    """The log of one execution alone, so that its lines can be counted."""
    return folder / f"log-{boot}.txt"


def read_exit(folder: Path, code: int | None, *, last_line: str | None = None) -> RunExit:
    """What the run wrote about its end, else what its exit code and last log line say.

    Args:
        last_line: of its log, where that is no file in the folder.
    """
    told = _read_exit_file(folder / EXIT_FILE)
    state, reason = str(told.get("state", "")), str(told.get("reason", ""))
    if not reason and code:
        died = _cause(code)
        if last_line is None:
            last_line = log_tail(folder).strip().rpartition("\n")[2]
        reason = f"{died}: {last_line}" if last_line else died
    return RunExit(
        code=code,
        state=state,
        reason=storable(reason),
        total=_count(told.get("total")),
        failed=_count(told.get("failed")),
    )


def _count(value: object) -> int | None:
    """A count that the database can hold, else None."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < 2**63 else None


def _cause(code: int) -> str:
    """``killed by signal 9 (SIGKILL)`` for -9; a shell and Docker report the same as 137."""
    killed_by = -code if code < 0 else code - 128
    try:
        killed = f"killed by signal {killed_by} ({signal.Signals(killed_by).name})"
    except ValueError:
        return f"exit status {code}"
    return killed if code < 0 else f"exit status {code}, {killed}"


def _read_exit_file(path: Path) -> dict[str, Any]:
    try:
        # A run may leave a link there, or a pipe which nobody would ever fill.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return {}
            told = json.loads(file.read(_EXIT_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def storable(text: str) -> str:
    """One line that every database can hold."""
    whole = text[:_REASON_CHARACTERS].encode("utf-8", "replace").decode()
    return "".join(one if one.isprintable() else " " for one in whole)


def log_tail(folder: Path, limit: int = _LOG_TAIL_BYTES) -> str:
    """The last ``limit`` bytes of the run's log, as whole lines where possible."""
    try:
        if not (folder / LOG_FILE).is_file():
            return ""
        with (folder / LOG_FILE).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit))
            text = file.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""
    return text if size <= limit else text.partition("\n")[2]
