"""Counting API: readings of this process, published every second to ``run_statistics``."""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from typing import Final

from apps.runtime.engine.background import BackgroundWorker
from apps.runtime.services import before_broker_closes, shared_broker
from yardkit import topology
from yardkit.broker import Broker, BrokerError, Outgoing
from yardkit.protocol import Samples, encode
from yardkit.rates import Rates

logger = logging.getLogger(__name__)

CONFIRM_SECONDS: Final = 5.0
# Delay between the end of a second and its report.
REPORT_DELAY_SECONDS: Final = 0.05


def count(series: str, *, project: int, label: str, amount: float = 1) -> None:
    """Increase a counter series by ``amount``.

    ``series`` is a dotted name (``requests.created``); ``label`` distinguishes series of one
    project, such as its request groups. Thread-safe. Never waits for and never raises because of
    the broker or the database: a thread publishes every second. Counts that are not yet published
    are lost when the process is killed.
    """
    _reporter.rates.add(series, project, label, amount)
    if _reporter.idle:
        _wake()


def gauge(series: str, *, project: int, label: str, value: float) -> None:
    """Record the current value of a gauge series, with the guarantees of ``count``."""
    _reporter.rates.gauge(series, project, label, value)
    if _reporter.idle:
        _wake()


class _Reporter:
    """Unpublished readings of this process. A forked child starts with an empty one."""

    def __init__(self) -> None:
        self.rates = Rates(f"{socket.gethostname()} {os.getpid()}", uuid.uuid4().hex)
        # True while the thread waits to be woken because there is nothing to report.
        self.idle = True
        self.failing = False


def _reset() -> None:
    global _reporter
    _reporter = _Reporter()


def _wake() -> None:
    _reporter.idle = False
    try:
        _worker.wake()
    except RuntimeError:
        # No thread can be started: a system limit, or the interpreter is shutting down.
        _reporter.idle = True


def _report() -> float | None:
    """Publish once; return the seconds until the next report, or None to wait for a wake-up."""
    reporter = _reporter
    try:
        _publish(shared_broker(), CONFIRM_SECONDS)
    except (BrokerError, TimeoutError) as error:
        if not reporter.failing:
            why = str(error) or "no confirmation in time"
            logger.warning("rates are not reported, the broker is unreachable: %s", why)
        reporter.failing = True
    else:
        if reporter.failing:
            logger.info("rates are reported again")
        reporter.failing = False
    # Set before the check below: a count() after the check then wakes the thread.
    reporter.idle = True
    if not reporter.rates.waiting:
        return None
    reporter.idle = False
    return 1.0 - time.time() % 1.0 + REPORT_DELAY_SECONDS


def _publish(broker: Broker, timeout: float, *, ending: bool = False) -> None:
    rates = _reporter.rates
    messages = rates.reports(ending=ending)
    if messages:
        broker.publish([_outgoing(message) for message in messages]).result(timeout)
        rates.sent(messages)


def _outgoing(message: Samples) -> Outgoing:
    return Outgoing(body=encode(message), key=topology.STATISTICS.name)


def _report_remaining(broker: Broker, timeout: float) -> None:
    if _reporter.rates.waiting:
        _publish(broker, timeout, ending=True)


_reporter = _Reporter()
os.register_at_fork(after_in_child=_reset)
_worker = BackgroundWorker("rates", _report)
before_broker_closes(_report_remaining)
