"""Retention of run folders: the same number of days as log lines."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from pathlib import Path

from apps.jobs.daemon.context import RunnerContext
from apps.jobs.models import Run

logger = logging.getLogger(__name__)

# Limit of folders deleted per call, so that other work of the runner is not delayed.
BATCH = 50


def remove_old_folders(context: RunnerContext, *, days: int) -> int:
    """Remove folders of ended runs that are older than ``days``; return their number.

    A folder is kept until its log is shipped completely, whatever its age.
    """
    before = context.clock.now().timestamp() - days * 24 * 3600
    old: dict[int, Path] = {}
    with contextlib.suppress(FileNotFoundError):
        for path in context.folder.iterdir():
            # The folder's own modification time decides for most folders, without listing it.
            if path.name.isdigit() and _own_time(path) < before and _touched(path) < before:
                old[int(path.name)] = path
    if not old:
        return 0
    waiting = {run for run, _boot in context.shipper.unfinished()}
    # A range, not a list of ids: there may be many thousand old folders and few active runs.
    between = Run.objects.active().filter(pk__range=(min(old), max(old)))
    waiting |= set(between.values_list("pk", flat=True))
    removed, stay = 0, []
    for run in sorted(old):
        if run in waiting or context.shipper.follows(run=run):
            continue
        # Another runner with the same data folder may delete it concurrently.
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
    """Return the newest modification time of the folder's direct entries (Unix seconds)."""
    try:
        return max(map(_own_time, folder.iterdir()), default=0.0)
    except FileNotFoundError:
        return float("inf")
