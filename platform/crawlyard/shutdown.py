"""The end of a process of manage.py: at once, when all is done that there was to do.

To take apart what it has loaded costs Python half a second of CPU and more. A box ends fifteen
processes together, and within 5 s: on two busy cores most of them were killed while they did no
more than that, and nothing of it is of use, for the kernel frees everything anyway.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import Final, NoReturn

_statuses: Final[list[int]] = []


def leave(status: int) -> NoReturn:
    """Threads are waited for and exit handlers called, as ever; then the process is gone."""
    _statuses.append(status)
    sys.exit(status)


def _end() -> None:
    if not _statuses:
        return  # an exception, whose text is still to come
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(_statuses[0])


# The handler that is registered first is called last; so this module is imported before others.
atexit.register(_end)
