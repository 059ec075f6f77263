"""The last lines of a build whose worker finds no broker: the database sends them later."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import LazySettings

from apps.projects.engine.builder import BuildLog
from apps.projects.services import build_worker
from apps.runtime.models import OutboxMessage
from tests.projects.build_factories import make_build
from yardkit.protocol import LogBatch, decode


def test_what_could_not_be_sent_is_handed_over_once() -> None:
    log = BuildLog(stream="build:3", boot="b1", send=lambda _batch: False)
    log.write("".join(f"line {n}\n" for n in range(1, 1202)), source="build")
    log.close(0)
    rest = log.rest()
    assert [len(batch.lines) for batch in rest] == [500, 500, 201]
    assert [line.seq for batch in rest for line in batch.lines] == list(range(1, 1202))
    assert log.rest() == []


def test_a_count_that_was_not_told_is_handed_over_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.projects.engine.builder.logs.MAX_WAITING", 2)
    log = BuildLog(stream="build:3", boot="b1", send=lambda _batch: False)
    log.write("one\ntwo\nthree\n", source="build")
    (rest,) = log.rest()
    assert ([line.text for line in rest.lines], rest.dropped) == (["one", "two"], 1)


@pytest.mark.django_db(transaction=True)
def test_the_last_lines_wait_in_the_outbox_while_the_broker_is_away(
    monkeypatch: pytest.MonkeyPatch, settings: LazySettings, tmp_path: Any
) -> None:
    settings.BUILDS_DIR = str(tmp_path)
    monkeypatch.setattr(build_worker, "LAST_LINES_SECONDS", 0.0)
    monkeypatch.setattr(build_worker, "send_lines", lambda _batch: False)
    monkeypatch.setattr(build_worker, "tidy", lambda *_arguments, **_options: 0)
    monkeypatch.setattr("apps.runtime.services.outbox.wake_relay", lambda: None)

    def build_image(*_arguments: Any, log: BuildLog, **_options: Any) -> None:
        log.write("step 1\nstep 2\n", source="build")
        raise RuntimeError("out of patience")

    monkeypatch.setattr(build_worker, "build_image", build_image)
    build = make_build()
    assert build_worker.work_on_build(build_id=build.pk, worker="w1") == "failed"
    batches = [decode(one.body) for one in OutboxMessage.objects.filter(key="logs")]
    texts = [line.text for one in batches if isinstance(one, LogBatch) for line in one.lines]
    assert texts[:2] == ["step 1", "step 2"]
    assert "out of patience" in texts[-1]
