"""Time series samples."""

from __future__ import annotations

import enum

import msgspec

from yardkit.protocol.base import Message


class SampleKind(enum.StrEnum):
    """Aggregation of a series: sums add up; gauges have mean and peak."""

    SUM = "sum"
    GAUGE = "gauge"


class SampleNote(msgspec.Struct, frozen=True, array_like=True):
    """One sample of a series for ``spread`` seconds (1, 60 or 3600) from ``second`` on.

    ``second``: Unix seconds by the sender's clock, a multiple of ``spread``. ``project`` 0: none.
    ``value``: the sum, or for a gauge the sum of ``count`` readings with the maximum ``highest``.
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
    """Counts of one process since its last message.

    Added once: ``seq`` counts from 1 in (sender, boot). ``sent_at``: Unix seconds of the last
    publishing by the sender's clock, to detect wrong clocks.
    """

    sender: str
    boot: str
    seq: int
    sent_at: float
    samples: list[SampleNote]
