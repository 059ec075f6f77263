"""What a spider or a container writes stays one line and does nothing, wherever it is shown."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests
from asgiref.sync import async_to_sync
from django.test import AsyncClient, Client
from django.urls import reverse

from apps.access.models import User
from apps.access.states import Role
from apps.joblogs.daemon import LogDaemon
from apps.jobs.models import Run
from apps.jobs.runners import docker_log
from apps.jobs.runners.log_shipper import LogShipper
from apps.jobs.runners.log_sources import FileLog, LogSource
from tests.access.factories import Api, make_user
from tests.jobs.factories import make_run
from yardkit import topology
from yardkit.broker import Broker, connect
from yardkit.clock import SystemClock

pytestmark = pytest.mark.django_db(transaction=True)
# "mark" is in all of them, to find them by.
NASTY = [
    "mark nul \x00 bell \x07 back \x08 escape \x1b end",
    "mark \x1b[31mred\x1b[0m \x1b[2J\x1b[H \x1b]0;title\x07 \x1b]8;;http://evil\x1b\\link",
    "mark over\r2026-03-01 12:00:00.000Z ERROR bank: forged",
    "mark \u2028 2026-03-01 12:00:00.000Z ERROR bank: forged \u2029 \x85 \x0b \x0c",
    "mark \u202egnp.exe \u2066 turned \u2069",
    '<script>alert("mark")</script><img src=x onerror=alert(1)> &lt;b&gt; {{ mark }} {% if %}',
    "mark'\"><svg/onload=alert(1)>",
    "mark \x9b31m eight-bit escapes \x9d0;title\x9c",
]
SPIDER = """
import json, logging, sys
from yardspider.cli import _set_up_logging
_set_up_logging(quiet=False)
for text in json.loads(sys.argv[1]):
    logging.getLogger("spider").info("%s", text)
"""


@pytest.fixture
def broker(sqlite_broker_url: str) -> Iterator[Broker]:
    broker = connect(sqlite_broker_url, name="test")
    broker.declare(*topology.SHARED)
    yield broker
    broker.close()


@pytest.fixture
def run() -> Run:
    return make_run()


def by_the_sdk(folder: Path) -> LogSource:
    """Through the SDK's own logging, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SPIDER, json.dumps(NASTY)], capture_output=True, check=True
    )
    return in_a_file(folder, done.stderr)


def printed(folder: Path) -> LogSource:
    """As it is, by ``print`` of a process."""
    return in_a_file(folder, "".join(f"{text}\n" for text in NASTY).encode())


def in_a_file(folder: Path, content: bytes) -> LogSource:
    path = folder / "log.txt"
    path.write_bytes(content)
    return FileLog(path)


def by_a_container(_folder: Path) -> LogSource:
    """In the frames of a Docker Engine, some of which break a line in two."""
    frames = b""
    for text in NASTY:
        line = f"{text}\n".encode()
        for piece in (line[:9], line[9:]):
            frame = b"2026-03-01T12:00:00.000000000Z " + piece
            frames += struct.pack(">BxxxL", 1, len(frame)) + frame
    lines = list(docker_log._lines(cast(requests.Response, SimpleNamespace(raw=_Raw(frames)))))

    class Read:
        ended = True

        def read(self, *, last: bool = False) -> list[Any]:
            found, lines[:] = list(lines), []
            return found

        def close(self) -> None:
            """Nothing is open."""

    return Read()


class _Raw:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, size: int) -> bytes:
        found, self._content = self._content[:size], self._content[size:]
        return found


SOURCES = pytest.mark.parametrize("source", [by_the_sdk, printed, by_a_container])


def ship(broker: Broker, run: Run, source: LogSource) -> None:
    """Source, shipper, queue, ingester, store."""
    shipper = LogShipper(broker)
    shipper.follow(run=run.pk, boot="b1", source=source)
    shipper.finish(run=run.pk)
    daemon = LogDaemon(broker=broker, clock=SystemClock())
    daemon.setup()
    deadline = time.monotonic() + 60
    while True:
        shipper.step()
        daemon.step()
        depth = broker.depth(topology.LOGS.name)
        if shipper.idle and depth.ready == depth.unacked == 0:
            break
        assert time.monotonic() < deadline
    daemon.teardown()


def is_inert(text: str) -> bool:
    """No character does anything to a terminal or to the order of others."""
    return not any(unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") for one in text) and (
        re.search("[\u202a-\u202e\u2066-\u2069]", text) is None
    )


@pytest.mark.slow("1 s")
@SOURCES
def test_each_stays_one_line_that_does_nothing(
    broker: Broker, run: Run, tmp_path: Path, source: Any
) -> None:
    ship(broker, run, source(tmp_path))
    viewer = make_user(roles={run.job.project: Role.VIEWER})
    lines = Api(viewer).call("get", f"/api/v1/runs/{run.pk}/logs").json()["results"]
    assert len(lines) == len(NASTY)
    for line in lines:
        assert "mark" in line["text"]
        assert is_inert(line["text"] + line["source"] + line["level"])
    # A forged beginning is a part of its line, and no level or source of another.
    assert {line["level"] for line in lines} <= {"", "INFO"}
    assert "bank" not in {line["source"] for line in lines}

    kind, text = async_to_sync(downloaded)(run, viewer)
    assert kind.startswith("text/plain")
    assert len(text.splitlines()) == len(NASTY)
    assert all(is_inert(line) for line in text.splitlines())


async def downloaded(run: Run, user: User) -> tuple[str, str]:
    """Content type and text of the whole log."""
    client = AsyncClient()
    await client.aforce_login(user)
    answer: Any = await client.get(f"/api/v1/runs/{run.pk}/logs/download")
    assert answer["X-Content-Type-Options"] == "nosniff"
    parts = [part async for part in answer.streaming_content]
    return answer["Content-Type"], b"".join(parts).decode()


@pytest.mark.slow("2 s")
@SOURCES
def test_no_page_takes_it_for_its_own(
    broker: Broker, run: Run, tmp_path: Path, source: Any, client: Client
) -> None:
    ship(broker, run, source(tmp_path))
    viewer = make_user(roles={run.job.project: Role.VIEWER}, is_staff=True)
    client.force_login(viewer)
    for address in (reverse("joblogs:search") + "?q=mark", reverse("joblogs:search")):
        page = client.get(address).content.decode()
        shown = [line for line in page.splitlines() if "mark" in line]
        assert len(shown) >= len(NASTY)
        assert "<script>alert" not in page
        assert "<svg/onload" not in page
        assert "<img src=x" not in page
        assert "{{ mark }}" in page
        assert all(is_inert(line) for line in page.replace("\t", "").splitlines())
