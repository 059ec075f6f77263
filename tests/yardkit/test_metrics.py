"""The registry of metrics."""

from __future__ import annotations

import logging
import threading

import pytest

from yardkit import metrics
from yardkit.metrics import MetricSample, Registry


def test_gauges_and_counters() -> None:
    registry = Registry()
    registry.gauge("uptime_seconds", "since start", read=lambda: 12.5)
    registry.gauge("queue_ready", "waiting", ["queue"], read=lambda: {("a",): 1, ("b",): 2})
    level = registry.gauge("level", "set by hand")
    sent = registry.counter("sent", "messages", ["queue"])
    level.set(3)
    sent.inc(queue="a")
    sent.inc(2, queue="a")
    assert registry.snapshot() == [
        MetricSample("uptime_seconds", "gauge", "since start", 12.5),
        MetricSample("queue_ready", "gauge", "waiting", 1, {"queue": "a"}),
        MetricSample("queue_ready", "gauge", "waiting", 2, {"queue": "b"}),
        MetricSample("level", "gauge", "set by hand", 3),
        MetricSample("sent", "counter", "messages", 3, {"queue": "a"}),
    ]


def test_the_same_name_is_the_same_metric() -> None:
    registry = Registry()
    assert registry.counter("sent", "x", ["queue"]) is registry.counter("sent", "x", ["queue"])
    with pytest.raises(ValueError, match="metric sent exists"):
        registry.counter("sent", "x")
    with pytest.raises(ValueError, match="metric sent exists"):
        registry.gauge("sent", "x", ["queue"])


def test_misuse_is_refused() -> None:
    registry = Registry()
    sent = registry.counter("sent", "x", ["queue"])
    with pytest.raises(ValueError, match="labels"):
        sent.inc(host="a")
    with pytest.raises(ValueError, match="cannot fall"):
        sent.inc(-1, queue="a")
    with pytest.raises(ValueError, match="cannot be set"):
        sent.set(1, queue="a")


def test_one_that_cannot_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry()
    registry.gauge("broken", "x", read=lambda: 1 / 0)
    registry.gauge("odd", "x", ["queue"], read=lambda: 1.0)
    registry.gauge("fine", "x", read=lambda: 1)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert [sample.name for sample in registry.snapshot()] == ["fine"]
    assert [record.getMessage() for record in caplog.records] == [
        "reading metric broken fails and is retried: division by zero",
        "reading metric odd fails and is retried: zip() argument 2 is shorter than argument 1",
    ]


def test_threads_lose_no_count() -> None:
    sent = Registry().counter("sent", "x")
    threads = [threading.Thread(target=lambda: [sent.inc() for _ in range(2000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sent.samples()[0].value == 8000


def test_the_process_has_one_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    # It is forgotten afterwards: other tests look at what the product has.
    registry = metrics._registry
    monkeypatch.setattr(registry, "_metrics", dict(registry._metrics))
    monkeypatch.setattr(registry, "_sources", list(registry._sources))
    metrics.counter("test_metrics_total", "of this test").inc()
    assert "test_metrics_total" in [sample.name for sample in metrics.snapshot()]
