"""Tasks are sent after the commit, by a thread, whatever the broker does meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from django.db import transaction

from apps.runtime import deferral
from apps.runtime.deferral import defer
from apps.runtime.engine.background import BackgroundWorker
from tests.runtime.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _nothing_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(deferral, "RETRY_SECONDS", 0.05)
    # The thread of earlier tests may still be busy with what those have left.
    worker = BackgroundWorker("deferred-tasks", deferral._send_waiting)
    monkeypatch.setattr(deferral, "_worker", worker)
    deferral._waiting.clear()
    yield
    deferral._waiting.clear()
    worker.stop(0)


def application(url: str, **options: Any) -> Celery:
    app = Celery("test", broker=url, set_as_current=False)
    app.conf.update(broker_transport_options=options, broker_connection_timeout=3.0)
    return app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Messages as files, one each."""
    options = {"data_folder_in": str(tmp_path), "data_folder_out": str(tmp_path)}
    app = application("filesystem://localhost", control_folder=str(tmp_path / "c"), **options)
    monkeypatch.setattr(deferral, "_celery", lambda: app)
    return tmp_path


def messages(folder: Path) -> int:
    return len(list(folder.glob("*.q1.msg")))


def test_a_task_is_sent_when_the_transaction_commits(folder: Path) -> None:
    with transaction.atomic():
        defer("some.task", queue="q1", number=1)
        assert not deferral._waiting
    wait_for(lambda: messages(folder) == 1, "the message")


def test_what_is_rolled_back_is_not_sent(folder: Path) -> None:
    with transaction.atomic():
        defer("some.task", queue="q1")
        transaction.set_rollback(True)
    defer("some.task", queue="q1")
    wait_for(lambda: messages(folder) == 1 and not deferral._waiting, "the one message")


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}, b"x"])
def test_what_nothing_can_carry_is_refused_at_once(folder: Path, value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        defer("some.task", queue="q1", value=value)
    assert not deferral._waiting


@pytest.mark.slow("6 s")
def test_a_broker_that_hangs_holds_nobody_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = deferral._celery()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"amqp://guest:guest@127.0.0.1:{silent.getsockname()[1]}//"
        broken = application(url)
        monkeypatch.setattr(deferral, "_celery", lambda: broken)
        for number in range(3):
            defer("some.task", queue="q1", number=number)
        # This returned; the thread is still waiting for a greeting that does not come.
        connection, _address = silent.accept()
        assert len(deferral._waiting) == 2
        monkeypatch.setattr(deferral, "_celery", lambda: filesystem)
    connection.close()
    wait_for(lambda: messages(folder) == 3, "all three, in the end")


@pytest.mark.slow("6 s")
def test_a_broker_that_is_away_costs_no_task(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    filesystem = deferral._celery()
    monkeypatch.setattr(deferral, "_celery", lambda: application("amqp://guest:x@127.0.0.1:1//"))
    defer("some.task", queue="q1")
    wait_for(lambda: "tasks wait for the broker" in caplog.text, "the warning")
    wait_for(lambda: len(deferral._waiting) == 1, "it waits for the next try")
    monkeypatch.setattr(deferral, "_celery", lambda: filesystem)
    wait_for(lambda: messages(folder) == 1, "the message")


def test_the_oldest_go_when_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferral, "_celery", lambda: application("amqp://guest:x@127.0.0.1:1//"))
    count = deferral.WAITING_TASKS + 5
    for number in range(count):
        defer("some.task", queue="q1", number=number)
    # A copy: the thread takes one out and puts it back meanwhile.
    waiting = deferral._waiting.copy()
    numbers = [arguments["number"] for _name, _queue, arguments in waiting]
    # One of them the thread may just hold in its hands.
    assert count - len(numbers) in (5, 6)
    assert numbers == list(range(count - len(numbers), count))
