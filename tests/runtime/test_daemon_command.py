"""What every ``run_<noun>`` command does, with a sample daemon in processes of its own."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from tests.runtime.processes import Place, wait_for
from tests.runtime.sample.management.commands.run_sample import QUEUE
from yardkit.broker import Outgoing, connect

pytestmark = pytest.mark.slow("daemons as processes")


@dataclass(frozen=True)
class Row:
    """A line of the table of processes."""

    name: str
    state: str
    pid: int
    beat_at: str
    detail: dict[str, object]


def rows(place: Place) -> list[Row]:
    found = _query(
        place, "SELECT name, state, pid, beat_at, detail FROM runtime_daemon ORDER BY id"
    )
    return [Row(*row[:4], detail=json.loads(row[4])) for row in found]


def processed(place: Place) -> int:
    return int(_query(place, "SELECT count(*) FROM runtime_processedmessage")[0][0])


def _query(place: Place, sql: str) -> list[tuple[Any, ...]]:
    # Without Django: looking must be quicker than what is looked at.
    with closing(sqlite3.connect(place.folder / "crawlyard.sqlite3", timeout=20)) as database:
        return database.execute(sql).fetchall()


def state(place: Place) -> str | None:
    found = rows(place)
    return found[0].state if found else None


def publish(place: Place, *bodies: bytes) -> None:
    broker = connect(place.broker_url, name="test")
    broker.declare(QUEUE)
    broker.publish(
        [Outgoing(body=body, key=QUEUE.name, message_id=f"m{n}") for n, body in enumerate(bodies)]
    ).result(10)
    broker.close()


@contextmanager
def running(place: Place, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = place.start("run_sample", *arguments)
    try:
        wait_for(lambda: state(place) == "running" or process.poll() is not None, "it runs")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def end(process: subprocess.Popen[str], signum: int = signal.SIGTERM) -> str:
    before = time.monotonic()
    process.send_signal(signum)
    output, _ = process.communicate(timeout=60)
    assert time.monotonic() - before < 5, "a signal ends it within 5 s"
    assert "Traceback" not in output
    return output


@pytest.mark.fault
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_it_works_until_a_signal_and_says_good_bye(place: Place, signum: int) -> None:
    publish(place, b"one", b"two")
    with running(place) as process:
        wait_for(lambda: processed(place) == 2, "both are processed")
        assert rows(place)[0].pid == process.pid
        end(process, signum)
        assert process.returncode == 0
    assert state(place) == "stopped"


def test_once_ends_when_there_is_nothing_to_do(place: Place) -> None:
    publish(place, b"one", b"two", b"three")
    done = place.command("run_sample", "--once", "--name", "single")
    assert done.returncode == 0, done.stderr
    assert processed(place) == 3
    (row,) = rows(place)
    assert (row.name, row.state) == ("single", "stopped")


def test_status_shows_who_is_there(place: Place) -> None:
    nobody = place.command("run_sample", "--status")
    assert nobody.returncode == 1
    assert "no sample has ever run" in nobody.stdout
    with running(place, "--name", "first") as process:
        alive = place.command("run_sample", "--status")
        assert alive.returncode == 0, alive.stderr
        assert "first" in alive.stdout
        assert str(process.pid) in alive.stdout
        assert "running" in alive.stdout
        end(process)
    gone = place.command("run_sample", "--status")
    assert gone.returncode == 1
    assert "stopped" in gone.stdout


@pytest.mark.fault
def test_a_long_step_is_no_death(place: Place) -> None:
    with running(place, "--seconds", "600"):
        publish(place, b"one", b"slow")
        wait_for(lambda: processed(place) == 1, "it is inside the long step")
        before = rows(place)[0].beat_at
        wait_for(lambda: rows(place)[0].beat_at > before, "a heartbeat")


@pytest.mark.fault
def test_a_failing_step_is_told_and_tried_again(place: Place) -> None:
    publish(place, b"bug")
    process = place.start("run_sample")
    try:
        wait_for(lambda: state(place) == "failing", "the row says that it fails")
        assert "a step that raises" in str(rows(place)[0].detail)
        assert process.poll() is None
        # The traceback of a bug is in the log; the signal still ends it in time.
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
    assert output.count("Traceback") == 1


@pytest.mark.fault
def test_the_successor_of_a_killed_one_takes_its_row(place: Place) -> None:
    with running(place) as first:
        first.kill()
        first.wait()
        with running(place) as second:
            wait_for(lambda: rows(place)[0].pid == second.pid, "the row is taken over")
            assert len(rows(place)) == 1
            end(second)


@pytest.mark.fault
def test_a_neighbour_gets_a_name_of_its_own(place: Place) -> None:
    with running(place) as first:
        second = place.start("run_sample")
        try:
            wait_for(lambda: len(rows(place)) == 2, "two rows")
        finally:
            end(second)
        assert first.poll() is None
        names = [row.name for row in rows(place)]
        assert names[1] == f"{names[0]}-2"
        end(first)


@pytest.mark.fault
def test_who_is_replaced_ends_and_says_why(place: Place) -> None:
    with running(place, "--name", "only") as first:
        second = place.start("run_sample", "--name", "only")
        try:
            output, _ = first.communicate(timeout=60)
            assert first.returncode == 1
            assert "give each its own --name" in output
            wait_for(lambda: state(place) == "running", "the row is the new one's")
        finally:
            end(second)


@pytest.mark.fault
def test_it_dies_with_the_supervisor_when_told_to(place: Place) -> None:
    supervisor = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\n"
            "child = subprocess.Popen([sys.executable, '-m', 'django', 'run_sample'])\n"
            "print(child.pid, flush=True)\n"
            "time.sleep(600)",
        ],
        env=place.environment(CRAWLYARD_DIE_WITH_PARENT="1"),
        cwd=place.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert supervisor.stdout is not None
    child = psutil.Process(int(supervisor.stdout.readline()))
    wait_for(lambda: state(place) == "running", "it runs")
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor.communicate()
    gone, _alive = psutil.wait_procs([child], timeout=30)
    assert gone
    assert state(place) == "stopped"


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({"BROKER_URL": "carrier-pigeon://loft"}, "BROKER_URL: "),
        ({"BROKER_URL": "amqp://ops:s3cret@127.0.0.1:1/"}, "BROKER_URL: "),
        ({"BROKER_URL": "amqp://guest:guest@rabbit.invalid/"}, "runtime.E001: "),
        ({"FAILPOINTS": "x=explode"}, "FAILPOINTS: "),
        ({"DATABASE_URL": "sqlite:////proc/no/such/folder/db"}, "DATABASE_URL: "),
    ],
)
def test_a_bad_setting_is_one_line_and_exit_status_2(
    place: Place, environment: dict[str, str], line: str
) -> None:
    done = place.command("run_sample", "--once", **environment)
    assert done.returncode == 2, done.stderr
    assert line in done.stderr
    assert "Traceback" not in done.stderr
    assert "s3cret" not in done.stderr


def test_an_unmigrated_database_says_what_to_do(place: Place) -> None:
    for arguments in (["--once"], ["--status"]):
        done = place.command(
            "run_sample", *arguments, DATABASE_URL=f"sqlite:///{place.folder / 'empty.sqlite3'}"
        )
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "run manage.py migrate" in done.stderr
