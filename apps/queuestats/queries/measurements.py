"""Current values of all metrics, keyed by series, and current states of all queues."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from django.conf import settings

from apps.queuestats.models import LABEL_CHARACTERS
from apps.queuestats.queries.series import SeriesKey
from yardkit import metrics, queues
from yardkit.metrics import MetricSample
from yardkit.queues import QueueReading

# Readings are cached for this long.
FRESH_SECONDS: Final = 2.0
PROJECT: Final = "project"


@dataclass(frozen=True, slots=True)
class Measurements:
    """Gauges and counters by series, and queue states, read at one time."""

    gauges: dict[SeriesKey, float]
    counters: dict[SeriesKey, float]
    queues: list[QueueReading]


def measure() -> Measurements:
    """Read every metric and queue. Waits for servers: do not call it inside a transaction."""
    gauges: dict[SeriesKey, float] = {}
    counters: dict[SeriesKey, float] = {}
    for sample in metrics.snapshot():
        values = gauges if sample.kind == "gauge" else counters
        values[key_of(sample)] = sample.value
    return Measurements(gauges, counters, read_queues())


def key_of(sample: MetricSample) -> SeriesKey:
    """Return the series of a metric sample; labels other than the project are joined into one."""
    labels = dict(sample.labels)
    project = labels.pop(PROJECT, "")
    return SeriesKey(sample.name, int(project) if project else None, label_of(labels.values()))


def label_of(words: Iterable[str]) -> str:
    """Join words into one label; a label that is too long is truncated and ends in a digest."""
    label = " ".join(words).replace("\0", "")
    if len(label) <= LABEL_CHARACTERS:
        return label
    return f"{label[: LABEL_CHARACTERS - 17]}~{hashlib.sha256(label.encode()).hexdigest()[:16]}"


def read_queues() -> list[QueueReading]:
    """Return the state of every queue, at most 2 s old: several metrics need it at once."""
    with _lock:
        # Tests change the broker, which has other queues.
        url = str(settings.BROKER_URL)
        if _cached.url != url or time.monotonic() - _cached.at > FRESH_SECONDS:
            _cached.readings = queues.snapshot()
            _cached.at, _cached.url = time.monotonic(), url
        return list(_cached.readings)


class _CachedQueues:
    readings: list[QueueReading]
    at = float("-inf")
    url = ""


_cached = _CachedQueues()
_lock = threading.Lock()
