"""manage.py run_monitor: samples what there is, evaluates alert rules, opens incidents."""

from __future__ import annotations

from typing import Any

from apps.alerts.daemon import EVERY_SECONDS, MonitorDaemon, register_chore
from apps.alerts.services.yields import record_yields
from apps.queuestats.services import sample_gauges
from apps.runtime.management.daemon_command import DaemonCommand
from yardkit.broker import Broker
from yardkit.clock import SystemClock


class Command(DaemonCommand):
    """Of several, one leads and the others stand by."""

    help = "Evaluate the alert rules and send notifications."
    kind = "monitor"

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> MonitorDaemon:
        """The daemon, which also writes down what runs have brought."""
        register_chore("yields", lambda now: record_yields(now=now), every_seconds=EVERY_SECONDS)
        return MonitorDaemon(
            clock=SystemClock(),
            identity=self.identity,
            sample=lambda now: sample_gauges(now=now),
        )
