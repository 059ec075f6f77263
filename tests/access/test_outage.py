"""Without a database every request gets a clear answer: 503, and when to come back."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.measurements import Measured

ROOT = Path(__file__).resolve().parents[2]
# Asked in a process of its own, because the database is a setting.
SCRIPT = """
import asyncio, json, django
django.setup()
from django.test import AsyncClient, Client
session = {"Cookie": "sessionid=" + "a" * 32}
token = {"Authorization": "Bearer cy_abc_def"}
asked = [("/api/v1/me", token), ("/api/v1/me", session), ("/admin/", session)]
answers = []
for path, headers in asked:
    client = Client(raise_request_exception=False)
    answers.append(client.get(path, headers=headers))
async def ask():
    client = AsyncClient(raise_request_exception=False)
    return await client.get("/api/v1/me", headers=session)
answers.append(asyncio.run(ask()))
print(json.dumps([[a.status_code, dict(a.headers), a.content.decode()] for a in answers]))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}",
        "DJANGO_SETTINGS_MODULE": "crawlyard.settings.testing",
        "CRAWLYARD_TEST_DATA": str(tmp_path_factory.mktemp("data")),
        "DATABASE_URL": f"postgresql://nobody@127.0.0.1:{port}/nothing",
        "ALLOWED_HOSTS": "testserver",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.fault
def test_rest_says_that_it_is_unavailable(answers: list[Any], measured: Measured) -> None:
    by_token, by_session, _page, in_async = answers
    refused = [each[0] == 503 for each in (by_token, by_session, in_async)]
    measured(note=f"REST: {sum(refused)} of {len(refused)} calls 503")
    for status, headers, text in (by_token, by_session, in_async):
        assert status == 503
        assert int(headers["Retry-After"]) > 0
        body = json.loads(text)
        assert set(body) == {"code", "detail", "fields", "request_id"}
        assert body["code"] == "unavailable"
        assert body["request_id"] == headers["X-Request-Id"]


@pytest.mark.fault
def test_pages_say_so_too(answers: list[Any], measured: Measured) -> None:
    status, headers, text = answers[2]
    measured(note=f"a page: {status}")
    assert status == 503
    assert int(headers["Retry-After"]) > 0
    assert "does not answer" in text
