"""What a daemon tells in its row beside the steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from apps.runtime.daemon import HeartbeatRow, Identity
from apps.runtime.management.status_table import status_table
from apps.runtime.models import Daemon
from yardkit.heartbeat import Beat

pytestmark = pytest.mark.django_db


def sign(error: str) -> Beat:
    return Beat(
        name="one",
        boot="b",
        host="h",
        pid=1,
        state="running",
        at=time.time(),
        steps=3,
        failures=0,
        error=error,
    )


def tell(detail: Any, error: str = "") -> Mapping[str, Any]:
    """What the row says after a sign of life."""
    row = HeartbeatRow(Identity("sample", "one"), on_replaced=lambda: None, detail=detail)
    row.start()
    row.note(sign(error))
    row.finish(failed=False)
    told: dict[str, Any] = Daemon.objects.get(kind="sample").detail
    # What other tests of this process have received.
    told.pop("settled", None)
    return told


def test_a_daemon_tells_more() -> None:
    assert tell(lambda: {"away": {"news": "no queue"}}) == {
        "away": {"news": "no queue"},
        "steps": 3,
        "failures": 0,
        "error": "",
    }
    assert "news: no queue" in status_table("sample")[0]


def test_an_error_of_a_step_comes_first() -> None:
    tell(lambda: {"away": {"news": "no queue"}}, "OSError: broken")
    table = status_table("sample")[0]
    assert "OSError: broken" in table
    assert "no queue" not in table


def test_one_that_cannot_tell_is_alive_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Mapping[str, Any]:
        raise RuntimeError("a defect")

    assert tell(broken)["steps"] == 3
    assert "is not known" in caplog.text


def test_heartbeats_go_on_after_an_unforeseen_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """``RuntimeError`` stands for a defect in what is written with each heartbeat."""
    twice = threading.Semaphore(0)

    def failing() -> dict[str, int]:
        twice.release()
        raise RuntimeError("a defect")

    monkeypatch.setattr("apps.runtime.daemon.threads_share_database", lambda: True)
    monkeypatch.setattr("apps.runtime.daemon.traffic.counts", failing)
    row = HeartbeatRow(Identity("sample", "one"), on_replaced=lambda: None)
    row.start()
    try:
        assert twice.acquire(timeout=10)
        assert twice.acquire(timeout=10)
    finally:
        row.finish(failed=False, timeout=10)
    assert "thread heartbeat failed" in caplog.text
    assert "heartbeat" not in {thread.name for thread in threading.enumerate()}
