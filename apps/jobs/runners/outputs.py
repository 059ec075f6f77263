"""Files in the folder of a run: log, items, exit file."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path
from typing import Any, Final

from apps.jobs.runners.base import RunExit

# Link to the log of the newest execution.
LOG_FILE: Final = "log.txt"
EXIT_FILE: Final = "exit.json"
_LOG_TAIL_BYTES: Final = 16_384
# The content is untrusted: limits of the size that is read, and of the reason.
_EXIT_FILE_BYTES: Final = 1024 * 1024
_REASON_CHARACTERS: Final = 1000


def log_file(folder: Path, boot: str) -> Path:
    """Return the log file of one execution; a file per execution allows counting its lines."""
    return folder / f"log-{boot}.txt"


def read_exit(folder: Path, code: int | None, *, last_line: str | None = None) -> RunExit:
    """Return the end of an execution by its exit file, else by exit status and last log line.

    Args:
        last_line: last line of a log that is not a file in the folder.
    """
    reported = _read_exit_file(folder / EXIT_FILE)
    state, reason = str(reported.get("state", "")), str(reported.get("reason", ""))
    if not reason and code:
        died = _cause(code)
        if last_line is None:
            last_line = log_tail(folder).strip().rpartition("\n")[2]
        reason = f"{died}: {last_line}" if last_line else died
    return RunExit(
        code=code,
        state=state,
        reason=storable(reason),
        total=_count(reported.get("total")),
        failed=_count(reported.get("failed")),
        items=_count(reported.get("items")),
        exceptions=_count(reported.get("exceptions")),
    )


def _count(value: object) -> int | None:
    """Return a count if the database can store it, else None."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < 2**63 else None


def _cause(code: int) -> str:
    """Return the cause of an exit status, such as ``killed by signal 9 (SIGKILL)``.

    A signal is reported as -9 by the kernel, and as 137 by shells and Docker.
    """
    killed_by = -code if code < 0 else code - 128
    try:
        killed = f"killed by signal {killed_by} ({signal.Signals(killed_by).name})"
    except ValueError:
        return f"exit status {code}"
    return killed if code < 0 else f"exit status {code}, {killed}"


def _read_exit_file(path: Path) -> dict[str, Any]:
    try:
        # A run may replace the file by a link, or by a pipe that would block the reader.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return {}
            reported = json.loads(file.read(_EXIT_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return reported if isinstance(reported, dict) else {}


def storable(text: str) -> str:
    """Return one printable line of limited length, which every database can store."""
    whole = text[:_REASON_CHARACTERS].encode("utf-8", "replace").decode()
    return "".join(character if character.isprintable() else " " for character in whole)


def log_tail(folder: Path, limit: int = _LOG_TAIL_BYTES) -> str:
    """Return the last ``limit`` bytes of the run's log, as whole lines where possible."""
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
