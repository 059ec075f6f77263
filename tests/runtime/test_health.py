"""/healthz and /readyz."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client, override_settings

from apps.runtime.services import close_shared_broker
from tests.plugins.measurements import Measured
from tests.runtime.processes import Place

pytestmark = pytest.mark.urls("apps.runtime.urls")


@pytest.fixture(autouse=True)
def own_broker(sqlite_broker_url: str) -> Iterator[None]:
    with override_settings(BROKER_URL=sqlite_broker_url, ALLOWED_HOSTS=["testserver"]):
        yield
        close_shared_broker()


def test_alive_needs_nothing_and_nobody(client: Client) -> None:
    # No database is allowed in this test, and no broker is there.
    with override_settings(BROKER_URL="amqp://nobody:nothing@127.0.0.1:1/"):
        answer = client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok"}
    assert "no-store" in answer.headers["Cache-Control"]
    assert client.post("/healthz").status_code == 405


@pytest.mark.django_db
def test_ready_names_every_store(client: Client) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 200, answer.content
    assert answer.json() == {
        "status": "ok",
        "checks": {"database": "ok", "broker": "ok", "cache": "ok", "disk": "ok"},
        "queues": {},
    }
    assert client.head("/readyz").status_code == 200


@pytest.mark.fault
@pytest.mark.django_db
def test_a_broker_that_is_away_is_named_and_no_secret_with_it(
    client: Client, measured: Measured
) -> None:
    with override_settings(BROKER_URL="amqp://ops:s3cret@127.0.0.1:1/"):
        began = time.monotonic()
        answer = client.get("/readyz")
    measured(note=f"/readyz says {answer.status_code} after {time.monotonic() - began:.1f} s")
    assert answer.status_code == 503
    checks = answer.json()["checks"]
    assert checks["broker"] != "ok"
    assert (checks["database"], checks["cache"]) == ("ok", "ok")
    assert "s3cret" not in answer.content.decode()
    assert "127.0.0.1" not in answer.content.decode()
    assert answer.headers["Retry-After"]


@pytest.mark.django_db
def test_a_cache_that_is_away_is_named(client: Client) -> None:
    caches = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": "redis://:s3cret@127.0.0.1:1/0",
        }
    }
    with override_settings(CACHES=caches):
        answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["cache"] == "no connection"
    assert "s3cret" not in answer.content.decode()


@pytest.mark.django_db(transaction=True)
def test_a_database_that_lacks_migrations_is_not_ready(client: Client) -> None:
    from django.db import connection

    recorder = MigrationRecorder(connection)
    recorder.record_unapplied("runtime", "0001_initial")
    try:
        answer = client.get("/readyz")
    finally:
        recorder.record_applied("runtime", "0001_initial")
    assert answer.status_code == 503
    assert answer.json()["checks"]["database"] == "1 migrations are not applied"


@pytest.mark.slow("3 s")
def test_a_database_that_is_away_is_named_and_no_secret_with_it(place: Place) -> None:
    done = place.python(
        """
from django.test import Client
answer = Client().get("/readyz", headers={"host": "localhost"})
print(answer.status_code, answer.content.decode())
""",
        DATABASE_URL="postgresql://ops:s3cret@127.0.0.1:1/crawlyard",
    )
    status, body = done.stdout.split(" ", 1)
    assert status == "503", done.stderr
    assert json.loads(body)["checks"] == {
        "database": "no connection",
        "broker": "ok",
        "cache": "ok",
        "disk": "ok",
    }
    assert "s3cret" not in done.stdout + done.stderr
