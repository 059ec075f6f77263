"""The daemon loop: stepwise in this process, with real signals in others."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from yardkit.backoff import back_off
from yardkit.broker.base import BadBrokerURL
from yardkit.daemon import CannotStart, Options, run
from yardkit.env import EnvError
from yardkit.heartbeat import Beat, read_beat, write_beat
from yardkit.stop import Stop

PLATFORM = Path(__file__).parents[2] / "platform"
PROGRAM = """
import logging, sys, time
from pathlib import Path
from yardkit.daemon import Options, run
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)

class Yard:
    def setup(self): pass
    def step(self):
        MODE
        return False
    def teardown(self): print("given back", flush=True)

options = Options(name="run_yard", poll_seconds=60, heartbeat_file=Path(sys.argv[1]),
                  heartbeat_seconds=0.1)
sys.exit(run(Yard(), options))
"""


class Script:
    """A daemon whose steps are given; the last one asks for the stop."""

    def __init__(self, stop: Stop, *steps: Callable[[], bool] | bool | Exception) -> None:
        self.stop = stop
        self.steps = list(steps)
        self.calls: list[str] = []
        self.setup_errors: list[Exception] = []
        self.teardown_error: Exception | None = None

    def setup(self) -> None:
        self.calls.append("setup")
        if self.setup_errors:
            raise self.setup_errors.pop(0)

    def step(self) -> bool:
        self.calls.append("step")
        action = self.steps.pop(0)
        if not self.steps:
            self.stop.request()
        if isinstance(action, Exception):
            raise action
        return action if isinstance(action, bool) else action()

    def teardown(self) -> None:
        self.calls.append("teardown")
        if self.teardown_error is not None:
            raise self.teardown_error


@pytest.fixture
def stop() -> Any:
    stop = Stop()
    yield stop
    stop.close()


def quick(**changes: Any) -> Options:
    changes = {"first_delay_seconds": 0.001, "longest_delay_seconds": 0.002} | changes
    return Options(name="run_yard", poll_seconds=0.001, **changes)


def test_steps_until_the_stop(stop: Stop) -> None:
    script = Script(stop, True, False, True)
    assert run(script, quick(), stop=stop) == 0
    assert script.calls == ["setup", "step", "step", "step", "teardown"]


def test_once_ends_when_idle(stop: Stop) -> None:
    script = Script(stop, True, True, False, True)
    assert run(script, quick(once=True), stop=stop) == 0
    assert script.calls.count("step") == 3


def test_failures_are_survived(stop: Stop, caplog: pytest.LogCaptureFixture) -> None:
    beats: list[Beat] = []
    script = Script(stop, OSError("gone"), OSError("gone"), True, ValueError("odd"), True)
    with caplog.at_level(logging.INFO):
        assert run(script, quick(), stop=stop, beat=beats.append) == 0
    failed = [record for record in caplog.records if "failed (" in record.getMessage()]
    assert [record.getMessage() for record in failed] == [
        "run_yard failed (1 of 10): OSError: gone",
        "run_yard failed (2 of 10): OSError: gone",
        "run_yard failed (1 of 10): ValueError: odd",
    ]
    # The world's fault is one line; the code's comes with its traceback.
    assert [record.exc_info is not None for record in failed] == [False, False, True]
    assert "run_yard works again" in caplog.messages
    assert "failing" in [beat.state for beat in beats]
    assert [beat.state for beat in beats][-2:] == ["stopping", "stopped"]
    assert len({beat.boot for beat in beats}) == 1


def test_too_many_failures_in_a_row_end_it(stop: Stop) -> None:
    script = Script(stop, *[OSError("gone")] * 9)
    assert run(script, quick(max_failures=3), stop=stop) == 1
    assert script.calls == ["setup", "step", "step", "step", "teardown"]


def test_a_failed_setup_is_tried_again(stop: Stop) -> None:
    script = Script(stop, True)
    script.setup_errors = [OSError("not yet"), OSError("not yet")]
    assert run(script, quick(), stop=stop) == 0
    assert script.calls == ["setup", "setup", "setup", "step", "teardown"]


@pytest.mark.parametrize(
    "error",
    [EnvError("PORT", "is used", "use another"), BadBrokerURL("no broker"), CannotStart("no")],
)
def test_a_bad_setting_is_one_line_and_status_2(
    stop: Stop, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    script = Script(stop, True)
    script.setup_errors = [error]
    assert run(script, quick(), stop=stop) == 2
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in errors] == [str(error)]
    assert errors[0].exc_info is None


def test_a_bad_failpoint_is_a_bad_setting(
    stop: Stop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FAILPOINTS", "nonsense")
    assert run(Script(stop, True), quick(), stop=stop) == 2
    assert caplog.messages[-1].startswith("FAILPOINTS: ")


def test_a_failing_teardown_and_heartbeat_stop_nothing(
    stop: Stop, caplog: pytest.LogCaptureFixture
) -> None:
    def beat(beat: Beat) -> None:
        raise OSError("database away")

    script = Script(stop, True, True)
    script.teardown_error = ValueError("odd")
    assert run(script, quick(heartbeat_seconds=0), stop=stop, beat=beat) == 0
    assert [text for text in caplog.messages if "heartbeat fails" in text] == [
        "run_yard: heartbeat fails: OSError: database away"
    ]
    assert "run_yard: teardown failed" in caplog.messages


def test_heartbeats_go_on_while_waiting(stop: Stop, tmp_path: Path) -> None:
    beats: list[Beat] = []

    def beat(beat: Beat) -> None:
        beats.append(beat)
        if len(beats) >= 6:
            stop.request()

    options = Options(
        name="run_yard",
        poll_seconds=3600,
        heartbeat_seconds=0.005,
        heartbeat_file=tmp_path / "new" / "yard.json",
    )
    assert run(Script(stop, False, True), options, stop=stop, beat=beat) == 0
    last = read_beat(tmp_path / "new" / "yard.json")
    assert last is not None
    assert (last.state, last.pid, last.steps) == ("stopped", os.getpid(), 1)


def test_status(tmp_path: Path, capsys: pytest.CaptureFixture[str], stop: Stop) -> None:
    file = tmp_path / "yard.json"
    options = Options(name="run_yard", status=True, heartbeat_file=file)
    script = Script(stop, True)
    assert run(script, options) == 3
    write_beat(file, make_beat(state="running", at=time.time(), steps=12))
    assert run(script, options) == 0
    write_beat(file, make_beat(state="failing", at=time.time(), error="OSError: gone"))
    assert run(script, options) == 0
    write_beat(file, make_beat(state="running", at=time.time() - 60))
    assert run(script, options) == 3
    write_beat(file, make_beat(state="stopped", at=time.time()))
    assert run(script, options) == 3
    file.write_bytes(b"{half")
    assert run(script, options) == 3
    assert run(script, Options(name="run_yard", status=True)) == 2
    assert script.calls == []
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("run_yard: running, pid 42, 0 s ago, 12 steps")
    assert "last error: OSError: gone" in lines[2]
    assert len(lines) == 7


def make_beat(**changes: Any) -> Beat:
    values: dict[str, Any] = {"name": "run_yard", "boot": "b", "host": "h", "pid": 42}
    return Beat(**(values | changes))


def test_back_off_doubles_with_jitter_up_to_a_limit() -> None:
    for failures, whole in ((1, 0.5), (2, 1.0), (3, 2.0), (20, 30.0), (5000, 30.0)):
        for _ in range(20):
            assert whole / 2 <= back_off(failures, 0.5, 30.0) <= whole


def start(tmp_path: Path, mode: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("MODE", mode), str(tmp_path / "yard.json")],
        env=os.environ | {"PYTHONPATH": str(PLATFORM)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_waiting_daemon(tmp_path: Path, signum: signal.Signals) -> None:
    process = start(tmp_path, "print('stepped', flush=True)")
    assert process.stdout is not None
    while process.stdout.readline() != "stepped\n":
        pass
    began = time.monotonic()
    process.send_signal(signum)
    output, errors = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert process.returncode == 0
    assert errors == ""
    assert "given back\n" in output
    assert f"run_yard stopped ({signum.name})" in output
    beat = read_beat(tmp_path / "yard.json")
    assert beat is not None
    assert beat.state == "stopped"


@pytest.mark.slow("4 s")
def test_a_step_that_never_ends_is_left(tmp_path: Path) -> None:
    process = start(tmp_path, "print('stuck', flush=True); time.sleep(60)")
    assert process.stdout is not None
    while process.stdout.readline() != "stuck\n":
        pass
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "run_yard did not stop in 4 s, leaves" in output
    assert errors == ""


@pytest.mark.fault
def test_a_step_that_waits_for_a_locked_database_hears_of_the_signal_too(tmp_path: Path) -> None:
    # Inside SQLite no Python runs, so no signal handler either.
    path = tmp_path / "locked.sqlite3"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        waits = f"sqlite3.connect({str(path)!r}, timeout=60).execute('CREATE TABLE t (c)')"
        process = start(tmp_path, f"import sqlite3; print('stuck', flush=True); {waits}")
        assert process.stdout is not None
        while process.stdout.readline() != "stuck\n":
            pass
        # Time to get into the library, where the signal must reach it.
        time.sleep(0.3)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=50)
        assert time.monotonic() - began < 10
    assert process.returncode == 1
    assert "run_yard did not stop in 4 s, leaves" in output
    assert errors == ""
