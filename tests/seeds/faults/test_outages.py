"""What is around the seed service goes away, or the service itself stands still."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.rabbit_node import SERVER, RabbitNode
from tests.plugins import markers
from tests.plugins.measurements import Measured
from tests.plugins.stores import lend_postgres_database, lend_rabbit_vhost
from tests.seeds.faults.crawl import Crawl, Running
from tests.seeds.faults.service_processes import DAEMON, FULL, SeedYard
from yardkit.broker import Outgoing
from yardkit.protocol import FinishSeeds, Seed, SeedFinish, encode
from yardkit.protocol.seeds import SeedOutcome
from yardkit.seeds import CallRefused, SeedServiceAway
from yardkit.tokens import frontier_scope, sign_scope

pytestmark = [pytest.mark.fault, pytest.mark.services, pytest.mark.timeout(600)]

SEEDS = 20_000 if FULL else 3000


def test_a_restart_takes_no_lease_from_anybody(yard: SeedYard) -> None:
    crawl = Crawl(yard, yard.frontier(lease_seconds=1))
    yard.start_serving(crawl.frontier)
    crawl.add(100)
    taken = crawl.lease("holder", 60)
    assert len(taken.seeds) == 60
    yard.kill()
    # The lease is over by far when somebody could be told of its seeds.
    time.sleep(2.0)
    yard.start_serving(crawl.frontier)
    crawl.finish("holder", taken)
    while crawl.crawl("other"):
        pass
    assert crawl.repeats() == 0
    yard.stop()
    crawl.check()


def test_a_service_that_stood_still_takes_no_lease_from_anybody(
    yard: SeedYard, measured: Measured
) -> None:
    crawl = Crawl(yard, yard.frontier(lease_seconds=2))
    yard.start_serving(crawl.frontier)
    crawl.add(100)
    taken = crawl.lease("holder", 60)
    process = yard.daemons.processes[DAEMON]
    process.send_signal(signal.SIGSTOP)
    # All the time somebody tries to tell what came of the seeds.
    telling = threading.Thread(target=crawl.finish, args=("holder", taken))
    telling.start()
    time.sleep(12.0 if FULL else 5.0)
    process.send_signal(signal.SIGCONT)
    back_s = crawl.until_back(time.monotonic())
    telling.join()
    while crawl.crawl("other"):
        pass
    yard.stop()
    crawl.check(measured, back_s)
    assert crawl.repeats() == 0


def test_expiry_and_finish_at_the_same_moment_end_a_seed_once(yard: SeedYard) -> None:
    """Leases of a second, and finishes that come when it is over, more or less."""
    frontier = yard.frontier(lease_seconds=1, max_retry=1000)
    yard.start_serving(frontier)
    client = yard.client(frontier, "racer")
    total = 20 * (30 if FULL else 5)
    client.add([Seed(f"race-{number}") for number in range(total)])
    ended: list[str] = []
    codes: set[str] = set()
    while len(ended) < total:
        taken = client.lease(20, wait_seconds=2.0)
        time.sleep(0.9 + 0.01 * (len(ended) % 30))
        finishes = [
            SeedFinish(one.segment, one.key, taken.generation, SeedOutcome.SUCCESS)
            for one in taken.seeds
        ]
        for one, answer in zip(taken.seeds, client.finish(finishes).answers, strict=True):
            codes.add(answer.code)
            if answer.code == "finished":
                ended.append(one.key)
    assert codes <= {"finished", "late"}
    assert len(set(ended)) == total
    books = yard.books(frontier)
    assert (books.added, books.succeeded) == (total, total)
    yard.stop()


def test_postgresql_that_cuts_its_connections_costs_nothing(
    tmp_path: Path, measured: Measured
) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(lend_postgres_database())
        broker_url = stack.enter_context(lend_rabbit_vhost())
        yard = stack.enter_context(
            closing(SeedYard(tmp_path, store_url=url, broker_url=broker_url))
        )
        crawl = Crawl(yard, yard.frontier())
        yard.start_serving(crawl.frontier)
        crawl.add(SEEDS)
        cuts = 0
        with Running(lambda: crawl.crawl("one", 100), lambda: crawl.crawl("two", 100)) as running:
            for _ in range(40 if FULL else 10):
                time.sleep(0.1)
                cuts += cut(url)
                running.check()
            back_s = crawl.until_back(time.monotonic())
        assert cuts > 0
        crawl.crawl_all()
        yard.stop()
        crawl.check(measured, back_s)
        # A commit that was made, and never confirmed, is asked for once more.
        assert crawl.repeats() == 0


def cut(url: str) -> int:
    """End every connection to this database; how many there were."""
    with psycopg.connect(markers.POSTGRES_URL, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s",
            [url.rpartition("/")[2]],
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_several_services_on_postgresql_and_one_is_killed_again_and_again(
    tmp_path: Path, measured: Measured
) -> None:
    with crawl_of_several(tmp_path, measured) as (crawl, running):
        for point in ("add", "lease", "finish") if FULL else ("lease",):
            crawl.yard.start("killed", FAILPOINTS=f"seeds.{point}.after_write=kill@5")
            crawl.yard.until_killed("killed")
            running.check()


@pytest.mark.long("killed there, and a service alone stands still in its transactions")
@pytest.mark.parametrize(
    "point",
    [
        "seeds.daemon.before_lease",
        "seeds.lease.before_write",
        "seeds.lease.after_write",
        "seeds.finish.before_write",
    ],
)
def test_one_of_several_services_on_postgresql_stands_still_with_its_locks(
    tmp_path: Path, measured: Measured, point: str
) -> None:
    """Another one answers its call meanwhile. Leases of an hour: what one of them left to nobody
    would not come back."""
    with crawl_of_several(tmp_path, measured) as (crawl, running):
        crawl.yard.start("frozen", FAILPOINTS=f"{point}=stop:12@5")
        crawl.yard.until(lambda: point in crawl.yard.frozen_at("frozen"), "it stands still")
        crawl.yard.until(lambda: not crawl.yard.frozen_at("frozen"), "it wakes")
        measured(back_s=crawl.until_back(time.monotonic()))
        running.check()
        crawl.yard.stop("frozen")


@contextmanager
def crawl_of_several(
    folder: Path, measured: Measured, **fields: Any
) -> Iterator[tuple[Crawl, Running]]:
    """A crawl that goes on in the block, served by one that stays; all is well afterwards."""
    with ExitStack() as stack:
        url = stack.enter_context(lend_postgres_database())
        broker_url = stack.enter_context(lend_rabbit_vhost())
        yard = stack.enter_context(closing(SeedYard(folder, store_url=url, broker_url=broker_url)))
        crawl = Crawl(yard, yard.frontier(**fields))
        yard.start_serving(crawl.frontier, "stays")
        crawl.add(SEEDS)
        with Running(
            lambda: crawl.crawl("one", 50), lambda: crawl.crawl("two", 50), lambda: crawl.add(50)
        ) as running:
            yield crawl, running
        yard.until(crawl.crawl_all, "every seed has ended")
        yard.stop("stays")
        crawl.check(measured)
        assert crawl.repeats() == 0


@pytest.mark.skipif(not FULL, reason="a RabbitMQ node of its own takes long: make test-faults")
@pytest.mark.skipif(not SERVER, reason="rabbitmq-server is not installed")
def test_rabbitmq_stopped_and_started_costs_nothing(tmp_path: Path, measured: Measured) -> None:
    node = RabbitNode(tmp_path / "node")
    node.start()
    try:
        with closing(
            SeedYard(
                tmp_path / "yard", store_url=f"rocksdb://{tmp_path}/store", broker_url=node.url
            )
        ) as yard:
            # Leases are over before the node is back.
            crawl = Crawl(yard, yard.frontier(lease_seconds=3))
            yard.start_serving(crawl.frontier)
            crawl.add(SEEDS)
            with Running(lambda: crawl.crawl("one", 50), lambda: crawl.crawl("two", 50)) as running:
                time.sleep(1.0)
                node.stop()
                time.sleep(5.0)
                node.start()
                back_s = crawl.until_back(time.monotonic())
                running.check()
            crawl.crawl_all()
            yard.stop()
            crawl.check(measured, back_s)
            assert crawl.repeats() == 0
    finally:
        node.stop()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MiB."""
    if os.geteuid() != 0:
        pytest.skip("a small disk can be mounted by root only")
    made = tmp_path / "small"
    made.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(made)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here")
    yield made
    subprocess.run(["umount", "--lazy", str(made)], check=True)


