"""manage.py doctor against real and missing stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.daemon_processes import Daemons

pytestmark = pytest.mark.slow("a dozen commands of manage.py")

RULES = """
from apps.configcenter.services import activate, save_version
from apps.projects.models import Project
from django.utils import timezone
project = Project.objects.create(slug="ic", name="ic")
data = {"version": 1, "needs": 1, "project": "ic"}
saved = save_version(
    kind="routing", project_id=project.pk, data=data, actor=None, now=timezone.now()
)
activate(version=saved.version, actor=None, now=timezone.now())
"""


@pytest.fixture
def daemons(tmp_path: Path) -> Daemons:
    return Daemons(tmp_path)


def test_a_laptop_after_migrate_is_all_right(daemons: Daemons) -> None:
    before = daemons.manage("doctor", status=1)
    assert "run manage.py migrate" in before.stdout
    daemons.manage("migrate", "-v0")
    after = daemons.manage("doctor")
    assert "BAD" not in after.stdout
    assert {line.split()[1] for line in after.stdout.splitlines()} >= {
        "DATABASE_URL",
        "BROKER_URL",
        "REDIS_URL",
        "REQUESTS_URL",
        "LOGS_URL",
        "RUNNER_URL",
    }


def test_stores_that_are_away_are_named_with_a_way_to_mend_them(daemons: Daemons) -> None:
    done = daemons.manage(
        "doctor",
        "--json",
        status=1,
        DATABASE_URL="postgresql://u:canary@127.0.0.1:9/x",
        BROKER_URL="amqp://guest:canary@127.0.0.1:9/",
        REDIS_URL="redis://:canary@127.0.0.1:9/0",
        RUNNER_URL="teleport://x",
        REQUESTS_URL="postgresql://u:canary@127.0.0.1:9/x",
        LOGS_URL="postgresql://u:canary@127.0.0.1:9/x",
        REQUESTS_NODES="far=mongodb://u:canary@127.0.0.1:9,127.0.0.1:10/?replicaSet=rs0",
    )
    findings = {row["setting"]: row for row in json.loads(done.stdout)}
    for setting in (
        "DATABASE_URL",
        "BROKER_URL",
        "REDIS_URL",
        "RUNNER_URL",
        "REQUESTS_URL",
        "REQUESTS_NODES far",
        "LOGS_URL",
    ):
        assert not findings[setting]["ok"], findings[setting]
        assert findings[setting]["how"]
    assert "canary" not in done.stdout + done.stderr
    assert findings["CRAWLYARD_DATA"]["ok"]


@pytest.mark.services
def test_real_servers_are_connected_to(
    daemons: Daemons, postgres_database: str, rabbit_vhost: str, redis_url: str
) -> None:
    environment = {
        "DATABASE_URL": postgres_database,
        "BROKER_URL": rabbit_vhost,
        "REDIS_URL": redis_url,
        "REQUESTS_URL": postgres_database,
        "REQUESTS_NODES": f"second={postgres_database}",
    }
    done = daemons.manage("doctor", "--json", **environment)
    assert all(row["ok"] for row in json.loads(done.stdout))


def test_active_rules_need_a_router(daemons: Daemons) -> None:
    daemons.migrate()
    daemons.manage("shell", "-v0", "-c", RULES)
    findings = json.loads(daemons.manage("doctor", "--json", status=1).stdout)
    (said,) = [row for row in findings if not row["ok"]]
    assert said["setting"] == "Router"
    assert "run_router" in said["how"]


def test_enabled_bizzes_need_a_fetcher(daemons: Daemons, tmp_path: Path) -> None:
    daemons.migrate()
    make = 'from apps.projects.models import Project; Project.objects.create(name="a", slug="a")'
    daemons.manage("shell", "-v0", "-c", make)
    file = tmp_path / "bizzes.json"
    for enabled, status in ((False, 0), (True, 1)):
        file.write_text(json.dumps({"bizzes": {"news": {"enabled": enabled}}}))
        daemons.manage("config", "apply", "biz", str(file), "--project", "a")
        findings = json.loads(daemons.manage("doctor", "--json", status=status).stdout)
        said = [row for row in findings if not row["ok"]]
        assert [row["setting"] for row in said] == (["Fetcher"] if enabled else [])
    assert said[0]["detail"] == "fetchers: 0, enabled bizzes: 1"
    assert "run_fetcher" in said[0]["how"]


def test_enabled_sources_need_a_collector(daemons: Daemons, tmp_path: Path) -> None:
    daemons.migrate()
    make = 'from apps.projects.models import Project; Project.objects.create(name="a", slug="a")'
    daemons.manage("shell", "-v0", "-c", make)
    source = {"kind": "json", "base_url": "https://api.example/items", "filter_days": 0}
    file = tmp_path / "sources.json"
    for enabled, status in ((False, 0), (True, 1)):
        file.write_text(json.dumps({"sources": {"items": {**source, "enabled": enabled}}}))
        daemons.manage("config", "apply", "sources", str(file), "--project", "a")
        findings = json.loads(daemons.manage("doctor", "--json", status=status).stdout)
        said = [row for row in findings if not row["ok"]]
        assert [row["setting"] for row in said] == (["Collector"] if enabled else [])
    assert said[0]["detail"] == "collectors: 0, enabled sources: 1"
    assert "run_collector" in said[0]["how"]
