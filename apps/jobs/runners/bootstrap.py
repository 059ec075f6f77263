"""Bootstrap code of executions: writes the start mark, and records the exit status.

An execution first creates its mark, and exits if the mark exists already. So a runner that was
killed at any moment can find out whether the execution started, and no execution starts twice.

A spider records its end itself. A command does not, and the kernel reports its exit status only to
its parent process: so the bootstrap code is the parent, outlives the runner, and records it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_BEGIN: Final = """
import os, signal, sys
mark, status, program = sys.argv[1], sys.argv[2], sys.argv[3:]
asked = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

def run():
    try:
        os.execvp(program[0], program)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{program[0]}: {error}\\n")
        sys.stderr.flush()
        os._exit(127)

try:
    os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
except FileExistsError:
    sys.stderr.write("this execution has begun before\\n")
    sys.stderr.flush()
    os._exit(127)
if not status:
    run()
for number in asked:
    signal.signal(number, signal.SIG_IGN)
child = os.fork()
if not child:
    for number in asked:
        signal.signal(number, signal.SIG_DFL)
    run()
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
try:
    with open(status + ".new", "w") as file:
        file.write(str(code))
    os.replace(status + ".new", status)
except OSError as error:
    sys.stderr.write(f"the exit status {code} cannot be kept: {error}\\n")
    sys.stderr.flush()
if code < 0:
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def bootstrap_argv(folder: Path, boot: str, program: Sequence[str], *, guarded: bool) -> list[str]:
    """Return the argv that starts ``program``; ``guarded`` also records the exit status."""
    status = str(_status_file(folder, boot)) if guarded else ""
    begin = [sys.executable, "-I", "-S", "-c", _BEGIN]
    return [*begin, str(mark_file(folder, boot)), status, *program]


def mark_file(folder: Path, boot: str) -> Path:
    """Return the file that exists once the execution has started."""
    return folder / f"begun-{boot}"


def read_status(folder: Path, boot: str) -> int | None:
    """Return the exit status of a command, negative for a signal; None if not recorded."""
    try:
        return int(_status_file(folder, boot).read_text())
    except (OSError, ValueError):
        return None


def _status_file(folder: Path, boot: str) -> Path:
    return folder / f"status-{boot}"