def test_a_full_disk_is_told_and_what_was_promised_stays(
    small: Path, tmp_path: Path, measured: Measured
) -> None:
    with ExitStack() as stack:
        broker_url = stack.enter_context(lend_rabbit_vhost())
        yard = stack.enter_context(
            closing(
                SeedYard(
                    tmp_path / "yard", store_url=f"rocksdb://{small}/store", broker_url=broker_url
                )
            )
        )
        frontier = yard.frontier()
        yard.start_serving(frontier)
        promised = fill(yard, frontier)
        assert promised
        subprocess.run(["mount", "-o", "remount,size=200m", str(small)], check=True)
        began = time.monotonic()
        if yard.daemons.processes[DAEMON].poll() is not None:
            # As its supervisor does.
            assert yard.daemons.processes.pop(DAEMON).returncode == 1
            yard.start_serving(frontier)
        client = yard.client(frontier)
        assert [one.code for one in client.add([Seed("one more")])] == ["new"]
        back_s = time.monotonic() - began
        assert client.look_up(Seed(promised[-1])).known is not None
        counted = yard.books(frontier).added
        yard.stop()
        found = yard.states(frontier)
        wanted = {*promised, "one more"}
        twice = counted - len(found)
        measured(of=len(wanted), lost=len(wanted - found.keys()), twice=twice, back_s=back_s)
        assert wanted <= found.keys()
        assert twice == 0


