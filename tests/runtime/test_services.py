"""The same tests again on PostgreSQL and RabbitMQ, and what only those can show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.processes import ROOT

FOLDER = Path(__file__).parent
AGAIN = (
    "test_daemons",
    "test_dead_letters",
    "test_fields",
    "test_health",
    "test_housekeeping",
    "test_leases",
    "test_outbox",
    "test_processed",
    "on_postgres",
)


@pytest.mark.slow("15 s")
@pytest.mark.services
@pytest.mark.timeout(300)
def test_everything_holds_on_postgresql_and_rabbitmq(
    postgres_database: str, new_rabbit_vhost: str
) -> None:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.runtime.settings_alone",
        "DATABASE_URL": postgres_database,
        "CRAWLYARD_TEST_RUNTIME_BROKER_URL": new_rabbit_vhost,
    }
    files = [str(FOLDER / f"{name}.py") for name in AGAIN]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
