"""The web is killed while it takes a delivery; the sender, who got no answer, tries again."""

from __future__ import annotations

import http.client
import json
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.measurements import Measured
from tests.plugins.migrated_databases import fill_data_folder
from tests.projects.web_process import ROOT, START_SECONDS, web_environment, web_process
from tests.projects.webhooks import SECRET, Signed, github, tag_push

pytestmark = [pytest.mark.fault, pytest.mark.timeout(400)]

MAKE = f"""
from apps.projects.models import Project
Project.objects.create(name="News", slug="news", webhook_secret={SECRET!r},
                       git_url="https://git.example.com/news.git")
"""
COMMITTED = "projects.delivery.committed"
POINTS = ["projects.delivery.stored", "projects.delivery.before_commit", COMMITTED]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    fill_data_folder(folder)
    subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "shell", "--verbosity=0", "-c", MAKE],
        env=web_environment(folder, DJANGO_SETTINGS_MODULE="crawlyard.settings.base"),
        check=True,
        timeout=200,
    )
    return folder


def send(port: int, sent: Signed) -> dict[str, Any] | None:
    """The answer, None when the server died over it."""
    wire = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    with closing(wire):
        try:
            wire.request("POST", "/webhooks/news/", sent.body, sent.headers)
            response = wire.getresponse()
        except (http.client.HTTPException, OSError):
            return None
        assert response.status == 202
        answer: dict[str, Any] = json.loads(response.read())
        return answer


def rows(data: Path, query: str, *values: str) -> list[Any]:
    with closing(sqlite3.connect(data / "crawlyard.sqlite3", timeout=30)) as database:
        return database.execute(query, values).fetchall()


@pytest.mark.covers("S1.4")
@pytest.mark.parametrize("point", POINTS)
def test_killed_over_a_delivery_the_tag_is_built_once(
    data: Path, point: str, measured: Measured
) -> None:
    tag = f"prod/news/{point.rpartition('.')[2].replace('_', '-')}"
    sent = github("push", tag_push(tag))
    with web_process(data, FAILPOINTS=f"{point}=kill") as web:
        assert send(web.port, sent) is None
        assert web.process.wait(START_SECONDS) == -signal.SIGKILL
    kept = rows(data, "SELECT id FROM projects_delivery WHERE tag = ?", tag)
    built = rows(data, "SELECT id FROM projects_build WHERE tag = ?", tag)
    # Both or neither: what was not committed has left nothing.
    assert (len(kept), len(built)) == ((1, 1) if point == COMMITTED else (0, 0))
    back_at = time.monotonic()
    with web_process(data) as web:
        answer = send(web.port, sent)
        back_s = time.monotonic() - back_at
        assert answer is not None
        assert answer["verdict"] == "built"
        assert answer["code"] == ("repeated" if point == COMMITTED else "")
    builds = len(rows(data, "SELECT id FROM projects_build WHERE tag = ?", tag))
    measured(of=1, lost=max(1 - builds, 0), twice=max(builds - 1, 0), back_s=back_s)
    assert builds == 1
    trail = "SELECT id FROM access_auditrecord WHERE action = ? AND object_id = ?"
    said = rows(data, trail, "projects.receive_delivery", str(answer["delivery"]))
    assert len(said) == 1
