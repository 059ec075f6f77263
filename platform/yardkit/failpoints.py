"""Named points at which tests break a process on purpose.

``hit("router.after_publish")`` does nothing unless configured:

    FAILPOINTS="router.after_publish=kill@3,center.before_ack=stop:12@1,x=raise@2,y=sleep:0.5"

Actions: ``kill`` (SIGKILL), ``stop`` (SIGSTOP, continued after the given seconds, default 12),
``raise`` (``FailpointError``), ``sleep`` (seconds, default 1). ``@n``: at the n-th hit only, else
at every hit.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from yardkit.env import EnvError

logger = logging.getLogger(__name__)

SETTING: Final = "FAILPOINTS"

_ENTRY = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)=(?P<action>[a-z]+)(:(?P<seconds>[0-9]+(\.[0-9]+)?))?"
    r"(@(?P<at>[1-9][0-9]{0,8}))?"
)
_DEFAULT_SECONDS: Final = {"kill": 0.0, "stop": 12.0, "raise": 0.0, "sleep": 1.0}
_TIMED: Final = frozenset({"stop", "sleep"})
# The waker checks its parent first: the id of a process killed while stopped may have been reused.
# Its last argument is the failpoint's name, shown in process lists.
_WAKER: Final = (
    "import os, signal, sys, time\n"
    "parent = int(sys.argv[1])\n"
    "time.sleep(float(sys.argv[2]))\n"
    "if os.getppid() == parent: os.kill(parent, signal.SIGCONT)\n"
)


class FailpointError(RuntimeError):
    """Raised by the action ``raise``."""


@dataclass(slots=True)
class _Point:
    action: str
    seconds: float
    at: int | None
    hits: int = 0


# None: nothing is configured, which is all that ``hit`` looks at then.
_points: dict[str, _Point] | None = None
_pending = bool(os.environ.get(SETTING))
if _pending:
    _points = {}
_lock = threading.Lock()


def hit(name: str) -> None:
    """Pass the failpoint ``name``."""
    if _points is None:
        return
    if _pending:
        configure()
    _hit(name)


def configure(environ: Mapping[str, str] | None = None) -> None:
    """Parse the setting; hits count from 0.

    Daemons call it at start, so that an invalid value stops them; otherwise the first ``hit`` does.

    Raises:
        EnvError: the value is invalid; names the part.
    """
    global _points, _pending
    value = (os.environ if environ is None else environ).get(SETTING, "")
    points = parse(value)
    with _lock:
        _points = points or None
        _pending = False


def parse(value: str) -> dict[str, _Point]:
    """Parse a ``FAILPOINTS`` value into points by name. Raises ``EnvError``."""
    points: dict[str, _Point] = {}
    for part in filter(None, (entry.strip() for entry in value.split(","))):
        match = _ENTRY.fullmatch(part)
        remedy = "write name=action, for example router.after_publish=kill@3"
        if match is None:
            raise EnvError(SETTING, f"{part[:80]!r} cannot be read", remedy)
        action, seconds = match["action"], match["seconds"]
        if action not in _DEFAULT_SECONDS:
            raise EnvError(
                SETTING, f"{part[:80]!r} has no known action", "use kill, stop, raise or sleep"
            )
        if seconds is not None and action not in _TIMED:
            raise EnvError(SETTING, f"{part[:80]!r}: {action} takes no seconds", remedy)
        points[match["name"]] = _Point(
            action,
            _DEFAULT_SECONDS[action] if seconds is None else float(seconds),
            None if match["at"] is None else int(match["at"]),
        )
    return points


def _hit(name: str) -> None:
    point = (_points or {}).get(name)
    if point is None:
        return
    with _lock:
        point.hits += 1
        due = point.at is None or point.hits == point.at
    if not due:
        return
    if point.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif point.action == "stop":
        # Logged, because a stopped process shows nothing from outside.
        logger.warning("stands still at %s", name)
        _stop(name, point.seconds)
        logger.warning("goes on at %s", name)
    elif point.action == "raise":
        raise FailpointError(name)
    else:
        time.sleep(point.seconds)


def _stop(name: str, seconds: float) -> None:
    arguments = [sys.executable, "-I", "-S", "-c", _WAKER, str(os.getpid()), str(seconds), name]
    with subprocess.Popen(arguments, start_new_session=True):
        os.kill(os.getpid(), signal.SIGSTOP)
