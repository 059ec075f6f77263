"""Registry of metrics: apps register them, one place samples all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from yardkit.outage import Outage

logger = logging.getLogger(__name__)

Kind = Literal["gauge", "counter"]
# One number without labels, else numbers by label values in the order of the label names.
Reading = float | Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One value at one moment."""

    name: str
    kind: Kind
    help: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)


class Metric:
    """A gauge or counter; created by a registry."""

    def __init__(
        self,
        name: str,
        kind: Kind,
        help_text: str,
        labels: tuple[str, ...],
        *,
        absent_is_zero: bool = False,
    ) -> None:
        self.name = name
        self.kind: Kind = kind
        self.help = help_text
        self.labels = labels
        self.absent_is_zero = absent_is_zero
        self.failed = False
        self.read: Callable[[], Reading] | None = None
        self._values: dict[tuple[str, ...], float] = {}
        self._lock = threading.Lock()
        self._outage = Outage(logger, f"reading metric {name}")

    def inc(self, amount: float = 1.0, **labels: str) -> None:
        """Add to the value. ``ValueError`` for a negative amount on a counter."""
        if self.kind == "counter" and amount < 0:
            raise ValueError(f"counter {self.name} cannot fall")
        key = self._key(labels)
        with self._lock:
            self._values[key] = self._values.get(key, 0.0) + amount

    def set(self, value: float, **labels: str) -> None:
        """Set a gauge."""
        if self.kind != "gauge":
            raise ValueError(f"counter {self.name} cannot be set")
        key = self._key(labels)
        with self._lock:
            self._values[key] = value

    def samples(self) -> list[MetricSample]:
        """Return current values; none if ``read`` fails, which is logged once."""
        if self.read is None:
            with self._lock:
                return self._samples(dict(self._values))
        try:
            samples = self.of(self.read())
        except Exception as error:  # noqa: BLE001 - a failing metric must not hide the others
            self._outage.failed(error)
            self.failed = True
            return []
        self._outage.recovered()
        self.failed = False
        return samples

    def of(self, reading: Reading) -> list[MetricSample]:
        """Return the samples of a reading."""
        return self._samples(reading if isinstance(reading, Mapping) else {(): float(reading)})

    def _key(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        if set(labels) != set(self.labels):
            raise ValueError(f"metric {self.name} has the labels {list(self.labels)}")
        return tuple(str(labels[name]) for name in self.labels)

    def _samples(self, values: Mapping[tuple[str, ...], float]) -> list[MetricSample]:
        return [
            MetricSample(
                self.name, self.kind, self.help, value, dict(zip(self.labels, key, strict=True))
            )
            for key, value in values.items()
        ]


@dataclass(frozen=True, slots=True)
class Description:
    """Description of a metric.

    ``absent_is_zero``: label values missing in a reading count as 0, such as queues without dead
    letters. ``failed``: the last reading failed.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    absent_is_zero: bool
    failed: bool


class MetricGroup:
    """Metrics with the same labels from one reading; created by a registry."""

    def __init__(
        self, metrics: Sequence[Metric], read: Callable[[], Mapping[str, Reading]]
    ) -> None:
        self._metrics = metrics
        self._read = read
        self._outage = Outage(logger, f"reading metrics {[metric.name for metric in metrics]}")

    def samples(self) -> list[MetricSample]:
        """Return current values of all; none if the reading fails, which is logged once."""
        try:
            readings = self._read()
            samples = [
                sample
                for metric in self._metrics
                if metric.name in readings
                for sample in metric.of(readings[metric.name])
            ]
        except Exception as error:  # noqa: BLE001 - a failing group must not hide the others
            self._outage.failed(error)
            for metric in self._metrics:
                metric.failed = True
            return []
        self._outage.recovered()
        for metric in self._metrics:
            metric.failed = False
        return samples


class Registry:
    """A set of metrics. Thread-safe."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        # Sources of samples, in the order of registration.
        self._sources: list[Metric | MetricGroup] = []
        self._lock = threading.Lock()

    def gauge(
        self,
        name: str,
        help: str,  # noqa: A002 - the word everybody knows for it
        labels: Sequence[str] = (),
        read: Callable[[], Reading] | None = None,
        *,
        absent_is_zero: bool = False,
    ) -> Metric:
        """Register a gauge: from ``read`` at each sampling, or set by ``set``."""
        metric = self._register(
            name, "gauge", help, labels, alone=True, absent_is_zero=absent_is_zero
        )
        if read is not None:
            metric.read = read
        return metric

    def counter(
        self,
        name: str,
        help: str,  # noqa: A002 - the word everybody knows for it
        labels: Sequence[str] = (),
        read: Callable[[], Reading] | None = None,
    ) -> Metric:
        """Register a counter: from ``read``, such as a sum, or raised by ``inc``."""
        metric = self._register(name, "counter", help, labels, alone=True)
        if read is not None:
            metric.read = read
        return metric

    def group(
        self,
        gauges: Mapping[str, str],
        read: Callable[[], Mapping[str, Reading]],
        labels: Sequence[str] = (),
        counters: Mapping[str, str] | None = None,
        *,
        absent_is_zero: bool = False,
    ) -> None:
        """Register several metrics answered by one query.

        Args:
            gauges: help texts by name.
            read: returns readings by name; a missing name has no value now.
            labels: of each metric.
            counters: help texts of counters by name.
            absent_is_zero: see ``Description``.

        Raises:
            ValueError: a name is taken.
        """
        taken = [name for name in (*gauges, *(counters or {})) if name in self._metrics]
        if taken:
            raise ValueError(f"metric {taken[0]} exists")
        metrics = [
            self._register(name, "gauge", text, labels, absent_is_zero=absent_is_zero)
            for name, text in gauges.items()
        ]
        metrics += [
            self._register(name, "counter", text, labels) for name, text in (counters or {}).items()
        ]
        with self._lock:
            self._sources.append(MetricGroup(metrics, read))

    def snapshot(self) -> list[MetricSample]:
        """Return all values, in the order of registration."""
        with self._lock:
            sources = list(self._sources)
        return [sample for source in sources for sample in source.samples()]

    def described(self) -> list[Description]:
        """Return all descriptions, by name."""
        with self._lock:
            metrics = sorted(self._metrics.values(), key=lambda each: each.name)
        return [
            Description(
                metric.name,
                metric.kind,
                metric.help,
                metric.labels,
                metric.absent_is_zero,
                metric.failed,
            )
            for metric in metrics
        ]

    def _register(
        self,
        name: str,
        kind: Kind,
        help_text: str,
        labels: Sequence[str],
        *,
        alone: bool = False,
        absent_is_zero: bool = False,
    ) -> Metric:
        with self._lock:
            metric = self._metrics.get(name)
            if metric is None:
                metric = self._metrics[name] = Metric(
                    name, kind, help_text, tuple(labels), absent_is_zero=absent_is_zero
                )
                if alone:
                    self._sources.append(metric)
            elif (metric.kind, metric.labels) != (kind, tuple(labels)):
                raise ValueError(f"metric {name} exists as a {metric.kind} of {metric.labels}")
            return metric


_registry = Registry()
gauge = _registry.gauge
counter = _registry.counter
group = _registry.group
described = _registry.described
snapshot = _registry.snapshot