def fill(yard: SeedYard, frontier: int) -> list[str]:
    """Add until it is refused; what was promised before."""
    client = yard.client(frontier, timeout=5.0, patience=0.0)
    promised: list[str] = []
    while True:
        batch = [f"{len(promised) + number}-{'x' * 1000}" for number in range(500)]
        try:
            answers = client.add([Seed(one) for one in batch])
        except CallRefused as refusal:
            if refusal.code != "store_unavailable" or not refusal.retry_seconds:
                raise
            return promised
        except SeedServiceAway:
            return promised
        assert {one.code for one in answers} <= {"new", "duplicate"}
        promised += batch


def test_an_answer_that_nobody_waits_for_changes_nothing(yard: SeedYard) -> None:
    """A spider dies when it has sent its finish; another one sends the same once more."""
    crawl = Crawl(yard, yard.frontier())
    yard.start_serving(crawl.frontier)
    crawl.add(20)
    taken = crawl.lease("dies", 20)
    finishes = [
        SeedFinish(one.segment, one.key, taken.generation, SeedOutcome.SUCCESS)
        for one in taken.seeds
    ]
    call = FinishSeeds(
        frontier=crawl.frontier,
        token=sign_scope("no secret of theirs", frontier_scope(crawl.frontier)),
        owner="dies",
        finishes=finishes,
    )
    yard.broker().publish([Outgoing(encode(call), key="seeds", reply_to="reply.nobody")]).result(10)
    # Nobody may speak for a frontier without its token.
    assert yard.books(crawl.frontier).leased == 20
    answers = yard.client(crawl.frontier, "dies").finish(finishes).answers
    assert {one.code for one in answers} == {"finished"}
    again = yard.client(crawl.frontier, "dies").finish(finishes).answers
    assert {one.code for one in again} == {"repeated"}
    yard.stop()
