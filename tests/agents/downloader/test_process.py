"""The agent as what it is: a process, with real signals and settings that are wrong."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.agents.downloader.agent_peer import AgentPeer, take, until
from tests.agents.downloader.test_agent import Gate
from tests.plugins.measurements import Measured
from tests.yardkit.web_server import WebServer, page, serve
from yardkit.broker import Broker
from yardkit.protocol import DownloaderReady, DownloadResults, ExitAgent, Register

ROOT = Path(__file__).parents[3]
Launch = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
async def site() -> AsyncIterator[WebServer]:
    async with serve({"/": page(b"hello")}) as server:
        yield server


@pytest.fixture
def launch(sqlite_broker_url: str, tmp_path: Path) -> Iterator[Launch]:
    processes: list[subprocess.Popen[str]] = []

    def launch(*arguments: str, **environ: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "apps.agents.downloader", *arguments],
            cwd=ROOT,
            env=os.environ
            | {
                "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
                "BROKER_URL": sqlite_broker_url,
                "CRAWLYARD_DATA": str(tmp_path),
            }
            | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield launch
    for process in processes:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """(exit status, what it said); it must have said nothing on standard output."""
    output, errors = process.communicate(timeout=60)
    assert output == ""
    return process.returncode, errors


async def ended_in_time(process: subprocess.Popen[str]) -> tuple[int, str]:
    began = time.monotonic()
    outcome = await asyncio.to_thread(ended, process)
    assert time.monotonic() - began < 5
    assert "Traceback" not in outcome[1]
    return outcome


@pytest.mark.slow("2 s")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_an_idle_agent(
    launch: Launch, broker: Broker, signum: signal.Signals
) -> None:
    other = AgentPeer(broker)
    process = launch("--id", "agent-1")
    await other.allocate()
    process.send_signal(signum)
    status, said = await ended_in_time(process)
    assert status == 0
    assert "agent agent-1 exits: 0 downloads" in said


@pytest.mark.slow("3 s")
async def test_a_signal_ends_an_agent_at_work(
    launch: Launch, broker: Broker, site: WebServer
) -> None:
    other = AgentPeer(broker)
    gate = site.answers["/gate"] = Gate()
    process = launch("--id", "agent-1")
    await other.allocate()
    other.download([site.url("/")])
    assert (await other.results(1))[0].body == b"hello"
    other.download([site.url("/gate")] * 100)
    await until(lambda: gate.waiting)
    process.terminate()
    status, _ = await ended_in_time(process)
    assert status == 0
    await until(lambda: broker.depth(other.commands.name).ready == 1)


@pytest.mark.slow("3 s")
async def test_a_killed_agent_comes_back_as_itself(
    launch: Launch, broker: Broker, site: WebServer
) -> None:
    process = launch("--name", "one")
    registrations = AgentPeer(broker, agent="unused", run=1).registrations
    first = (await until(lambda: take(registrations)))[0]
    assert isinstance(first, Register)
    other = AgentPeer(broker, agent=first.agent)
    gate = site.answers["/gate"] = Gate()
    await other.allocate()
    other.download([site.url("/gate")])
    await until(lambda: gate.waiting)
    process.kill()
    process.communicate()
    launch("--name", "one")
    again = (
        await until(lambda: take(registrations) or take(other.registrations))
    )[0]  # fmt: skip
    assert isinstance(again, Register)
    assert again.agent == first.agent
    assert again.boot != first.boot
    # It knows its downloaders again, so what it had not answered is downloaded after all.
    gate.opened.set()
    assert (await other.results(1))[0].body == b"late"


@pytest.mark.slow("10 s")
@pytest.mark.parametrize(
    ("arguments", "environ", "line"),
    [
        ([], {"BROKER_URL": "gopher://host/"}, "BROKER_URL: gopher:// is no broker"),
        ([], {"BROKER_URL": "nonsense"}, "BROKER_URL: 'nonsense' is no broker"),
        (["--id", "a b"], {}, "AGENT_ID: 'a b' is no id"),
        (["--labels", "x"], {}, "AGENT_LABELS: 'x' is no label"),
        ([], {"LOG_LEVEL": "LOUD"}, "LOG_LEVEL: 'LOUD' is none of its values"),
        ([], {"FAILPOINTS": "x"}, "FAILPOINTS: 'x' cannot be read"),
    ],
)
async def test_bad_settings(
    launch: Launch, arguments: list[str], environ: dict[str, str], line: str
) -> None:
    status, said = await asyncio.to_thread(ended, launch(*arguments, **environ))
    assert status == 2
    assert said.startswith(line)
    assert said.count("\n") == 1


@pytest.mark.slow("10 s")
async def test_an_unreachable_broker_is_waited_for(launch: Launch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        process = launch(BROKER_URL=f"amqp://guest:hunter2@127.0.0.1:{port}/")
        assert process.stderr is not None
        line = await asyncio.to_thread(process.stderr.readline)
        process.terminate()
        status, said = await ended_in_time(process)
    assert status == 0
    assert "hunter2" not in line + said
    assert "connecting to the broker fails and is retried: " in line


@pytest.mark.slow("2 s")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells of a parent")
async def test_it_ends_with_its_supervisor(
    launch: Launch, broker: Broker, sqlite_broker_url: str
) -> None:
    other = AgentPeer(broker)
    source = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-m', 'apps.agents.downloader', '--id', 'agent-1'])\n"
        "time.sleep(60)\n"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", source],
        cwd=ROOT,
        env=os.environ
        | {
            "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
            "BROKER_URL": sqlite_broker_url,
            "CRAWLYARD_DIE_WITH_PARENT": "1",
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    await other.allocate()
    supervisor.kill()
    # The child holds the other end of the pipe: it is closed when the child is gone.
    _, said = await asyncio.to_thread(supervisor.communicate, None, 60)
    assert "agent agent-1 exits" in said
    await until(lambda: broker.depth(other.commands.name).consumers == 0)


@pytest.mark.slow("2 s")
def test_it_needs_no_django() -> None:
    source = (
        "import sys, apps.agents.downloader.__main__\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'django']\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


class Asked:
    """Ten pages that a run asks for, and what comes back."""

    count = 10

    def __init__(self, other: AgentPeer, site: WebServer) -> None:
        self._other = other
        self._answers = Counter[int]()
        other.download([site.url("/")] * self.count)

    def collect(self) -> int:
        """How many answers have come by now."""
        for message in self._other.arrived(DownloadResults):
            self._answers.update(result.id for result in message.items)
        return self._answers.total()

    def is_complete(self) -> bool:
        self.collect()
        return not self.missing

    @property
    def missing(self) -> int:
        return len(set(range(self.count)) - self._answers.keys())

    @property
    def twice(self) -> int:
        return self._answers.total() - len(self._answers)


FROZEN = pytest.mark.long("killed there")


@pytest.mark.fault
@pytest.mark.parametrize(
    "failpoint",
    [
        "agent.allocated=kill@1",
        "agent.before_fetch=kill@3",
        "agent.before_results=kill@1",
        # The first acknowledgement is the one of the allocation.
        "agent.before_ack=kill@2",
        "agent.before_fetch=raise@3",
        "agent.before_results=raise@1",
        "agent.before_ack=raise@2",
        pytest.param("agent.allocated=stop:3@1", marks=FROZEN),
        pytest.param("agent.before_fetch=stop:3@3", marks=FROZEN),
        pytest.param("agent.before_results=stop:3@1", marks=FROZEN),
        pytest.param("agent.before_ack=stop:3@2", marks=FROZEN),
    ],
)
async def test_no_request_is_lost_at_any_failpoint(
    launch: Launch, broker: Broker, site: WebServer, failpoint: str, measured: Measured
) -> None:
    """Every request is answered, counted as dropped, or comes again to the next agent."""
    other = AgentPeer(broker)
    process = launch("--id", "agent-1", FAILPOINTS=failpoint)
    await other.allocate()
    first = Asked(other, site)
    if "kill" in failpoint:
        await until(lambda: process.poll() is not None)
        assert process.returncode == -signal.SIGKILL
        before, began = first.collect(), time.monotonic()
        launch("--id", "agent-1")
        await other.allocate()
        await until(lambda: first.collect() > before)
        back = time.monotonic() - began
        await until(first.is_complete)
        await other.emptied()
        first.collect()
        measured(of=first.count, lost=first.missing, twice=first.twice, back_s=back)
        return
    dropped = failpoint == "agent.before_results=raise@1"
    await until(lambda: first.is_complete() or dropped)
    await other.emptied()
    first.collect()
    # The agent goes on: what comes next is answered.
    second = Asked(other, site)
    await until(second.is_complete)
    await other.emptied()
    second.collect()
    process.terminate()
    _, said = await asyncio.to_thread(ended, process)
    told = re.search(r"exits: .*?(\d+) answers dropped", said)
    assert (told is not None) == dropped
    lost = first.missing + second.missing - (int(told[1]) if told else 0)
    measured(of=first.count + second.count, lost=lost, twice=first.twice + second.twice)
    assert lost == 0


@pytest.mark.slow("2 s")
@pytest.mark.covers("S1.23")
async def test_told_to_exit_it_finishes_what_it_holds(
    launch: Launch, broker: Broker, site: WebServer
) -> None:
    other = AgentPeer(broker)
    gate = site.answers["/gate"] = Gate()
    process = launch("--id", "agent-1")
    await other.allocate(concurrency=1)
    other.download([site.url("/gate")] * 3)
    await until(lambda: gate.waiting)
    other.send(ExitAgent(reason="maintenance"))
    await until(lambda: broker.depth(other.commands.name).ready == 0)
    assert process.poll() is None, "it holds two more"
    gate.opened.set()
    status, said = await asyncio.to_thread(ended, process)
    assert status == 0
    assert len(await other.results(3)) == 3
    assert "asked to exit: maintenance" in said
    assert "agent agent-1 exits: 3 downloads" in said
    assert broker.depth(other.commands.name).ready == 0


@pytest.mark.fault
@pytest.mark.covers("S1.49")
@pytest.mark.parametrize(
    "point", ["agent.allocation_written", "agent.allocation_synced", "agent.allocation_renamed"]
)
@pytest.mark.parametrize("hit", [1, 2])
async def test_killed_while_it_writes_an_allocation(
    launch: Launch,
    broker: Broker,
    site: WebServer,
    tmp_path: Path,
    point: str,
    hit: int,
    measured: Measured,
) -> None:
    """Every start afterwards works, with the file or without it, and no half file stays."""
    other, second = AgentPeer(broker), AgentPeer(broker, run=8)
    folder = tmp_path / "agents" / "agent-1" / "downloaders"
    process = launch("--id", "agent-1", FAILPOINTS=f"{point}=kill@{hit}")
    if hit == 2:
        assert (await second.allocate()).ok
    other.ask()
    await until(lambda: process.poll() is not None)
    assert process.returncode == -signal.SIGKILL
    kept = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    renamed = {"run-7.alloc"} if point == "agent.allocation_renamed" else set()
    assert kept == renamed | ({"run-8.alloc"} if hit == 2 else set())
    # The command was not acknowledged, so it comes again; the other run needs no new one.
    began = time.monotonic()
    launch("--id", "agent-1")
    assert (await other.receive(DownloaderReady)).ok
    back = time.monotonic() - began
    sides = (other, second) if hit == 2 else (other,)
    served = set()
    for side in sides:
        side.download([site.url("/")])
        if (await side.results(1))[0].body == b"hello":
            served.add(side.run)
    lost = {side.run for side in sides} - served
    measured(of=len(sides), lost=len(lost), back_s=back)
    assert not lost
    names = sorted(path.name for path in folder.iterdir())
    assert names == (["run-7.alloc", "run-8.alloc"] if hit == 2 else ["run-7.alloc"])
