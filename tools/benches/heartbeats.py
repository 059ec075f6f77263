"""bench heartbeats: how many agents one center can watch on one core."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db.models import Count, Min, Q
from django.utils import timezone

from apps.agents.models import Agent
from crawlyard.supervisor import Supervisor, Unit
from crawlyard.units import manage
from tools.benches.beats import PREFIX
from tools.benches.measuring import BenchFailed, Usage, conditions, helper, line_of, module, usage
from yardkit import topology
from yardkit.stop import Stop

SECONDS = 30.0
# The first round, and then some.
WARM_UP_SECONDS = 60.0
LOOK_SECONDS = 1.0
# A publisher this late is what was measured, and not the center.
LATE_PUBLISHER_SECONDS = 2.0
LIMIT_CORES = 1.0


def run(*, agents: Sequence[int], seconds: float = SECONDS) -> dict[str, Any]:
    """Watch as many agents as each of ``agents`` says, one after the other; the JSON object.

    Raises:
        BenchFailed: the agents were not all seen, or could not be simulated.
    """
    call_command("migrate", verbosity=0, interactive=False)
    before = conditions()
    try:
        steps = [_measure(count, seconds) for count in agents]
    finally:
        Agent.objects.filter(agent_id__startswith=PREFIX).delete()
    ours, first = steps[-1], steps[0]
    return {
        "bench": "heartbeats",
        "interval_seconds": topology.HEARTBEAT_SECONDS,
        "seconds": seconds,
        **before,
        "ours": ours,
        "peer": None,
        "ratio": None,
        "limit": {"cores": LIMIT_CORES},
        "limit_ratio": round(ours["cores_used"] / LIMIT_CORES, 3),
        "growth": {
            "steps": steps,
            "cpu_ratio": round(ours["cpu_us_per_heartbeat"] / first["cpu_us_per_heartbeat"], 2),
        },
    }


@dataclass(slots=True)
class View:
    """What the database said of the agents, look by look."""

    agents: int
    late: list[float] = field(default_factory=list)
    dead: int = 0

    def look(self) -> None:
        """How late the oldest row is, and how many would be taken for dead."""
        now = timezone.now()
        oldest, alive = _rows(now)
        # A row is as old as its agent's last heartbeat, which may be one interval: no delay yet.
        age = (now - oldest).total_seconds() if oldest else float("inf")
        self.late.append(max(0.0, age - topology.HEARTBEAT_SECONDS))
        self.dead = max(self.dead, self.agents - alive)


def _rows(now: datetime) -> tuple[datetime | None, int]:
    alive = Q(heartbeat_at__gt=now - timedelta(seconds=topology.AGENT_ALIVE_SECONDS))
    row = Agent.objects.filter(agent_id__startswith=PREFIX).aggregate(
        oldest=Min("heartbeat_at"), alive=Count("pk", filter=alive)
    )
    return row["oldest"], row["alive"]


def _measure(agents: int, seconds: float) -> dict[str, Any]:
    Agent.objects.filter(agent_id__startswith=PREFIX).delete()
    lines: list[str] = []
    supervisor = Supervisor(
        [Unit("center", manage("run_center"))], lambda name, line: lines.append(line)
    )
    with Stop() as stop:
        supervisor.start()
        try:
            with helper(module("tools.benches.beats", str(agents))) as publisher:
                assert publisher.stdin is not None  # noqa: S101 - helper() asks for a pipe
                publisher.stdin.write(settings.BROKER_URL + "\n")
                publisher.stdin.flush()
                line_of(publisher)
                _until_all_seen(supervisor, stop, agents)
                figures = _watch(supervisor, stop, agents, seconds)
                publisher.stdin.close()
                told = json.loads(line_of(publisher))
        except BenchFailed as failure:
            raise BenchFailed("\n".join([str(failure), *lines[-20:]])) from failure
        finally:
            supervisor.stop()
    if told["failed"] or told["behind_seconds"] > LATE_PUBLISHER_SECONDS:
        raise BenchFailed(f"the agents could not be simulated: {told}")
    return figures | {"publisher_behind_seconds": told["behind_seconds"]}


def _until_all_seen(supervisor: Supervisor, stop: Stop, agents: int) -> None:
    deadline = time.monotonic() + WARM_UP_SECONDS
    while _rows(timezone.now())[1] < agents:
        supervisor.step(0.1)
        if stop.requested or time.monotonic() > deadline:
            raise BenchFailed(f"not all of {agents} agents were seen in {WARM_UP_SECONDS:g} s")


def _watch(supervisor: Supervisor, stop: Stop, agents: int, seconds: float) -> dict[str, Any]:
    view, peak = View(agents), 0.0
    before, began = _center(supervisor), time.monotonic()
    while time.monotonic() < began + seconds:
        view.look()
        next_look = time.monotonic() + LOOK_SECONDS
        while time.monotonic() < next_look:
            supervisor.step(next_look - time.monotonic())
            if stop.requested:
                raise BenchFailed("stopped")
        peak = max(peak, _center(supervisor).rss_mb)
    after, passed = _center(supervisor), time.monotonic() - began
    cpu = after.cpu_seconds - before.cpu_seconds
    heartbeats = passed * agents / topology.HEARTBEAT_SECONDS
    late = sorted(view.late)
    return {
        "agents": agents,
        "heartbeats_per_second": round(heartbeats / passed),
        "cores_used": round(cpu / passed, 3),
        "cpu_us_per_heartbeat": round(1e6 * cpu / heartbeats, 1),
        "peak_rss_mb": round(peak),
        "looks": len(late),
        "late_seconds": {"p50": round(late[len(late) // 2], 2), "max": round(late[-1], 2)},
        "wrongly_dead": view.dead,
    }


def _center(supervisor: Supervisor) -> Usage:
    found = usage(supervisor.pids().get("center"))
    if found is None or supervisor.restarts():
        raise BenchFailed("the center has ended")
    return found
