"""manage.py run_sample: a daemon that reads one queue and counts what it has read."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import CommandParser

from apps.runtime.management.daemon_command import DaemonCommand
from apps.runtime.services import claim_message
from yardkit.broker import Broker, QueueSpec, Subscription
from yardkit.daemon import Daemon

QUEUE = QueueSpec("sample")


class SampleDaemon:
    """Dead-letters what says "poison", takes its time over what says "slow"."""

    def __init__(self, broker: Broker, seconds: float) -> None:
        self._broker = broker
        self._seconds = seconds
        self._subscription: Subscription | None = None

    def setup(self) -> None:
        self._broker.declare(QUEUE)
        self._subscription = self._broker.subscribe(QUEUE.name)

    def step(self) -> bool:
        assert self._subscription is not None
        deliveries = self._subscription.take(10, timeout=0.05)
        for delivery in deliveries:
            if delivery.body == b"poison":
                self._subscription.dead_letter(delivery, "it says so")
                continue
            if delivery.body == b"slow":
                time.sleep(self._seconds)
            if delivery.body == b"bug":
                raise RuntimeError("a step that raises")
            claim_message(consumer="sample", message_id=delivery.message_id)
            self._subscription.ack([delivery])
        return bool(deliveries)

    def teardown(self) -> None:
        if self._subscription is not None:
            self._subscription.close()


class Command(DaemonCommand):
    help = "Read the queue of samples."
    kind = "sample"
    heartbeat_seconds = 0.5

    def add_daemon_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--seconds", type=float, default=1.0)

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> Daemon:
        return SampleDaemon(broker, options["seconds"])
