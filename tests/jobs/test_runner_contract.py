"""What processes and containers do alike: one contract, two adapters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from apps.jobs.runners.base import (
    CannotRun,
    ContainerLimits,
    ExecutionRunner,
    RunExit,
    RunHandle,
    RunSpec,
)
from apps.jobs.runners.log_sources import LogLineRead, LogSource
from apps.jobs.runners.process import ProcessRunner

PATIENCE_SECONDS = 60.0


@dataclass
class Bench:
    """A runner, and how to start things with it."""

    make: Callable[[], ExecutionRunner]
    folder: Path
    image: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    boots: int = 0

    def __post_init__(self) -> None:
        self.runner = self.make()

    def spec(self, code: str, **fields: Any) -> RunSpec:
        """A command of Python, as a new execution of run 7."""
        self.boots += 1
        values: dict[str, Any] = {
            "run": 7,
            "boot": f"b{self.boots}",
            "folder": self.folder / "7",
            "environment": {"GREETING": "good day", **self.environment},
            "command": ("python3", "-c", code),
            "image": self.image,
            "limits": ContainerLimits(cpus=1.0, memory_bytes=128 * 1024**2, pids=32),
        }
        return RunSpec(**(values | fields))

    def start(self, code: str, **fields: Any) -> RunHandle:
        spec = self.spec(code, **fields)
        assert self.runner.ready(spec)
        return self.runner.start(spec)

    def end(self, handle: RunHandle) -> RunExit:
        until(lambda: self.runner.poll(handle) is not None, "the end")
        result = self.runner.poll(handle)
        assert result is not None
        return result

    def written(self, handle: RunHandle, words: str) -> str:
        """The log, once these words are in it."""
        source = self.log(handle)
        lines: list[str] = []

        def arrived() -> bool:
            lines.extend(line.text for line in source.read())
            return words in "\n".join(lines)

        until(arrived, words)
        source.close()
        return "\n".join(lines)

    def whole_log(self, handle: RunHandle) -> list[LogLineRead]:
        """The log of what has ended."""
        source = self.log(handle)
        lines: list[LogLineRead] = []

        def over() -> bool:
            read = source.read(last=True)
            lines.extend(read)
            return not read and source.ended

        until(over, "the end of the log")
        source.close()
        return lines

    def log(self, handle: RunHandle) -> LogSource:
        return self.runner.log(run=handle.run, boot=handle.boot, folder=self.folder / "7")


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.05)


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "process":
        bench = Bench(ProcessRunner, tmp_path)
        yield bench
        for number in range(1, bench.boots + 1):
            bench.runner.sweep(run=7, boot=f"b{number}")
        return
    lend = request.getfixturevalue("docker_runner")
    yield Bench(lend, tmp_path, image=request.getfixturevalue("base_image_id"))


HELLO = "import os; print(os.environ['GREETING'], flush=True)"
SLEEPS = "print('ready', flush=True)\nimport time; time.sleep(300)"
POLITE = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
    "print('ready', flush=True)\n"
    "time.sleep(300)\n"
)
DEAF = (
    "import signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('ready', flush=True)\n"
    "time.sleep(300)\n"
)
# Counts its starts in the run's folder.
COUNTS = "import os\nopen(os.environ['CRAWLYARD_RUN_DIR'] + '/starts', 'a').write('x')\n" + SLEEPS


def test_it_runs_with_its_environment_and_its_end_is_seen(bench: Bench) -> None:
    handle = bench.start(HELLO)
    assert bench.end(handle) == RunExit(code=0)
    assert bench.written(handle, "good day") == "good day"


def test_an_exit_status_comes_with_the_last_line(bench: Bench) -> None:
    handle = bench.start("print('no luck', flush=True); raise SystemExit(3)")
    assert bench.end(handle) == RunExit(code=3, reason="exit status 3: no luck")


def test_what_a_run_says_about_its_end_is_believed(bench: Bench) -> None:
    code = (
        "import os; os.chdir(os.environ['CRAWLYARD_RUN_DIR'])\n"
        'open(\'exit.json\', \'w\').write(\'{"state": "failed", "reason": "no page"}\')\n'
        "raise SystemExit(2)"
    )
    assert bench.end(bench.start(code)) == RunExit(code=2, state="failed", reason="no page")
    assert bench.end(bench.start("pass")) == RunExit(code=0), "it is the last one's word"


def test_it_is_found_again_by_another_runner(bench: Bench) -> None:
    handle = bench.start(SLEEPS)
    bench.written(handle, "ready")
    other = bench.make()
    where = {"run": 7, "boot": handle.boot, "folder": bench.folder / "7"}
    assert other.may_have_begun(**where)
    found = other.find(**where)
    assert found is not None
    assert (found.pid, found.container) == (handle.pid, handle.container)
    assert other.poll(found) is None
    other.kill(found)
    assert bench.end(handle).code in (-9, 137)
    other.close()


def test_what_never_began_is_known(bench: Bench) -> None:
    bench.end(bench.start(HELLO))
    where = {"run": 7, "boot": "never", "folder": bench.folder / "7"}
    assert not bench.runner.may_have_begun(**where)
    assert bench.runner.find(**where) is None
    assert bench.runner.sweep(run=7, boot="never") == 0


def test_the_same_execution_never_begins_twice(bench: Bench) -> None:
    spec = bench.spec(COUNTS)
    first = bench.runner.start(spec)
    bench.written(first, "ready")
    second = bench.make().start(spec)
    until(lambda: (bench.folder / "7" / "starts").exists(), "the start")
    if second.pid is not None:
        # A container's name cannot be given twice; a process finds the mark, and ends.
        until(lambda: bench.runner.poll(second) is not None, "the second one's end")
    assert (bench.folder / "7" / "starts").read_text() == "x"
    bench.runner.kill(first)
    bench.end(first)


def test_a_restart_is_another_execution(bench: Bench) -> None:
    first = bench.start(COUNTS)
    bench.written(first, "ready")
    bench.runner.kill(first)
    bench.end(first)
    second = bench.start(COUNTS)
    bench.written(second, "ready")
    assert (bench.folder / "7" / "starts").read_text() == "xx"
    assert bench.runner.poll(first) is not None
    assert bench.runner.poll(second) is None
    bench.runner.kill(second)
    bench.end(second)


def test_it_may_end_by_itself_when_asked(bench: Bench) -> None:
    handle = bench.start(POLITE)
    bench.written(handle, "ready")
    bench.runner.terminate(handle)
    assert bench.end(handle).code == 5
    bench.runner.terminate(handle)  # a repeat is harmless
    bench.runner.kill(handle)


def test_what_does_not_listen_is_killed(bench: Bench) -> None:
    handle = bench.start(DEAF)
    bench.written(handle, "ready")
    bench.runner.terminate(handle)
    assert bench.runner.poll(handle) is None
    bench.runner.kill(handle)
    assert bench.end(handle).code in (-9, 137)


COUNTING = (
    "import itertools, os, time\n"
    "path = os.environ['CRAWLYARD_RUN_DIR'] + '/count'\n"
    "for number in itertools.count():\n"
    "    with open(path + '.new', 'w') as file: file.write(str(number))\n"
    "    os.replace(path + '.new', path)\n"
    "    time.sleep(0.01)\n"
)


def test_a_frozen_one_stands_still_until_it_is_thawed(bench: Bench) -> None:
    handle = bench.start(COUNTING)
    path = bench.folder / "7" / "count"
    until(lambda: path.exists() and int(path.read_text()) > 5, "some counting")
    bench.runner.freeze(handle)
    bench.runner.freeze(handle)  # a repeat is harmless

    def stands_still() -> bool:
        # Many times as long as it takes to count on: nothing else tells that nothing happens.
        before = path.read_text()
        time.sleep(0.5)
        return path.read_text() == before

    until(stands_still, "an end of the counting")
    seen = path.read_text()
    assert bench.runner.poll(handle) is None
    bench.runner.thaw(handle)
    bench.runner.thaw(handle)
    until(lambda: int(path.read_text()) > int(seen) + 5, "more counting")
    bench.runner.freeze(handle)
    bench.runner.terminate(handle)
    bench.runner.kill(handle)
    assert bench.end(handle).code in (-9, -15, 137, 143)


def test_the_log_is_the_same_from_its_beginning_each_time(bench: Bench) -> None:
    handle = bench.start(
        "import sys\n"
        "for number in range(700): print('line', number)\n"
        "sys.stdout.write('half'); sys.stdout.flush()\n"
    )
    bench.end(handle)
    for _ in range(2):
        lines = bench.whole_log(handle)
        assert all(line.at > 1e9 for line in lines)
        numbered = [f"line {number}" for number in range(700)]
        assert [line.text for line in lines] == [*numbered, "half"]


def test_a_program_that_is_not_there_says_so(bench: Bench) -> None:
    spec = replace(bench.spec(""), command=("no-such-program",))
    try:
        assert bench.runner.ready(spec)
        result = bench.end(bench.runner.start(spec))
    except CannotRun as error:
        said = str(error)
    else:
        # The first process of a container is the engine's own, and finds out later.
        assert result.code == 127
        said = result.reason
    assert "no-such-program" in said


def test_what_is_left_running_is_swept(bench: Bench) -> None:
    handle = bench.start(SLEEPS)
    bench.written(handle, "ready")
    assert bench.runner.sweep(run=7, boot=handle.boot) >= 1
    bench.end(handle)


def test_the_engine_says_what_it_is(bench: Bench) -> None:
    assert bench.runner.engine().startswith(("Python 3", "Docker "))
