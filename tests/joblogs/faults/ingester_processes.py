"""Ingesters in processes of their own, to be broken, and what must be in the log afterwards."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from apps.joblogs.stores.base import BEGINNING, LogStore, StoredLine, StreamState
from apps.joblogs.stores.factory import open_log_store
from apps.jobs.runners.log_shipper import LogShipper
from apps.jobs.runners.log_sources import FileLog
from tests.e2e.daemon_processes import Daemons
from tests.joblogs import elastic_server
from yardkit import topology
from yardkit.broker import Broker, connect

# `make test-faults` says so.
FULL = os.environ.get("CRAWLYARD_FAULTS") == "full"
# More than is stored while ingesters are killed.
LINES = 240_000 if FULL else 20_000
RUNS = 4
# In the order in which a batch passes them.
POINTS = [
    "joblogs.before_write",
    "joblogs.after_write",
    "joblogs.before_commit",
    "joblogs.before_ack",
]
# Between writing the numbers of lines and the lines, in a store that has no transactions.
ELASTIC = ["joblogs.elastic.reserved", "joblogs.elastic.created"]
# The last of each run are counted and not sent.
DROPPED = 100
PATIENCE_SECONDS = 300.0 if FULL else 120.0
_MAKE_RUNS = """
from apps.projects.models import Project
from apps.jobs.models import Job
from apps.jobs.services import start_run
from django.utils import timezone
project = Project.objects.create(name="logs", slug="logs")
for number in range({count}):
    job = Job.objects.create(project=project, name=f"job {{number}}", spider="a:B")
    print("run", start_run(job=job, now=timezone.now(), actor=None).pk)
