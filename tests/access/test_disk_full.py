"""The disk under the embedded stores is full: not ready, 503, nothing half written; then ready."""

from __future__ import annotations

import http.client
import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.measurements import Measured
from tests.projects.test_webhook_faults import data as full_data  # noqa: F401 - a fixture
from tests.projects.web_process import START_SECONDS, web_process
from tests.projects.webhooks import github, tag_push

pytestmark = [pytest.mark.fault, pytest.mark.timeout(400)]


@pytest.fixture
def small(tmp_path: Path, full_data: Path) -> Iterator[Path]:  # noqa: F811 - the same
    """A disk of 64 MiB with the data folder of an installation."""
    if os.geteuid() != 0:
        pytest.skip("a small disk can be mounted by root only")
    made = tmp_path / "small"
    made.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(made)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        subprocess.run(["cp", "-a", f"{full_data}/.", str(made)], check=True)
        yield made
    finally:
        subprocess.run(["umount", "--lazy", str(made)], check=True)


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    wire = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    with closing(wire):
        wire.request(method, path, body, headers)
        answer = wire.getresponse()
        return answer.status, json.loads(answer.read())


def fill(folder: Path) -> Path:
    """Take every byte there is."""
    path = folder / "somebody's file"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue
    return path


def test_a_full_disk_is_not_ready_and_503_until_there_is_room_again(
    small: Path, measured: Measured
) -> None:
    with web_process(small) as web:
        status, told = ask(web.port, "GET", "/readyz")
        assert (status, told["checks"]["disk"]) == (200, "ok")
        taken = fill(small)
        status, told = ask(web.port, "GET", "/readyz")
        assert (status, told["checks"]["disk"]) == (503, "the disk is full")
        # Who only reads is still served, and alive it is.
        assert ask(web.port, "GET", "/healthz")[0] == 200
        sent = [github("push", tag_push(f"prod/news/full-{number}")) for number in range(20)]
        answers = [
            ask(web.port, "POST", "/webhooks/news/", one.body, **one.headers) for one in sent
        ]
        assert {status for status, _told in answers} <= {202, 503}
        assert (503, "unavailable") in {(status, told["code"]) for status, told in answers}
        taken.unlink()
        freed_at = time.monotonic()
        while (status := ask(web.port, "GET", "/readyz")[0]) != 200:
            assert time.monotonic() - freed_at < 30, status
            time.sleep(0.05)
        back_s = time.monotonic() - freed_at
        for one in sent:
            assert ask(web.port, "POST", "/webhooks/news/", one.body, **one.headers)[0] == 202
    with closing(sqlite3.connect(small / "crawlyard.sqlite3", timeout=30)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        tags = "SELECT count(*), count(DISTINCT tag) FROM projects_build WHERE tag LIKE '%/full-%'"
        rows, different = database.execute(tags).fetchone()
    measured(of=len(sent), lost=len(sent) - different, twice=rows - different, back_s=back_s)
    # Each once: what was promised with 202, and what was refused and came again.
    assert (rows, different) == (20, 20)
