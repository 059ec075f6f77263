"""What is measured now, as series: their keys, and the queues they are about."""

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

# Whoever asks within this time gets the same answer.
FRESH_SECONDS: Final = 2.0
PROJECT: Final = "project"


@dataclass(frozen=True, slots=True)
class Measurements:
    """All numbers of one moment: gauges and counters by series, and the queues themselves."""

    gauges: dict[SeriesKey, float]
    counters: dict[SeriesKey, float]
    queues: list[QueueReading]


def measure() -> Measurements:
    """Ask every metric and every queue. Servers are waited for: not inside a transaction."""
    gauges: dict[SeriesKey, float] = {}
    counters: dict[SeriesKey, float] = {}
    for sample in metrics.snapshot():
        into = gauges if sample.kind == "gauge" else counters
        into[key_of(sample)] = sample.value
    return Measurements(gauges, counters, read_queues())


def key_of(sample: MetricSample) -> SeriesKey:
    """Which series a number belongs to: a project, and at most one label beside it."""
    labels = dict(sample.labels)
    project = labels.pop(PROJECT, "")
    return SeriesKey(sample.name, int(project) if project else None, label_of(labels.values()))


def label_of(words: Iterable[str]) -> str:
    """One label; one that is too long for a series ends in a digest of itself."""
    label = " ".join(words).replace("\0", "")
    if len(label) <= LABEL_CHARACTERS:
        return label
    return f"{label[: LABEL_CHARACTERS - 17]}~{hashlib.sha256(label.encode()).hexdigest()[:16]}"


def read_queues() -> list[QueueReading]:
    """Every queue, at most 2 s old: metrics and the page of queues ask at the same moment."""
    with _lock:
        # Tests change the broker; another one has other queues.
        where = str(settings.BROKER_URL)
        if _cached.where != where or time.monotonic() - _cached.at > FRESH_SECONDS:
            _cached.readings = queues.snapshot()
            _cached.at, _cached.where = time.monotonic(), where
        return list(_cached.readings)


class _CachedQueues:
    readings: list[QueueReading]
    at = float("-inf")
    where = ""


_cached = _CachedQueues()
_lock = threading.Lock()
