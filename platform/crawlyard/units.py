"""Definitions of the processes that ``manage.py up`` supervises on one machine."""

from __future__ import annotations

import socket
import sys
from collections.abc import MutableMapping

from crawlyard.settings.paths import ROOT
from crawlyard.supervisor import Unit
from yardkit import topology


def manage(*arguments: str) -> list[str]:
    """Return the argv of a management command of this installation."""
    return [sys.executable, str(ROOT / "manage.py"), *arguments]


def box(
    *,
    host: str,
    port: int,
    agents: int,
    agent_prefix: str = "agent",
    builds_apart: bool = True,
    objects: tuple[str, int] | None = None,
) -> list[Unit]:
    """Return all units of a box: daemons, workers, beat and ``agents`` agents.

    ``builds_apart``: a separate worker for builds, so that builds cannot delay schedules.
    ``objects``: host and port of the object server, see ``object_server``.
    """
    return [
        Unit("web", manage("run_web", "--host", host, "--port", str(port))),
        Unit("center", manage("run_center")),
        *([_object_server(*objects)] if objects is not None else []),
        # Runs stop while center, agents and statistics still work.
        Unit("runner", manage("run_runner"), stops_first=True),
        Unit("router", manage("run_router")),
        Unit("seeds", manage("run_seeds")),
        Unit("collector", manage("run_collector")),
        fetcher(1),
        Unit("statistics", manage("run_statistics")),
        *_workers(builds_apart=builds_apart),
        Unit("beat", manage("run_beat")),
        Unit("logs", manage("run_log_ingester")),
        Unit("datasets", manage("run_dataset_writer")),
        Unit("monitor", manage("run_monitor")),
        *(
            Unit(name, manage("run_agent", "--id", name, "--name", name))
            for name in (f"{agent_prefix}-{number}" for number in range(1, agents + 1))
        ),
    ]


def _object_server(host: str, port: int) -> Unit:
    return Unit("objects", manage("run_objects", "--host", host, "--port", str(port)))


def object_server(
    environ: MutableMapping[str, str], *, url: str, public_url: str, listen: str
) -> tuple[str, int] | None:
    """Return where this box's object server listens; None for a bucket, which needs none.

    Without a public address it is a free port for this machine alone; ``environ``, which the units
    inherit, gets its address.
    """
    if not url.startswith("file:"):
        return None
    if public_url:
        host, _, port = listen.rpartition(":")
        return host, int(port)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free: int = probe.getsockname()[1]
    environ["OBJECTS_PUBLIC_URL"] = f"http://127.0.0.1:{free}"
    return "127.0.0.1", free


def fetcher(number: int) -> Unit:
    """Return the unit of a fetcher: number 1 always runs, the others scale."""
    name = "fetcher" if number == 1 else f"fetcher-{number}"
    return Unit(name, manage("run_fetcher", "--name", fetcher_name(number)))


def fetcher_name(number: int) -> str:
    """Return the name of a fetcher of this box, unique among all hosts."""
    return f"{socket.gethostname()}-fetcher-{number}"


def _workers(*, builds_apart: bool) -> list[Unit]:
    # They stop first, to have time for their tasks.
    if not builds_apart:
        return [Unit("worker", manage("run_worker"), stops_first=True)]
    # Explicit names: two workers that start together would claim the host's default name.
    name = f"{socket.gethostname()}-builds"
    tasks = ("--queues", topology.TASKS)
    builds = ("--queues", topology.BUILDS, "--concurrency", "2", "--name", name)
    return [
        Unit("worker", manage("run_worker", *tasks), stops_first=True),
        Unit("builds", manage("run_worker", *builds), stops_first=True),
    ]
