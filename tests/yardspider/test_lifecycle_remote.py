"""Commands to a run over a real broker: the real command, a center that does as told."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.yardspider.center import SmallCenter, small_center
from tests.yardspider.commands import command, environment, run
from tests.yardspider.crawls import check_counters
from tests.yardspider.test_remote import SITE, exit_state, tree, variables
from yardkit import topology
from yardkit.broker import Broker, Outgoing, Subscription, connect
from yardkit.broker.base import DEAD_QUEUE, HEADER_REASON
from yardkit.protocol import (
    AnyMessage,
    DownloadsHeld,
    Lifecycle,
    LifecycleAnswer,
    RunAction,
    Skipped,
    Withdraw,
    decode,
    encode,
)

TOPIC = topology.job_topic("news", "Daily 每日")
PATIENCE_SECONDS = 60
GATE = "test.center"


@pytest.fixture(params=["sqlite", pytest.param("rabbitmq", marks=pytest.mark.services)])
def broker_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/broker.db"
    url: str = request.getfixturevalue("rabbit_vhost")
    return url


class Jobs:
    """The platform's side: tells runs, and hears what they answer."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._numbers = itertools.count(1)
        broker.declare(*topology.SHARED)
        broker.declare_exchange(topology.LIFECYCLE, "topic")
        self._answers = broker.subscribe(topology.LIFECYCLE_ANSWERS.name)
        # What runs of earlier tests have said after these had ended.
        while late := self._answers.take(100, timeout=0.2):
            self._answers.ack(late)

    def tell(
        self, action: RunAction, *, boot: str, number: int = 0, times: int = 1, **settings: Any
    ) -> int:
        number = number or next(self._numbers)
        message = Lifecycle(action=action, run=7, boot=boot, command=number, settings=settings)
        self.publish(encode(message), times)
        return number

    def publish(self, body: bytes, times: int = 1) -> None:
        message = Outgoing(body, key=TOPIC, exchange=topology.LIFECYCLE)
        self.broker.publish([message] * times).result(10)

    def answer(self) -> LifecycleAnswer:
        return take(self._answers)  # type: ignore[return-value]


def take(subscription: Subscription) -> AnyMessage:
    (delivery,) = subscription.take(1, timeout=PATIENCE_SECONDS)
    subscription.ack([delivery])
    return decode(delivery.body)


@pytest.fixture
def jobs(broker_url: str) -> Iterator[Jobs]:
    broker = connect(broker_url, name="jobs")
    yield Jobs(broker)
    broker.close()


