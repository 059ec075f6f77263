"""Stores batches of reports, and isolates those that cannot be stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from django.db import InterfaceError, OperationalError

from apps.runtime.services import in_short_transaction
from yardkit.errors import first_line
from yardkit.guard import settle
from yardkit.protocol import CenterCounters, PageCounters, RunCounters, Samples


@dataclass(frozen=True, slots=True)
class RejectedReport:
    """A report that cannot be stored, with the reason for its dead letter."""

    message: RunCounters | CenterCounters | PageCounters | Samples
    reason: str


M = TypeVar("M", RunCounters | CenterCounters | PageCounters, Samples)


def store_batch(
    messages: Sequence[M], store: Callable[[Sequence[M]], Sequence[RejectedReport]]
) -> list[RejectedReport]:
    """Call ``store`` in short transactions; a batch that fails is bisected.

    Return the rejections of ``store`` and the reports that fail by themselves. Errors of an
    unreachable database are raised.
    """
    rejected: list[RejectedReport] = []

    def work(batch: Sequence[M]) -> None:
        rejected.extend(in_short_transaction(lambda: store(batch)))

    def reject(message: M, error: Exception) -> None:
        rejected.append(RejectedReport(message, f"{type(error).__name__}: {first_line(error)}"))

    settle(messages, work, reject, passing=(OperationalError, InterfaceError))
    return rejected
