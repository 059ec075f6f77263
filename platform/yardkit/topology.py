"""Names and shapes of every queue and exchange, in one place, so that all sides agree."""

from __future__ import annotations

from yardkit.broker.base import QueueSpec

# An agent is alive while its last heartbeat is younger than this (seed S1.38).
AGENT_ALIVE_SECONDS = 11.0
HEARTBEAT_SECONDS = 5.0
# A download nobody has started after this long is void (seed S1.32, S1.46).
DOWNLOAD_EXPIRES_SECONDS = 60.0
# An allocate request nobody answered in time is void (seed S1.31, S1.35).
ALLOCATE_EXPIRES_SECONDS = 30.0

HEARTBEATS = "heartbeats"  # fanout: agents -> every center
EVENTS = "events"  # fanout: any process -> every web process

CENTER_REGISTER = QueueSpec("center.register")
CENTER_CONTROL = QueueSpec("center.control")
CENTER_REQUESTS = QueueSpec("center.requests")
RUNNERS = QueueSpec("runners")
STATISTICS = QueueSpec("statistics")

SHARED = (CENTER_REGISTER, CENTER_CONTROL, CENTER_REQUESTS, RUNNERS, STATISTICS)


def center_heartbeats(center: str) -> QueueSpec:
    """One center's own queue of heartbeats; the broker drops the stale ones."""
    return QueueSpec(
        f"center.heartbeats.{center}",
        durable=False,
        expires_seconds=60,
        message_ttl_seconds=AGENT_ALIVE_SECONDS,
    )


def center_reports(center: str) -> QueueSpec:
    """What agents tell one center: how hosts answered, and the robots.txt it asked for."""
    return QueueSpec(
        f"center.reports.{center}",
        durable=False,
        expires_seconds=60,
        message_ttl_seconds=DOWNLOAD_EXPIRES_SECONDS,
    )


def agent_commands(agent: str) -> QueueSpec:
    """One agent's own queue of commands; outlives a restart of the agent."""
    return QueueSpec(f"agent.{agent}", expires_seconds=24 * 3600)


def run_answers(run: int, boot: str) -> QueueSpec:
    """Answers to one execution of a run; gone soon after it."""
    return QueueSpec(f"run.{run}.{boot}", durable=False, expires_seconds=120)


def web_events(process: str) -> QueueSpec:
    """One web process's own queue of events."""
    return QueueSpec(
        f"web.events.{process}", durable=False, expires_seconds=60, message_ttl_seconds=30
    )