"""


# A broker and a log store.
KINDS = [
    pytest.param("embedded", marks=pytest.mark.twin),
    pytest.param("services", marks=pytest.mark.services),
    pytest.param(
        "elastic", marks=[elastic_server.WANTED, pytest.mark.long("on PostgreSQL; outages of both")]
    ),
]


class IngesterHarness:
    """A broker with the lines of some runs in it: of each ``sent``, and others that are dropped."""

    def __init__(self, folder: Path, lines: int = LINES, **environment: str) -> None:
        self.sent = sent_of_a_run(lines)
        self.daemons = Daemons(folder, **environment)
        self.daemons.migrate()
        self.broker: Broker = connect(self.daemons.environment["BROKER_URL"], name="test")
        self.broker.declare(*topology.SHARED)
        self.folder = folder
        made = self.daemons.manage("shell", "-v0", "-c", _MAKE_RUNS.format(count=RUNS))
        self.runs = [int(line.split()[1]) for line in made.stdout.splitlines() if "run " in line]
        assert len(self.runs) == RUNS

    def close(self) -> None:
        """Leave nothing behind."""
        self.daemons.end()
        self.broker.close()

    @property
    def logs_url(self) -> str:
        """Where the ingesters keep lines."""
        default = f"sqlite://{self.folder / 'data' / 'logs'}"
        return self.daemons.environment.get("LOGS_URL", default)

    def emit(self) -> None:
        """What the runs write, shipped as a runner does it: each drops its last 100 lines."""
        shipper = LogShipper(self.broker)
        for run in self.runs:
            path = self.folder / f"{run}.txt"
            numbers = range(1, self.sent + DROPPED + 1)
            path.write_text("".join(f"{run} wrote {n}\n" for n in numbers))
            shipper.follow(run=run, boot="b1", source=FileLog(path))
            shipper.finish(run=run)
        self.until(lambda: shipper.step() is not None and shipper.idle)

    def start(self, name: str, *failpoints: str) -> None:
        """An ingester that breaks at these points."""
        self.daemons.start(
            name, "run_log_ingester", "--name", name, FAILPOINTS=",".join(failpoints)
        )

    def stored(self) -> int:
        """How many lines are in the store."""
        with closing(open_log_store(self.logs_url)) as store:
            store.setup()
            return self._stored(store)

    def _stored(self, store: LogStore) -> int:
        states = [store.stream_state(f"run:{number}") for number in self.runs]
        return sum(state.lines for state in states if state is not None)

    def until_stored(self, before: int) -> float:
        """Wait until there are more than that; the seconds it took."""
        began = time.monotonic()
        assert before < self.sent * RUNS, "nothing is left to be stored"
        with closing(open_log_store(self.logs_url)) as store:
            self.until(lambda: self._stored(store) > before)
        return time.monotonic() - began

    def until_killed(self, *failpoints: str) -> None:
        """An ingester that kills itself there."""
        self.start("killed", *failpoints)
        process = self.daemons.processes["killed"]
        assert process.wait(PATIENCE_SECONDS) == -9, self.daemons.log("killed")

    def until_settled(self) -> None:
        """All lines are there; then the ingesters end, and nothing goes back to the queue."""
        with closing(open_log_store(self.logs_url)) as store:
            store.setup()
            self.until(
                lambda: all(self._is_complete(store.stream_state(f"run:{n}")) for n in self.runs)
            )
        for name in [name for name in self.daemons.processes if name != "killed"]:
            # Before that a signal would just end it.
            self.daemons.until_logged(name, "is running")
            assert self.daemons.stop(name, signal.SIGTERM)[0] == 0, self.daemons.log(name)
        depth = self.broker.depth(topology.LOGS.name)
        assert (depth.ready, max(depth.unacked, 0)) == (0, 0)

    def _is_complete(self, state: StreamState | None) -> bool:
        return state is not None and state.lines >= self.sent and state.dropped >= DROPPED

    def waiting(self) -> int:
        """Messages in the queue."""
        return self.broker.depth(topology.LOGS.name).ready

    def until(self, happened: Callable[[], bool]) -> None:
        """Wait for it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not happened():
            for name, process in self.daemons.processes.items():
                assert name == "killed" or process.poll() is None, self.daemons.log(name)
            assert time.monotonic() < deadline, {
                name: self.daemons.log(name)[-2000:] for name in self.daemons.processes
            }
            time.sleep(0.05)

    def check_books(self) -> dict[str, int]:
        """Each line that was sent is there once, the others are counted, none was refused.

        Of how many lines it is, how many are not there, and how many once too often.
        """
        found = Counter[str]()
        with closing(open_log_store(self.logs_url)) as store:
            for run in self.runs:
                state = store.stream_state(f"run:{run}")
                assert state is not None
                lines: list[StoredLine] = []
                place = BEGINNING
                while page := store.page(state.stream, after=place, limit=1000):
                    lines += page
                    place = page[-1].ref
                found += compared(lines, run, self.sent)
                check(state, lines, run, self.sent)
        assert self.broker.depth("dead").ready == 0
        return {name: found[name] for name in ("of", "lost", "twice")}


def sent_of_a_run(lines: int) -> int:
    """Of so many lines of all runs."""
    return lines // RUNS - DROPPED


def compared(lines: list[StoredLine], run: int, sent: int) -> Counter[str]:
    """The lines of a run beside those that it sent."""
    expected = {f"{run} wrote {n}" for n in range(1, sent + 1)}
    there = Counter(line.text for line in lines)
    lost = len(expected - set(there))
    return Counter(of=len(expected), lost=lost, twice=there.total() - len(there))


def check(state: StreamState, lines: list[StoredLine], run: int, sent: int) -> None:
    """distinct = emitted - counted drops."""
    assert [str(line.ref) for line in lines] == [f"1.{n}" for n in range(1, sent + 1)]
    assert [line.text for line in lines] == [f"{run} wrote {line.ref.seq}" for line in lines]
    assert state.lines == len(lines) == sent + DROPPED - state.dropped
    assert (state.dropped, state.missing, state.forgotten) == (DROPPED, {}, 0)
