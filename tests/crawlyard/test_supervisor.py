"""The supervisor with real child processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crawlyard.supervisor import LONGEST_LINE_BYTES, Supervisor, Unit, UnitFailed
from tests.plugins.measurements import Measured

SLEEP = "import time; print('up', flush=True); time.sleep(60)"
DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('up', flush=True); time.sleep(60)"
)
SLOW = (
    "import signal, sys, time;"
    "end = lambda *_: (time.sleep(2), print('done', flush=True), sys.exit());"
    "signal.signal(signal.SIGTERM, end); "
    "print('up', flush=True); time.sleep(60)"
)
FAMILY = (
    "import subprocess, sys, time;"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    "print(child.pid, flush=True); time.sleep(60)"
)

# Like a runner that hangs: its run is in a session of its own, and out of reach of its group.
DEAF_WITH_RUN = (
    "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "run = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
    " start_new_session=True); print(run.pid, flush=True); time.sleep(60)"
)
FIRST_PROCESS = """
import sys
import time
import psutil
from crawlyard.supervisor import Supervisor, Unit

# A child that leaves an orphan behind, which dies a little later.
leaves = (
    "import subprocess, sys, time;"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(0.3)'],"
    " start_new_session=True); print('left', flush=True); time.sleep(0.1)"
)
unit = Unit("a", [sys.executable, "-c", leaves])
supervisor = Supervisor([unit], lambda name, line: None)
supervisor.start()
deadline = time.monotonic() + 20
orphans = set()
while time.monotonic() < deadline:
    supervisor.step(0.02)
    found = psutil.Process().children()
    orphans |= {one.pid for one in found} - set(supervisor.pids().values())
    dead = [one for one in found if one.status() == psutil.STATUS_ZOMBIE]
    if orphans and not dead and not any(psutil.pid_exists(pid) for pid in orphans):
        break
else:
    sys.exit("the orphans were not buried: " + str((orphans, found)))
supervisor.stop()
"""


def unit(name: str, code: str, *, stops_first: bool = False) -> Unit:
    return Unit(name, [sys.executable, "-c", code], stops_first=stops_first)


class Box:
    """A supervisor and what it logged."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.supervisor: Supervisor | None = None

    def start(self, *units: Unit) -> Supervisor:
        self.supervisor = Supervisor(units, lambda name, line: self.lines.append((name, line)))
        self.supervisor.start()
        return self.supervisor

    def until(self, happened: Callable[[], bool], seconds: float = 20.0) -> None:
        assert self.supervisor is not None
        deadline = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < deadline, self.lines
            self.supervisor.step(0.05)

    def said(self, name: str, line: str) -> Callable[[], bool]:
        return lambda: (name, line) in self.lines


@pytest.fixture
def box() -> Iterator[Box]:
    box = Box()
    yield box
    if box.supervisor is not None:
        box.supervisor.stop()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_logs_are_merged_under_their_names(box: Box) -> None:
    box.start(unit("a", "print('one'); print('two', end='')" + "; " + SLEEP), unit("b", SLEEP))
    # A line is told once it is whole, and under the name of the process that wrote it.
    box.until(lambda: {("a", "one"), ("a", "twoup"), ("b", "up")} <= set(box.lines))


def test_output_without_a_newline_is_cut_and_not_kept(box: Box) -> None:
    size = 8 * LONGEST_LINE_BYTES
    endless = f"import sys; sys.stdout.write('x' * {size}); sys.stdout.flush(); import time"
    box.start(unit("a", endless + "; time.sleep(60)"))
    box.until(lambda: sum(len(line) for name, line in box.lines if name == "a") == size)
    assert max(len(line) for _name, line in box.lines) <= 2 * LONGEST_LINE_BYTES


@pytest.mark.fault
def test_a_child_that_dies_is_started_again(box: Box, measured: Measured) -> None:
    supervisor = box.start(unit("a", SLEEP))
    box.until(box.said("a", "up"))
    first = supervisor.pids()["a"]
    os.kill(first, signal.SIGKILL)
    killed_at = time.monotonic()
    box.until(lambda: box.lines.count(("a", "up")) == 2)
    measured(back_s=time.monotonic() - killed_at)
    assert supervisor.pids()["a"] != first
    assert supervisor.restarts() == 1
    assert any("signal 9" in line for name, line in box.lines if name == "up")


