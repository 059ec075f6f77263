"""Redialling: real commands, a real lock, several processes."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from apps.agents.downloader.fetchers.options import read_fetch_options
from apps.agents.downloader.fetchers.redial import MOST_ATTEMPTS, Redialer, RedialOptions
from tests.agents.downloader.fetchers.conftest import Opener
from tools.requirement_marks import ROOT
from yardkit.env import Env, EnvError


class Clock:
    """A wall clock that tests move; sleeping moves it, too."""

    def __init__(self) -> None:
        self.seconds = 1_700_000_000.0
        self.slept: list[float] = []

    def time(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)


class Line:
    """A redialler whose command counts its calls in a file."""

    def __init__(self, folder: Path, script: str = "", **options: object) -> None:
        self.calls = folder / "calls"
        self.clock = Clock()
        self.lock = folder / "locks" / "redial.lock"
        self.answers: list[bool] = []
        command = ("sh", "-c", f"echo call >> $0; {script}", str(self.calls))
        self.options = RedialOptions(command, self.lock, **options)  # type: ignore[arg-type]
        self.redialer = self.again()

    def again(self) -> Redialer:
        return Redialer(
            self.options,
            self.clock,  # type: ignore[arg-type]
            check=self.check,
            sleep=self.clock.sleep,
        )

    async def check(self) -> bool:
        return self.answers.pop(0) if self.answers else True

    @property
    def count(self) -> int:
        return self.calls.read_text().count("call") if self.calls.exists() else 0


@pytest.mark.covers("S1.28")
async def test_two_minutes_lie_between_two_redials(tmp_path: Path) -> None:
    line = Line(tmp_path)
    assert await line.redialer.redial(line.clock.time())
    assert (line.count, line.clock.slept) == (1, [])
    line.clock.seconds += 50
    assert await line.redialer.redial(line.clock.time())
    assert (line.count, line.clock.slept) == (2, [70.0])
    # The file outlives the process.
    line.clock.seconds += 20
    assert await line.again().redial(line.clock.time())
    assert (line.count, line.clock.slept) == (3, [70.0, 100.0])
    line.clock.seconds += 500
    assert await line.again().redial(line.clock.time())
    assert (line.count, len(line.clock.slept)) == (4, 2)


@pytest.mark.covers("S1.28")
async def test_a_download_from_before_needs_no_second_redial(tmp_path: Path) -> None:
    line = Line(tmp_path)
    started = line.clock.time()
    line.clock.seconds += 1
    assert await line.redialer.redial(started)
    assert await line.again().redial(started)
    assert line.count == 1


@pytest.mark.covers("S1.28")
async def test_a_clock_that_was_put_back(tmp_path: Path) -> None:
    line = Line(tmp_path)
    assert await line.redialer.redial(line.clock.time())
    line.clock.seconds -= 86_400
    assert await line.again().redial(line.clock.time())
    assert (line.count, line.clock.slept) == (2, [120.0]), "one interval, and not a day"
    line.clock.seconds += 200
    assert await line.again().redial(line.clock.time())
    assert (line.count, line.clock.slept) == (3, [120.0])


@pytest.mark.parametrize("content", [b"", b"nonsense\n", b"\xff\x00", b"nan worked\n"])
async def test_a_lock_file_that_holds_nonsense(tmp_path: Path, content: bytes) -> None:
    line = Line(tmp_path)
    line.lock.parent.mkdir()
    line.lock.write_bytes(content)
    assert await line.redialer.redial(line.clock.time())
    assert line.count == 1


@pytest.mark.covers("S1.28")
async def test_running_downloads_end_first_and_new_ones_wait(tmp_path: Path) -> None:
    line = Line(tmp_path)
    steps: list[str] = []
    running, finish = asyncio.Event(), asyncio.Event()

    async def check() -> bool:
        steps.append("redialled")
        return True

    redialer = Redialer(line.options, line.clock, check=check)  # type: ignore[arg-type]

    async def first() -> None:
        async with redialer.download():
            running.set()
            await finish.wait()
            steps.append("first ends")

    async def second() -> None:
        async with redialer.download():
            steps.append("second starts")

    one = asyncio.ensure_future(first())
    await running.wait()
    redialling = asyncio.ensure_future(redialer.redial(line.clock.time()))
    async with asyncio.timeout(30):
        while redialer._open.is_set():
            await asyncio.sleep(0.001)
        two = asyncio.ensure_future(second())
        await asyncio.sleep(0.01)
        assert line.count == 0
        finish.set()
        assert await redialling
        await asyncio.gather(one, two)
    assert steps == ["first ends", "redialled", "second starts"]


@pytest.mark.covers("S1.28")
async def test_new_downloads_wait_while_the_interval_is_waited_out(tmp_path: Path) -> None:
    line = Line(tmp_path)
    waiting, over = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        waiting.set()
        await over.wait()

    redialer = Redialer(line.options, line.clock, sleep=sleep)  # type: ignore[arg-type]
    assert await redialer.redial(line.clock.time())
    assert redialer.held_seconds() == 0.0
    line.clock.seconds += 20
    redialling = asyncio.ensure_future(redialer.redial(line.clock.time()))
    await waiting.wait()
    assert redialer.held_seconds() == 100.0 + line.options.command_seconds
    started: list[int] = []

    async def download() -> None:
        async with redialer.download():
            started.append(line.count)

    download_later = asyncio.ensure_future(download())
    await asyncio.sleep(0.01)
    assert started == []
    over.set()
    assert await redialling
    await download_later
    assert started == [2], "on the new address"


@pytest.mark.covers("S1.28")
async def test_ten_attempts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    line = Line(tmp_path, "echo 'no \033[31mcarrier' >&2; exit 3")
    assert not await line.redialer.redial(line.clock.time())
    assert line.count == MOST_ATTEMPTS == 10
    assert r"ended with status 3: 'no \x1b[31mcarrier'" in caplog.text
    assert "not redialled, after 10 attempts" in caplog.text
    # A redial that failed is none that others may count on.
    assert not await line.again().redial(line.clock.time() - 300)
    assert line.count == 20


@pytest.mark.covers("S1.28")
async def test_the_net_must_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    line = Line(tmp_path)
    line.answers = [False, False, True]
    assert await line.redialer.redial(line.clock.time())
    assert line.count == 3
    assert "the check does not answer" in caplog.text
    assert "redialled (attempt 3)" in caplog.text


async def test_commands_that_cannot_be_run(tmp_path: Path) -> None:
    clock = Clock()
    options = RedialOptions((str(tmp_path / "none"),), tmp_path / "lock")
    assert not await Redialer(options, clock, sleep=clock.sleep).redial(clock.time())  # type: ignore[arg-type]
    options = RedialOptions(("true",), Path("/proc/no/lock"))
    assert not await Redialer(options, clock, sleep=clock.sleep).redial(clock.time())  # type: ignore[arg-type]


@pytest.mark.slow("5 s")
@pytest.mark.covers("S1.28")
async def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $! $$ > {pids}; wait"
    line = Line(tmp_path, script, command_seconds=0.5)
    redialling = asyncio.ensure_future(line.redialer.redial(line.clock.time()))
    async with asyncio.timeout(60):
        assert not await redialling
    assert line.count == MOST_ATTEMPTS
    assert all(not _runs(int(pid)) for pid in pids.read_text().split())


async def test_what_a_command_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    line = Line(tmp_path, f"sleep 600 & echo $! > {pids}")
    async with asyncio.timeout(60):
        assert await line.redialer.redial(line.clock.time())
    left = psutil.Process(int(pids.read_text()))
    assert left.is_running()
    left.kill()


async def test_closing_ends_the_command(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    line = Line(tmp_path, f"echo $$ > {pids}; exec sleep 600")
    redialling = asyncio.ensure_future(line.redialer.redial(line.clock.time()))
    async with asyncio.timeout(30):
        while not pids.exists() or not pids.read_text().strip():
            await asyncio.sleep(0.01)
        await line.redialer.close()
        with contextlib.suppress(asyncio.CancelledError):
            await redialling
    assert not _runs(int(pids.read_text()))
    assert line.redialer._open.is_set()


@pytest.mark.slow("3 s")
@pytest.mark.covers("S1.28")
@pytest.mark.parametrize("interval", ["0", "60"])
def test_agents_of_one_server_redial_once(tmp_path: Path, interval: str) -> None:
    """Two processes whose downloads were banned at the same time: one of them redials."""
    log = tmp_path / "log"
    arguments = [str(tmp_path / "lock"), str(log), interval]
    module = "tests.agents.downloader.fetchers.redial_process"
    agents = [
        subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env={"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}", "PATH": "/usr/bin:/bin"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        for agent in agents:
            assert agent.stdout is not None
            assert agent.stdout.readline() == "ready\n"
        for agent in agents:
            agent.communicate("go\n", timeout=60)
            assert agent.returncode == 0
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
    assert log.read_text().split() == ["start", "end"]


@pytest.mark.covers("S1.28")
def test_settings(tmp_path: Path) -> None:
    assert read_fetch_options(Env({}), tmp_path).redial is None
    options = read_fetch_options(
        Env({"AGENT_REDIAL_COMMAND": "pon 'my line' --now", "AGENT_REDIAL_MINUTES": "0.5"}),
        tmp_path,
    ).redial
    assert options == RedialOptions(
        ("pon", "my line", "--now"), tmp_path / "redial.lock", "", 30.0, 60.0
    )
    with pytest.raises(EnvError, match="AGENT_REDIAL_COMMAND: it cannot be read"):
        read_fetch_options(Env({"AGENT_REDIAL_COMMAND": "pon 'my line"}), tmp_path)


async def test_redial_without_a_command(opener: Opener) -> None:
    with pytest.raises(ValueError, match="set AGENT_REDIAL_COMMAND"):
        opener(redial=True)


def _runs(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.01)
                continue
        return False
    return True
