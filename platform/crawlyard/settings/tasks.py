"""Celery's settings, derived from the broker's URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from yardkit import topology

# Periodic tasks of beat; tasks that this version lacks are left out. A message expires when no
# worker has started it within the task's interval.
HOUSEKEEPING: Final = {
    f"housekeeping: {task}": {
        "task": task,
        "schedule": seconds,
        "options": {"queue": topology.TASKS, "expire_seconds": int(seconds)},
    }
    for task, seconds in {
        "access.check_identities": 60.0,
        "alerts.sweep_notices": 10.0,
        "alerts.forget_notices": 3600.0,
        "jobs.sweep_schedules": 10.0,
        "jobs.reap_lost_runs": 15.0,
        "jobs.forget_planned_runs": 3600.0,
        "jobs.purge": 6 * 3600.0,
        "projects.sweep_builds": 15.0,
        "projects.forget_deliveries": 3600.0,
        "projects.purge": 6 * 3600.0,
        "requeststore.scale": 10.0,
        "requeststore.upkeep": 10.0,
        "routing.sweep_ledger": 10.0,
        "requeststore.sweep_rebalances": 10.0,
        "requeststore.sweep_reextractions": 10.0,
        "seeds.sweep_operations": 10.0,
        "sources.forget_records": 600.0,
    }.items()
}


def celery_broker(broker_url: str, data_dir: Path) -> tuple[str, dict[str, Any]]:
    """Return Celery's broker URL and transport options.

    RabbitMQ if the platform uses it; else files in the data folder, where a killed worker loses its
    current task. Every task that must not be lost has a row and a sweep.
    """
    if broker_url.startswith(("amqp://", "amqps://")):
        return broker_url, {"confirm_publish": True}
    folder = data_dir / "celery"
    queue, control = folder / "queue", folder / "control"
    for each in (queue, control):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    return "files://localhost", {
        "data_folder_in": str(queue),
        "data_folder_out": str(queue),
        "control_folder": str(control),
        "store_processed": False,
        "polling_interval": 0.2,
    }
