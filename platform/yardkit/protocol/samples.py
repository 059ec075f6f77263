"""Numbers over time: how many a second, how much there is."""

from __future__ import annotations

import enum

import msgspec

from yardkit.protocol.base import Message


class SampleKind(enum.StrEnum):
    """How numbers of one series combine: sums add up, of gauges the mean and the peak count."""

    SUM = "sum"
    GAUGE = "gauge"


class SampleNote(msgspec.Struct, frozen=True, array_like=True):
    """One number of one series: of the ``spread`` seconds (1, 60 or 3600) from ``second`` on.

    ``second``: whole seconds since 1970 by the sender's clock, a multiple of ``spread``.
    ``project`` 0: of no project. ``value``: of a sum how many, of a gauge the sum of ``count``
    readings, of which ``highest`` was the highest.
    """

    second: int
    spread: int
    series: str
    project: int
    label: str
    value: float
    kind: SampleKind = SampleKind.SUM
    count: int = 1
    highest: float = 0.0


class Samples(Message, frozen=True, kw_only=True, tag="samples"):
    """What one process has counted since its last message (seed S4.24, S4.25).

    Each is added once, however often it comes: ``seq`` counts from 1 inside (sender, boot).
    ``sent_at``: Unix seconds by the sender's clock when it was last published, which tells how
    wrong that clock is.
    """

    sender: str
    boot: str
    seq: int
    sent_at: float
    samples: list[SampleNote]
