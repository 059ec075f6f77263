"""Reported counters to test with."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from apps.jobs.models import Run
from apps.queuestats.services import rates, store_counters
from apps.runtime.services import shared_broker
from tests.jobs.factories import NOW
from yardkit.broker import BrokerError
from yardkit.protocol import CenterCounters, FailureNote, RunCounters


def report(run: Run, *, seq: int = 1, failures: int = 0, **counts: Any) -> None:
    """What a run says of itself; ``failures`` notes are made up."""
    notes = [
        FailureNote(number, f"https://a.org/{number}", 404, "not found")
        for number in range(1, failures + 1)
    ]
    message = RunCounters(run=run.pk, boot=run.boot or "b1", seq=seq, failures=notes, **counts)
    store_counters(messages=[message], now=NOW)


def center_report(run: Run, *, seq: int = 1, **counts: Any) -> None:
    """What a center says of a run."""
    message = CenterCounters(run=run.pk, boot="c1", seq=seq, **counts)
    store_counters(messages=[message], now=NOW)


def flush_rates(timeout: float = 5.0) -> bool:
    """Report all that this process has counted, as at its end; whether it was."""
    with suppress(BrokerError, TimeoutError):
        rates._report_remaining(shared_broker(), timeout)
    return not rates._reporter.rates.waiting
