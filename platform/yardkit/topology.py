"""Names and properties of every queue and exchange, shared by producers and consumers."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

from yardkit.broker.base import DEAD_QUEUE, QueueSpec

# An agent is alive while its last heartbeat is younger than this (seed S1.38).
AGENT_ALIVE_SECONDS = 11.0
HEARTBEAT_SECONDS = 5.0
# A download that has not started after this time expires (seed S1.32, S1.46).
DOWNLOAD_EXPIRES_SECONDS = 60.0
# An allocate request expires after this time (seed S1.31, S1.35).
ALLOCATE_EXPIRES_SECONDS = 30.0

# Celery's queues: short tasks, and builds, which take long.
TASKS = "celery.tasks"
BUILDS = "celery.builds"
# A command to a run counts as unanswered after this time.
LIFECYCLE_ANSWER_SECONDS = 10.0

HEARTBEATS = "heartbeats"  # fanout: agents -> every center
EVENTS = "events"  # fanout: any process -> every web process
LIFECYCLE = "lifecycle"  # topic: jobs -> the runs of one job

CENTER_REGISTER = QueueSpec("center.register")
CENTER_CONTROL = QueueSpec("center.control")
CENTER_REQUESTS = QueueSpec("center.requests")
# Apart from the control messages, which wait for the database.
CENTER_ADDRESSES = QueueSpec("center.addresses", message_ttl_seconds=60)
RUNNERS = QueueSpec("runners")
STATISTICS = QueueSpec("statistics")
LIFECYCLE_ANSWERS = QueueSpec("lifecycle.answers")
LOGS = QueueSpec("logs")
SEEDS = QueueSpec("seeds")
ITEMS = QueueSpec("items")

SHARED = (
    CENTER_REGISTER,
    CENTER_CONTROL,
    CENTER_REQUESTS,
    CENTER_ADDRESSES,
    RUNNERS,
    STATISTICS,
    LIFECYCLE_ANSWERS,
    LOGS,
    SEEDS,
    ITEMS,
)
# Queues that runs may send to through ``yardkit.broker.gateway``, besides center reports.
FOR_RUNS = (
    CENTER_CONTROL,
    CENTER_REQUESTS,
    CENTER_ADDRESSES,
    STATISTICS,
    LIFECYCLE_ANSWERS,
    SEEDS,
    ITEMS,
    QueueSpec(DEAD_QUEUE),
)
# AMQP limits a routing key to 255 bytes; a longer name ends in a digest of itself.
_TOPIC_CHARACTERS = 180


def center_heartbeats(center: str) -> QueueSpec:
    """Return the queue of heartbeats of one center; the broker expires stale ones."""
    return QueueSpec(
        f"center.heartbeats.{center}",
        durable=False,
        expires_seconds=60,
        message_ttl_seconds=AGENT_ALIVE_SECONDS,
    )


def center_reports(center: str) -> QueueSpec:
    """Queue for reports of agents to one center: host results, and robots.txt files it requested.

    Runs that pause withdraw their held requests here.
    """
    return QueueSpec(
        f"center.reports.{center}",
        durable=False,
        expires_seconds=60,
        message_ttl_seconds=DOWNLOAD_EXPIRES_SECONDS,
    )


def agent_commands(agent: str) -> QueueSpec:
    """Return the command queue of one agent; it outlives a restart of the agent."""
    return QueueSpec(f"agent.{agent}", expires_seconds=24 * 3600)


def agent_addresses(agent: str) -> QueueSpec:
    """Return the queue of signed addresses for one agent.

    Not that of its commands: an agent that waits for addresses has that one full.
    """
    return QueueSpec(
        f"addresses.{agent}", durable=False, expires_seconds=60, message_ttl_seconds=60
    )


def runner_wakeups(host: str) -> QueueSpec:
    """Return the queue of wake-ups of one host's runner: a run was placed there."""
    return QueueSpec(f"runner.{host}", durable=False, expires_seconds=3600)


def run_answers(run: int, boot: str) -> QueueSpec:
    """Return the queue of answers to one execution of a run; it expires after the run."""
    return QueueSpec(f"run.{run}.{boot}", durable=False, expires_seconds=120)


def run_commands(run: int, boot: str) -> QueueSpec:
    """Queue of commands to one execution of a run, bound to its job's topic; expires after it."""
    return QueueSpec(f"run.{run}.{boot}.commands", durable=False, expires_seconds=120)


def job_topic(project: str, job: str) -> str:
    """Return the topic of a job, ``job.<project>.<job>``: its slug, its name.

    Characters other than ASCII letters, digits, ``-`` and ``_`` are percent-encoded, so that a
    name with a dot is one word of the topic and no name is a pattern.
    """
    topic = f"job.{_word(project)}.{_word(job)}"
    if len(topic) <= _TOPIC_CHARACTERS:
        return topic
    return f"{topic[:_TOPIC_CHARACTERS]}~{hashlib.sha256(topic.encode()).hexdigest()[:16]}"


def _word(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")


def web_events(process: str) -> QueueSpec:
    """Return the event queue of one web process."""
    return QueueSpec(
        f"web.events.{process}", durable=False, expires_seconds=60, message_ttl_seconds=30
    )
