"""The folders of runs on this host go after as many days as their log lines."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from pathlib import Path

from apps.jobs.daemon.context import RunnerContext
from apps.jobs.models import Run

logger = logging.getLogger(__name__)

# So many in one go: a runner has more to do than to delete.
BATCH = 50


def remove_old_folders(here: RunnerContext, *, days: int) -> int:
    """Remove what ended runs have left here ``days`` ago; returns how many folders that were.

    What still has lines that are not shipped stays, however old it is.
    """
    before = here.clock.now().timestamp() - days * 24 * 3600
    old: dict[int, Path] = {}
    with contextlib.suppress(FileNotFoundError):
        for path in here.folder.iterdir():
            # Of most folders their own time is enough.
            if path.name.isdigit() and _own_time(path) < before and _touched(path) < before:
                old[int(path.name)] = path
    if not old:
        return 0
    waiting = {run for run, _boot in here.shipper.unfinished()}
    # Not by their numbers: the old may be many thousands, and the active are few.
    between = Run.objects.active().filter(pk__range=(min(old), max(old)))
    waiting |= set(between.values_list("pk", flat=True))
    removed, stay = 0, []
    for run in sorted(old):
        if run in waiting or here.shipper.follows(run=run):
            continue
        # Another runner of the same folder may be at it too.
        shutil.rmtree(old[run], ignore_errors=True)
        if os.path.lexists(old[run]):
            stay.append(old[run])
            continue
        removed += 1
        if removed == BATCH:
            break
    if stay:
        logger.warning("%d old folders cannot be removed, as %s", len(stay), stay[0])
    return removed


def _own_time(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _touched(folder: Path) -> float:
    """When anything directly in it was last written (seconds since 1970)."""
    try:
        return max(map(_own_time, folder.iterdir()), default=0.0)
    except FileNotFoundError:
        return float("inf")
