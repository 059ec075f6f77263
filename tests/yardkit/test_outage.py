"""Back-off, and one line in the log for each end of an outage."""

from __future__ import annotations

import logging

import pytest

from yardkit.backoff import Backoff, back_off
from yardkit.outage import Outage

logger = logging.getLogger("tests.outage")


def test_an_outage_is_two_lines_however_often_the_work_is_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    outage = Outage(logger, "outbox relay", first=1.0, longest=4.0)
    outage.recovered()
    assert not caplog.records
    pauses = [outage.failed(OSError("connection refused\nmore")) for _ in range(8)]
    assert outage.lasting
    assert outage.failures == 8
    assert outage.error == "connection refused"
    outage.recovered()
    outage.recovered()
    assert [record.getMessage() for record in caplog.records] == [
        "outbox relay fails and is retried: connection refused",
        "outbox relay works again",
    ]
    assert 0.5 <= pauses[0] <= 1.0
    assert all(2.0 <= pause <= 4.0 for pause in pauses[2:])
    assert not outage.lasting
    assert 0.5 <= outage.failed(OSError("again")) <= 1.0


def test_a_back_off_doubles_and_starts_again_after_a_success() -> None:
    backoff = Backoff(1.0, 10.0)
    for whole in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        assert whole / 2 <= backoff.seconds() <= whole
    backoff.reset()
    assert 0.5 <= backoff.seconds() <= 1.0
    assert back_off(10**9, 1.0, 30.0) <= 30.0
