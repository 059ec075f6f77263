"""Failure records, and the lines of failure files."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apps.routing.engine.failures import FailureRecord

AT = datetime(2026, 11, 21, 12, 0, 0, 123000, tzinfo=UTC)


def failed(uuid: str = "u", text: str = "", *, item: Any = None) -> FailureRecord:
    return FailureRecord(
        task_uuid=uuid,
        project="ic",
        inbound="spider_log",
        outbound="captcha",
        state="failed",
        reason="retry_limits",
        detail="The task failed with status 1101.",
        status="1101",
        at=AT,
        item={"company_name": text} if item is None else item,
    )


def files_in(folder: Path, name: str = "failed.jsonl") -> list[str]:
    """Return the names of a failure file and its rotated files, oldest first, without locks."""
    found = sorted(path.name for path in folder.iterdir() if path.name.startswith(name))
    return [*(each for each in found if each != name), *(each for each in found if each == name)]


def uuids_in(folder: Path) -> list[str]:
    """Return the ``task_uuid`` of each line of each file in order; every line must be complete."""
    found = []
    for name in files_in(folder):
        raw = (folder / name).read_bytes()
        text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
        assert not text or text.endswith("\n")
        found += [json.loads(line)["task_uuid"] for line in text.splitlines()]
    return found
