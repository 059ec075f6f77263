"""Which tests may run beside which, when several processes share the work (``pytest -n 2``).

A file's tests stay together, so that what its fixtures make is made once. The longest begin first,
because a long one that begins last leaves the other processes idle: those that need an engine, a
browser or a whole installation, then whatever starts processes, then the rest.

With ``CRAWLYARD_TEST_TURN=N``, for runs that are ended before all tests have run, the files are
mixed and rotated by a tenth of them for each turn: eleven runs that get through a tenth each have
run all.

The groups go from those who collect the tests to the one who hands them out by files of their own:
xdist's mark for groups is written into the names of tests, and has no effect with this pytest.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.plugins.long_tests import is_slow

# They clear each other's containers and images away, so one process has them all.
DOCKER = "docker"
# Its fixtures, a broker and daemons to break, serve several files.
CLUSTER, CLUSTER_FIXTURE = "cluster", "own_rabbit"

_folder = pytest.StashKey[Path]()
# So many of the slowest files are named.
_NAMED = 25
# Each turn begins after a tenth of the files that the one before began with.
_TURNS = 10


class _Scheduler(LoadScopeScheduling):
    """Hands out whole groups, in the order in which those who collected them have put them."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._groups: dict[str, str] = {}

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        if not self._groups:
            path = self.config.stash[_folder] / node.gateway.id
            self._groups = json.loads(path.read_bytes())
        super().add_node_collection(node, collection)

    def remove_node(self, node: WorkerController) -> str | None:
        """The test during which a process died; the rest of what it had goes to others.

        xdist's own gives all of it back: whoever is handed a group that is complete waits for ever,
        and the test that killed one process kills the next.
        """
        work: dict[str, dict[str, bool]] = self.assigned_work.pop(node)
        left = (nodeid for tests in work.values() for nodeid, done in tests.items() if not done)
        crashed = next(left, None)
        if crashed is None:
            return None
        work[self._split_scope(crashed)][crashed] = True
        self.workqueue.update({k: tests for k, tests in work.items() if not all(tests.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Scheduler | None:
    """Ours for ``--dist loadgroup``."""
    return _Scheduler(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a process where to leave its groups."""
    stash = node.config.stash
    if _folder not in stash:
        stash[_folder] = Path(tempfile.mkdtemp(prefix="crawlyard-groups-"))
    node.workerinput["groups"] = str(stash[_folder] / node.gateway.id)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the groups."""
    if _folder in config.stash:
        shutil.rmtree(config.stash[_folder], ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Put the groups in order and write them down. Nothing changes without ``-n``."""
    yield
    # Only now: pytest-django has put those with a database before all others.
    given = getattr(config, "workerinput", {}).get("groups")
    if given and config.getoption("loadgroup"):
        items.sort(key=_order(items))
        Path(given).write_text(json.dumps({item.nodeid: _group(item) for item in items}))


class _Times:
    """Seconds by file, with those of fixtures, and by process: who waited for whom."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.processes: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        process = getattr(report, "node", None)
        if process is not None:
            self.files[report.nodeid.partition("::")[0]] += report.duration
            self.processes[process.gateway.id] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.files:
            terminalreporter.section("slowest files")
            for file, seconds in self.files.most_common(_NAMED):
                terminalreporter.line(f"{seconds:7.1f} s  {file}")
            busy = ", ".join(f"{name} {s:.0f} s" for name, s in sorted(self.processes.items()))
            terminalreporter.line(f"processes: {busy}")


def pytest_configure(config: pytest.Config) -> None:
    """Time the files of a shared run."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Times())


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _has_mark(item: pytest.Item, *names: str) -> bool:
    return any(item.get_closest_marker(name) is not None for name in names)


def _uses(item: pytest.Item, fixture: str) -> bool:
    return fixture in getattr(item, "fixturenames", ())


def _group(item: pytest.Item) -> str:
    if _has_mark(item, "docker"):
        return DOCKER
    if _uses(item, CLUSTER_FIXTURE):
        return CLUSTER
    return _file(item)


def rotated(files: Sequence[str], turn: int) -> list[str]:
    """The files in the order of this turn.

    Folders of long tests are spread over all turns. The step has no common divisor with the number
    of files, so every file comes first in one of as many turns.
    """
    mixed = sorted(files, key=lambda file: zlib.crc32(file.encode()))
    step = max(1, math.ceil(len(mixed) / _TURNS))
    while math.gcd(step, len(mixed)) > 1:
        step -= 1
    first = turn * step % max(1, len(mixed))
    return mixed[first:] + mixed[:first]


def _order(items: Sequence[pytest.Item]) -> Callable[[pytest.Item], tuple[int, int]]:
    """Sort key: the long ones first; with a turn, the files whose turn it is."""
    files = list(dict.fromkeys(map(_file, items)))
    turn = os.environ.get("CRAWLYARD_TEST_TURN", "")
    places = {file: n for n, file in enumerate(rotated(files, int(turn)) if turn else files)}
    return lambda item: (0 if turn else _rank(item), places[_file(item)])


def _rank(item: pytest.Item) -> int:
    """The long ones have a low one."""
    ranks = (
        _has_mark(item, "docker"),
        _uses(item, CLUSTER_FIXTURE),
        _has_mark(item, "browser") or _file(item).startswith("tests/e2e/"),
        is_slow(item),
    )
    return next((rank for rank, fits in enumerate(ranks) if fits), len(ranks))