@pytest.fixture
def center(broker_url: str) -> Iterator[SmallCenter]:
    with small_center(broker_url, tree) as small:
        yield small


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(broker_url: str, jobs: Jobs, tmp_path: Path) -> Iterator[Start]:
    """Start a run that listens."""
    processes = []

    def run_it(*settings: str, boot: str = "b1", **extra: str) -> subprocess.Popen[str]:
        options = [word for setting in settings for word in ("--set", setting)]
        told = {"CRAWLYARD_BOOT": boot, "CRAWLYARD_TOPIC": TOPIC} | extra
        process = subprocess.Popen(
            command("run", SITE, *options),
            cwd=tmp_path,
            env=environment(**variables(broker_url, tmp_path, **told)),
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield run_it
    for process in processes:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> str:
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert "Traceback" not in errors, errors
    return errors


@pytest.mark.slow("4 s")
@pytest.mark.covers("S3.20")
def test_a_run_goes_by_another_pace_and_says_so(
    start: Start, center: SmallCenter, jobs: Jobs, tmp_path: Path
) -> None:
    process = start("speed=0.5")
    center.wait_for(lambda: len(center.items) >= 2)
    tune = jobs.tell(RunAction.TUNE, boot="b1", times=2, speed=0, concurrency=7)
    for _ in range(2):
        said = jobs.answer()
        assert (said.action, said.command, said.accepted) == (RunAction.TUNE, tune, True)
        assert said.reason == "concurrency 7, speed 0"
    # At the old pace the 61 pages would take two minutes.
    begun = time.monotonic()
    log = ended(process)
    assert time.monotonic() - begun < 30
    assert process.returncode == 0
    assert "tuned: concurrency 7, speed 0" in log
    wrong = start("speed=1", boot="b2")
    center.wait_for(lambda: len(center.allocates) >= 2)
    jobs.tell(RunAction.TUNE, boot="b2", concurrency=0)
    said = jobs.answer()
    assert (said.accepted, said.reason) == (False, "tune: concurrency must be at least 1, not 0")
    wrong.terminate()


@pytest.mark.slow("4 s")
@pytest.mark.covers("S1.8", "S1.9", "S1.11")
def test_a_paused_run_sends_nothing_and_gets_all_its_pages_after_it(
    start: Start, center: SmallCenter, jobs: Jobs, tmp_path: Path
) -> None:
    process = start("speed=20")
    center.wait_for(lambda: len(center.items) >= 5)
    pause = jobs.tell(RunAction.PAUSE, boot="b1")
    said = jobs.answer()
    assert (said.run, said.boot, said.command, said.accepted) == (7, "b1", pause, True)
    assert said.reason == ""
    sent, reports = len(center.items), len(center.reports)
    # A paused run is still heard of: were it to send anything, it would have by then.
    jobs.tell(RunAction.PAUSE, boot="b1")
    jobs.answer()
    jobs.tell(RunAction.PAUSE, boot="b1")
    jobs.answer()
    assert len(center.items) == sent < 61
    assert len(center.reports) >= reports
    resume = jobs.tell(RunAction.RESUME, boot="b1")
    assert jobs.answer().command == resume
    ended(process)
    left = exit_state(tmp_path)
    assert (left["state"], left["total"], left["success"]) == ("exited", 61, 61)
    check_counters(center.reports[-1])


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.10")
def test_an_exit_is_answered_before_the_end(
    start: Start, center: SmallCenter, jobs: Jobs, tmp_path: Path
) -> None:
    process = start("speed=2")
    center.wait_for(lambda: center.items)
    number = jobs.tell(RunAction.EXIT, boot="b1")
    errors = ended(process)
    assert process.returncode == 143
    said = jobs.answer()
    assert (said.command, said.action, said.accepted) == (number, RunAction.EXIT, True)
    assert (exit_state(tmp_path)["state"], "stopped by exit message" in errors) == ("stopped", True)
    assert center.reports[-1].final
    assert center.releases


@pytest.mark.slow("1 s")
def test_repeated_and_outdated_commands(start: Start, center: SmallCenter, jobs: Jobs) -> None:
    process = start("speed=2")
    center.wait_for(lambda: center.items)
    jobs.tell(RunAction.PAUSE, boot="b1", number=10)
    # Not before nothing is on its way; what is repeated until then has one answer with it.
    assert jobs.answer().command == 10
    jobs.tell(RunAction.PAUSE, boot="b1", number=10, times=2)
    assert [jobs.answer().command for _ in range(2)] == [10, 10]
    jobs.tell(RunAction.RESUME, boot="b1", number=9)
    late = jobs.answer()
    assert (late.command, late.accepted) == (9, False)
    # Neither another execution nor another run is meant by these.
    jobs.tell(RunAction.EXIT, boot="b0", number=11)
    jobs.publish(encode(Lifecycle(action=RunAction.EXIT, run=8, command=12)))
    jobs.tell(RunAction.EXIT, boot="b1", number=13)
    assert jobs.answer().command == 13
    ended(process)


@pytest.mark.slow("1 s")
def test_what_is_no_command_is_set_aside_with_its_reason(
    start: Start, center: SmallCenter, jobs: Jobs
) -> None:
    process = start("speed=2")
    center.wait_for(lambda: center.items)
    dead = jobs.broker.subscribe(DEAD_QUEUE)
    # What others in this virtual host have left there.
    while late := dead.take(100, timeout=0.2):
        dead.ack(late)
    for body, reason in (
        (b"\x80nonsense", "not a message of this protocol"),
        (encode(Skipped(run=7, reason="", items=[])), "Skipped is no command to a run"),
    ):
        jobs.publish(body)
        (letter,) = dead.take(1, timeout=PATIENCE_SECONDS)
        assert reason in str(letter.headers[HEADER_REASON])
        dead.ack([letter])
    jobs.tell(RunAction.EXIT, boot="b1")
    assert jobs.answer().accepted
    ended(process)


@pytest.mark.slow("2 s")
def test_every_run_of_a_job_can_be_told_at_once(
    start: Start, center: SmallCenter, jobs: Jobs
) -> None:
    processes = [start("speed=2", boot="b1"), start("speed=2", boot="b2")]
    center.wait_for(lambda: len(center.allocates) == 2 and len(center.items) >= 2)
    jobs.publish(encode(Lifecycle(action=RunAction.EXIT, command=1)))
    assert {jobs.answer().boot, jobs.answer().boot} == {"b1", "b2"}
    for process in processes:
        ended(process)


@pytest.mark.slow("2 s")
def test_the_center_is_asked_for_what_it_holds(
    start: Start, center: SmallCenter, jobs: Jobs, tmp_path: Path
) -> None:
    jobs.broker.declare(topology.QueueSpec(GATE))
    asked = jobs.broker.subscribe(GATE)
    center.on_batch = lambda batch: [
        DownloadsHeld(
            run=7,
            reason="spared",
            wait_seconds=30,
            items=[(item.id, item.attempt) for item in batch.items],
            center=GATE,
        )
    ]
    process = start()
    # The run knows of it when it says so in its counters.
    center.wait_for(lambda: any(report.held for report in center.reports))
    jobs.tell(RunAction.PAUSE, boot="b1")
    assert take(asked) == Withdraw(run=7, token="r1.token")
    (item,) = center.items
    back = Skipped(run=7, reason="paused", items=[(item.id, item.attempt)], withdrawn=True)
    reply_to = topology.run_answers(7, "b1").name
    jobs.broker.publish([Outgoing(encode(back), key=reply_to)]).result(10)
    assert jobs.answer().reason == ""
    center.on_batch = center.download
    jobs.tell(RunAction.RESUME, boot="b1")
    ended(process)
    left = exit_state(tmp_path)
    assert (left["success"], left["skipped"], left["retried"]) == (61, 1, 1)


@pytest.mark.slow("1 s")
def test_a_run_without_a_topic_hears_nothing(
    start: Start, center: SmallCenter, jobs: Jobs, tmp_path: Path
) -> None:
    process = start("speed=0", CRAWLYARD_TOPIC="")
    ended(process)
    assert exit_state(tmp_path)["success"] == 61


@pytest.mark.slow("2 s")
@pytest.mark.parametrize("topic", ["job.#", "job.*.daily", "a b", "x" * 256])
def test_a_topic_that_is_none_is_refused(tmp_path: Path, topic: str) -> None:
    url = f"sqlite:///{tmp_path}/broker.db"
    done = run(tmp_path, "run", SITE, env=variables(url, tmp_path, CRAWLYARD_TOPIC=topic))
    assert done.status == 2
    assert "CRAWLYARD_TOPIC" in done.errors
