"""Rows to test with."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

from apps.jobs.models import Host, Job, Run
from apps.jobs.states import FINAL, RunState
from apps.projects.models import Project

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
_numbers = count(1)


def make_project(**fields: Any) -> Project:
    """A project with an own name."""
    number = next(_numbers)
    return Project.objects.create(
        **({"name": f"Project {number}", "slug": f"project-{number}"} | fields)
    )


def make_job(**fields: Any) -> Job:
    """A job, in a project of its own unless one is given."""
    project = fields.pop("project", None) or make_project()
    values = {"name": f"Job {next(_numbers)}", "spider": "yardspider.spiders:SiteSpider"}
    return Job.objects.create(project=project, **(values | fields))


def make_run(**fields: Any) -> Run:
    """A run in the state that is asked for, as a runner would have left it."""
    job = fields.pop("job", None) or make_job()
    state = fields.pop("state", RunState.QUEUED)
    values: dict[str, Any] = {"created_at": NOW, "state": state}
    if state in FINAL:
        values["ended_at"] = NOW
    if state not in FINAL | {RunState.QUEUED}:
        values |= {"host": "host-1", "watched_at": NOW, "boot": "b1"}
    return Run.objects.create(job=job, **(values | fields))


def make_host(name: str, **fields: Any) -> Host:
    """A host with nothing to do, whose runner has reported just now."""
    values: dict[str, Any] = {
        "kind": "process",
        "capacity": 4,
        "cores": 2,
        "cpu_percent": 10.0,
        "memory_free_bytes": 2 * 1024**3,
        "memory_total_bytes": 4 * 1024**3,
        "registered_at": NOW,
        "beat_at": NOW,
    }
    return Host.objects.create(name=name, **(values | fields))
