"""What a process can measure of itself: each app registers here, one place samples all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

logger = logging.getLogger(__name__)

Kind = Literal["gauge", "counter"]
# Without labels one number, else numbers by their label values, in the order of the names.
Reading = float | Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Sample:
    """One number at one moment."""

    name: str
    kind: Kind
    help: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)


class Metric:
    """A gauge or a counter; made by a registry."""

    def __init__(self, name: str, kind: Kind, help_text: str, labels: tuple[str, ...]) -> None:
        self.name = name
        self.kind: Kind = kind
        self.help = help_text
        self.labels = labels
        self.read: Callable[[], Reading] | None = None
        self._values: dict[tuple[str, ...], float] = {}
        self._lock = threading.Lock()
        self._unreadable = False

    def inc(self, amount: float = 1.0, **labels: str) -> None:
        """Add to it. A counter only rises: ``ValueError`` for a negative amount."""
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

    def samples(self) -> list[Sample]:
        """Its numbers now; none when its ``read`` fails, which is logged once."""
        if self.read is None:
            with self._lock:
                return self._samples(dict(self._values))
        try:
            reading = self.read()
            samples = self._samples(
                reading if isinstance(reading, Mapping) else {(): float(reading)}
            )
        except Exception:  # one metric that cannot be read must not hide the others
            if not self._unreadable:
                logger.exception("cannot read metric %s", self.name)
            self._unreadable = True
            return []
        self._unreadable = False
        return samples

    def _key(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        if set(labels) != set(self.labels):
            raise ValueError(f"metric {self.name} has the labels {list(self.labels)}")
        return tuple(str(labels[name]) for name in self.labels)

    def _samples(self, values: Mapping[tuple[str, ...], float]) -> list[Sample]:
        return [
            Sample(self.name, self.kind, self.help, value, dict(zip(self.labels, key, strict=True)))
            for key, value in values.items()
        ]


class Registry:
    """A set of metrics. Thread-safe."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._lock = threading.Lock()

    def gauge(
        self,
        name: str,
        help: str,  # noqa: A002 - the word everybody knows for it
        labels: Sequence[str] = (),
        read: Callable[[], Reading] | None = None,
    ) -> Metric:
        """A number that rises and falls: from ``read`` at each sampling, or by ``set``."""
        metric = self._register(name, "gauge", help, labels)
        if read is not None:
            metric.read = read
        return metric

    def counter(
        self,
        name: str,
        help: str,  # noqa: A002 - the word everybody knows for it
        labels: Sequence[str] = (),
    ) -> Metric:
        """A number that only rises, by ``inc``."""
        return self._register(name, "counter", help, labels)

    def snapshot(self) -> list[Sample]:
        """Every number of every metric, in the order of registration."""
        with self._lock:
            metrics = list(self._metrics.values())
        return [sample for metric in metrics for sample in metric.samples()]

    def _register(self, name: str, kind: Kind, help_text: str, labels: Sequence[str]) -> Metric:
        with self._lock:
            metric = self._metrics.get(name)
            if metric is None:
                metric = self._metrics[name] = Metric(name, kind, help_text, tuple(labels))
            elif (metric.kind, metric.labels) != (kind, tuple(labels)):
                raise ValueError(f"metric {name} exists as a {metric.kind} of {metric.labels}")
            return metric


_registry = Registry()
gauge = _registry.gauge
counter = _registry.counter
snapshot = _registry.snapshot
