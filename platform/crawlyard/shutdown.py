"""Fast exit of a process of manage.py, once all work is done.

Python needs half a second of CPU and more to tear down its modules. A box ends fifteen processes
within 5 s: on two busy cores most of them were killed during the teardown, which is useless, since
the kernel frees everything.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import Final, NoReturn

_statuses: Final[list[int]] = []


def leave(status: int) -> NoReturn:
    """Wait for threads and call exit handlers as usual, then exit at once."""
    _statuses.append(status)
    sys.exit(status)


def _end() -> None:
    if not _statuses:
        return  # the interpreter still has to print the exception
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(_statuses[0])


# The first registered handler is called last; so this module is imported before others.
atexit.register(_end)
