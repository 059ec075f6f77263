"""``manage.py up`` tells its address."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon_processes import Daemons
from tests.e2e.demo_process import free_port

pytestmark = pytest.mark.slow("a whole installation")


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    found = Daemons(tmp_path)
    found.migrate()
    yield found
    found.end()


def test_the_address_is_told_once_it_can_be_opened(daemons: Daemons) -> None:
    port = free_port()
    daemons.start("up", "up", "--port", str(port), "--agents", "0")
    address = f"http://127.0.0.1:{port}/"
    daemons.until_logged("up", f"{address}  Ctrl-C stops")
    with urllib.request.urlopen(f"{address}healthz", timeout=10) as answer:  # noqa: S310 - our own
        assert answer.status == 200
    assert daemons.log("up").count("Ctrl-C stops") == 1
