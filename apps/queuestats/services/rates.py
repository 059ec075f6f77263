"""What this process counts and measures, on its way to ``run_statistics``."""

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
# A second is published so long after its end.
AFTER_THE_SECOND: Final = 0.05


def count(series: str, *, project: int, label: str, amount: float = 1) -> None:
    """So many more of ``series`` happened just now (seed S4.24, S4.25).

    ``series`` is a word with dots (``requests.created``), ``label`` tells those of one project
    apart (the biz). Never waits and never raises for a broker or a database; a thread of this
    process reports each second. What a killed process had not reported yet is not counted.
    """
    _counting.rates.add(series, project, label, amount)
    if _counting.idle:
        _wake()


def gauge(series: str, *, project: int, label: str, value: float) -> None:
    """So much of ``series`` there is just now; the same promises as ``count``."""
    _counting.rates.gauge(series, project, label, value)
    if _counting.idle:
        _wake()


class _Counting:
    """Of one process: a child of it begins anew, what the parent has counted the parent sends."""

    def __init__(self) -> None:
        self.rates = Rates(f"{socket.gethostname()} {os.getpid()}", uuid.uuid4().hex)
        # The thread waits to be woken, since there is nothing to report.
        self.idle = True
        self.failing = False


def _begin() -> None:
    global _counting
    _counting = _Counting()


def _wake() -> None:
    _counting.idle = False
    try:
        _worker.wake()
    except RuntimeError:
        # The system gives no more threads, or the interpreter is on its way out.
        _counting.idle = True


def _report() -> float | None:
    """One turn of the thread: in how many seconds the next, or None for when it is woken."""
    counting = _counting
    try:
        _publish(shared_broker(), CONFIRM_SECONDS)
    except (BrokerError, TimeoutError) as error:
        if not counting.failing:
            why = str(error) or "no confirmation in time"
            logger.warning("rates wait until the broker is back: %s", why)
        counting.failing = True
    else:
        if counting.failing:
            logger.info("rates are reported again")
        counting.failing = False
    # In this order: who counts after the question finds it idle and wakes the thread.
    counting.idle = True
    if not counting.rates.waiting:
        return None
    counting.idle = False
    return 1.0 - time.time() % 1.0 + AFTER_THE_SECOND


def _publish(broker: Broker, timeout: float, *, ending: bool = False) -> None:
    rates = _counting.rates
    messages = rates.reports(ending=ending)
    if messages:
        broker.publish([_outgoing(message) for message in messages]).result(timeout)
        rates.sent(messages)


def _outgoing(message: Samples) -> Outgoing:
    return Outgoing(body=encode(message), key=topology.STATISTICS.name)


def _last_words(broker: Broker, timeout: float) -> None:
    if _counting.rates.waiting:
        _publish(broker, timeout, ending=True)


_counting = _Counting()
os.register_at_fork(after_in_child=_begin)
_worker = BackgroundWorker("rates", _report)
before_broker_closes(_last_words)
