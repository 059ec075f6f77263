"""A PostgreSQL that only reads, or whose tables somebody has locked: 503, and then it goes on."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.plugins.measurements import Measured
from tests.plugins.stores import lend_postgres_database
from tests.projects.web_process import ROOT, START_SECONDS, web_environment, web_process

pytestmark = [pytest.mark.fault, pytest.mark.services, pytest.mark.timeout(300)]

MAKE = """
from apps.access.models import User
from apps.access.services import create_token
user = User.objects.create_superuser(username="ops", email="ops@example.com", password="x-9-y-8-z")
made = create_token(user=user, name="test", scopes=["*:write"], expires_at=None, actor=user)
print(made.secret)
"""


class Web:
    """The web on a PostgreSQL of its own."""

    def __init__(self, port: int, secret: str, database: psycopg.Connection[Any]) -> None:
        self._port = port
        self._headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        self.database = database
        self._slug = 0

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any, Any]:
        wire = http.client.HTTPConnection("127.0.0.1", self._port, timeout=START_SECONDS)
        with closing(wire):
            text = None if body is None else json.dumps(body)
            wire.request(method, path, text, self._headers)
            answer = wire.getresponse()
            return answer.status, json.loads(answer.read()), answer.headers

    def write(self) -> tuple[int, Any, Any]:
        self._slug += 1
        name = f"p{self._slug}"
        return self.ask("POST", "/api/v1/projects", {"slug": name, "name": name})

    def check_unavailable(self) -> int:
        """The status, which is 503."""
        status, told, headers = self.write()
        assert (status, told["code"]) == (503, "unavailable"), told
        assert int(headers["Retry-After"]) > 0
        return status

    def projects(self) -> int:
        row = self.database.execute("SELECT count(*) FROM projects_project").fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    folder: Path = tmp_path_factory.mktemp("data")
    with lend_postgres_database() as url, psycopg.connect(url, autocommit=True) as database:
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), "shell", "--verbosity=0", "-c", MAKE],
            env=web_environment(
                folder, DATABASE_URL=url, DJANGO_SETTINGS_MODULE="crawlyard.settings.base"
            ),
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        with web_process(folder, DATABASE_URL=url) as process:
            yield Web(process.port, done.stdout.split()[-1], database)


@contextmanager
def read_only(web: Web) -> Iterator[None]:
    """As a standby is, also for the connections that there are."""
    name = web.database.info.dbname
    web.database.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    web.database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    try:
        yield
    finally:
        web.database.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        web.database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def until_it_writes(web: Web) -> float:
    began = time.monotonic()
    while (answer := web.write())[0] != 201:
        assert answer[0] == 503, answer
        assert time.monotonic() - began < 60, answer
        time.sleep(0.1)
    return time.monotonic() - began


def test_a_database_that_only_reads_is_503_and_not_500(web: Web, measured: Measured) -> None:
    until_it_writes(web)
    before = web.projects()
    with read_only(web):
        said = [web.check_unavailable() for _ in range(10)]
        # What is there can still be read.
        assert web.ask("GET", "/api/v1/projects")[0] == 200
    assert web.projects() == before
    back_s = until_it_writes(web)
    measured(back_s=back_s, note=f"{said.count(503)} of {len(said)} calls 503")
    assert web.projects() == before + 1


def test_a_table_that_somebody_locks_is_503_and_not_a_request_that_hangs(
    web: Web, measured: Measured
) -> None:
    until_it_writes(web)
    before = web.projects()
    with web.database.transaction():
        web.database.execute("LOCK TABLE projects_project IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        status = web.check_unavailable()
        waited = time.monotonic() - began
    measured(back_s=until_it_writes(web), note=f"{status} after {waited:.1f} s")
    # The web's lock_timeout, and not whatever a proxy before it has.
    assert waited < 30
    assert web.projects() == before + 1
