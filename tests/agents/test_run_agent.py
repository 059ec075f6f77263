"""manage.py run_agent becomes the agent, with the broker's address and nothing else of ours."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.e2e.daemon_processes import Daemons


@pytest.mark.slow("3 s")
def test_settings_may_be_files_and_stores_are_kept_back(tmp_path: Path) -> None:
    """As compose starts it: addresses are files, and those of the stores are of no use to it."""
    broker = tmp_path / "broker_url"
    broker.write_text(f"sqlite:///{tmp_path / 'broker.sqlite3'}")
    daemons = Daemons(
        tmp_path / "agent",
        BROKER_URL_FILE=str(broker),
        REQUESTS_URL=f"sqlite:///{tmp_path / 'requests'}",
        SECRET_KEY="k3y-0f-a-test-" + "".join(map(chr, range(97, 123))),
        SECRETBOX_KEYS_FILE=str(tmp_path / "keys"),
        EMAIL_URL="smtp://me:canary@mail.example",
        METRICS_TOKEN="canary-of-metrics-1",
        AWS_SECRET_ACCESS_KEY="canary",
        OBJECTS_ACCESS_KEY="canary",
        OBJECTS_SECRET_KEY="canary",
        ROUTING_PLACEHOLDERS='{"password": "canary"}',
        AGENT_PROXIES="http://me:mine@proxy.example:3128",
        LOG_LEVEL="INFO",
    )
    (tmp_path / "keys").write_text("A" * 43 + "=")
    try:
        process = daemons.start("agent", "run_agent", "--id", "one", "--name", "one")
        daemons.until_logged("agent", "serves")
        environment = psutil.Process(process.pid).environ()
    finally:
        daemons.end()
    assert environment["BROKER_URL"] == broker.read_text()
    assert environment["LOG_LEVEL"] == "INFO"
    assert environment["AGENT_PROXIES"] == "http://me:mine@proxy.example:3128"
    kept_back = {"BROKER_URL_FILE", "REQUESTS_URL", "SECRET_KEY", "SECRETBOX_KEYS_FILE"}
    assert kept_back.isdisjoint(environment)
    assert [name for name, value in environment.items() if "canary" in value] == []