@pytest.mark.fault
def test_one_that_was_healthy_is_started_again_at_once(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawlyard.supervisor.HEALTHY_SECONDS", 0.0)
    supervisor = box.start(unit("a", SLEEP))
    box.until(box.said("a", "up"))
    os.kill(supervisor.pids()["a"], signal.SIGKILL)
    box.until(lambda: box.lines.count(("a", "up")) == 2)
    assert ("up", "a ended with signal 9; starting again") in box.lines


def test_a_child_that_refuses_its_settings_ends_the_box_with_its_own_words(box: Box) -> None:
    box.start(unit("a", "import sys; sys.exit(print('BROKER_URL: bad') or 2)"), unit("b", SLEEP))
    with pytest.raises(UnitFailed, match="BROKER_URL: bad"):
        box.until(lambda: False)


def test_what_a_dead_child_has_started_does_not_go_on_without_it(box: Box) -> None:
    supervisor = box.start(unit("family", FAMILY))
    box.until(lambda: any(name == "family" for name, _ in box.lines))
    grandchild = next(int(line) for name, line in box.lines if name == "family")
    os.kill(supervisor.pids()["family"], signal.SIGKILL)
    box.until(lambda: gone(grandchild))


@pytest.mark.fault
def test_settings_that_were_good_a_moment_ago_do_not_end_the_box(box: Box, tmp_path: Path) -> None:
    # The second start finds the database away, say, and says what a first one would say too.
    twice = f"import pathlib, sys; seen = pathlib.Path({str(tmp_path / 'seen')!r});" + (
        "again = seen.exists(); seen.touch();"
        "sys.exit(print('again' if again else 'first') or (2 if again else 1))"
    )
    box.start(unit("a", twice), unit("b", SLEEP))
    box.until(lambda: box.lines.count(("a", "again")) == 2)
    assert any("exit status 2" in line for name, line in box.lines if name == "up")


@pytest.mark.fault
def test_a_child_that_cannot_be_started_is_tried_again(box: Box, tmp_path: Path) -> None:
    program = tmp_path / "program"
    box.start(Unit("a", [str(program)]), unit("b", SLEEP))
    box.until(lambda: any("cannot be started" in line for _, line in box.lines))
    program.write_text(f"#!{sys.executable}\nprint('there', flush=True)\n")
    program.chmod(0o755)
    box.until(box.said("a", "there"))


@pytest.mark.fault
def test_the_runs_of_a_child_that_had_to_be_killed_are_ended_too(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawlyard.supervisor.FIRST_GRACE_SECONDS", 0.2)
    supervisor = box.start(unit("deaf", DEAF_WITH_RUN, stops_first=True))
    box.until(lambda: any(name == "deaf" for name, _ in box.lines))
    run = next(int(line) for name, line in box.lines if name == "deaf")
    supervisor.stop()
    deadline = time.monotonic() + 5
    while not gone(run):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.fault
def test_as_the_first_process_of_a_container_it_buries_the_orphans() -> None:
    command = ["unshare", "-fp", "--mount-proc", sys.executable, "-c", FIRST_PROCESS]
    if shutil.which("unshare") is None or subprocess.run([*command[:3], "true"]).returncode:
        pytest.skip("no process namespace can be made here")
    path = os.pathsep.join(sys.path)
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, timeout=60, check=False)
    assert done.returncode == 0


@pytest.mark.slow("2 s")
def test_the_last_to_stop_have_the_time_that_the_first_left_over(box: Box) -> None:
    supervisor = box.start(unit("slow", SLOW), unit("first", FAMILY, stops_first=True))
    box.until(lambda: len({name for name, _ in box.lines}) == 2)
    supervisor.stop()
    assert ("slow", "done") in box.lines


@pytest.mark.slow("5 s")
def test_stop_ends_every_child_and_its_children_within_five_seconds(box: Box) -> None:
    supervisor = box.start(
        unit("family", FAMILY), unit("deaf", DEAF), unit("first", DEAF, stops_first=True)
    )
    box.until(lambda: len({name for name, _ in box.lines}) == 3)
    grandchild = next(int(line) for name, line in box.lines if name == "family")
    pids = supervisor.pids()
    began = time.monotonic()
    supervisor.stop()
    assert time.monotonic() - began < 5.0
    assert all(gone(pid) for pid in pids.values())
    deadline = time.monotonic() + 5
    while not gone(grandchild):
        # An orphan is reaped by the system's first process, in its own time.
        assert time.monotonic() < deadline
        time.sleep(0.02)
