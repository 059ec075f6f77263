"""manage.py run_monitor: sample gauges, evaluate alert rules and open incidents."""

from __future__ import annotations

from typing import Any

from apps.alerts.daemon import EVERY_SECONDS, MonitorDaemon, register_monitor_task
from apps.alerts.services.yields import record_yields
from apps.queuestats.services import sample_gauges
from apps.runtime.management.daemon_command import DaemonCommand
from apps.runtime.services.round_trips import RoundTrips
from yardkit.broker import Broker
from yardkit.clock import SystemClock


class Command(DaemonCommand):
    """Daemon that evaluates alert rules. One instance leads; the others stand by."""

    help = "Evaluate the alert rules and send notifications."
    kind = "monitor"

    def make_daemon(self, options: dict[str, Any], broker: Broker) -> MonitorDaemon:
        """Return the daemon, which also records the yields of finished runs."""
        register_monitor_task(
            "yields", lambda now: record_yields(now=now), every_seconds=EVERY_SECONDS
        )
        round_trips = RoundTrips()
        register_monitor_task(
            "round trips", lambda _now: round_trips.poll(), every_seconds=EVERY_SECONDS
        )
        return MonitorDaemon(
            clock=SystemClock(),
            identity=self.identity,
            sample=lambda now: sample_gauges(now=now),
            round_trips=round_trips,
        )
