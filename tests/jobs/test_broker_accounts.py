"""A run with a broker account of its own can use its own queues, and no other thing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pika
import pytest
from django.test import override_settings
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ProbableAuthenticationError

from apps.jobs.models import Run
from apps.jobs.runners.accounts import BrokerAccounts
from apps.jobs.runners.base import RunnerAway
from apps.jobs.states import FINAL, RunState
from apps.queuestats.daemon import StatisticsDaemon
from apps.queuestats.models import RunCounter
from apps.runtime.models import DeadLetter
from tests.e2e.rabbit_node import RabbitNode, lend_rabbit_node
from tests.jobs.factories import NOW
from tests.jobs.runners import make_runner, start, until
from tests.yardspider.center import small_center
from tests.yardspider.commands import run as run_command
from tests.yardspider.test_remote import SITE, exit_state, tree, variables
from yardkit import topology
from yardkit.broker import BadBrokerURL, Broker, BrokerUnavailable, Outgoing, Unroutable, connect
from yardkit.broker.gateway import GATEWAY, sender_of, sender_problem
from yardkit.clock import SystemClock
from yardkit.protocol import RunCounters, encode
from yardkit.shared_queues import declare_shared

pytestmark = [pytest.mark.services, pytest.mark.timeout(180)]

TOPIC = "job.shop.prices"
REFUSED = 403


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    with lend_rabbit_node(tmp_path_factory.mktemp("rabbit"), management=True) as node:
        yield node


@pytest.fixture
def broker(node: RabbitNode) -> Iterator[Broker]:
    """The platform's own connection, as any daemon opens it."""
    broker = connect(node.url, name="platform", timeout=20)
    declare_shared(broker)
    for spec in topology.FOR_RUNS:
        broker.purge(spec.name)
    yield broker
    broker.close()


@pytest.fixture
def accounts(node: RabbitNode, broker: Broker) -> Iterator[BrokerAccounts]:
    accounts = BrokerAccounts(node.management_url, node.url, installation="i1")
    yield accounts
    accounts.keep_only(set(), accounts.made())


@contextmanager
def opened(url: str) -> Iterator[Broker]:
    broker = connect(url, name="run-7", timeout=20)
    try:
        yield broker
    finally:
        broker.close()


@contextmanager
def channel(url: str) -> Iterator[BlockingChannel]:
    """What a spider that knows AMQP can do with its BROKER_URL."""
    connection = pika.BlockingConnection(pika.URLParameters(url.partition("?")[0]))
    try:
        yield connection.channel()
    finally:
        connection.close()


@pytest.mark.slow("1 s")
def test_a_whole_run_needs_nothing_else(
    node: RabbitNode, accounts: BrokerAccounts, tmp_path: Path
) -> None:
    url = accounts.open(7, tmp_path.name, TOPIC)
    environment = variables(url, tmp_path, CRAWLYARD_POLICY="fixed", CRAWLYARD_TOPIC=TOPIC)
    with small_center(node.url, tree) as center:
        done = run_command(tmp_path, "run", SITE, env=environment)
        assert done.status == 0, done.errors
        center.wait_for(lambda: center.releases and center.reports and center.reports[-1].final)
    left = exit_state(tmp_path)
    assert (left["state"], left["total"], left["success"]) == ("exited", 61, 61)


def test_what_it_sends_bears_its_name(broker: Broker, accounts: BrokerAccounts) -> None:
    taken = broker.subscribe(topology.STATISTICS.name)
    with opened(accounts.open(7, "b2", TOPIC)) as own:
        own.publish([Outgoing(b"x", key=topology.STATISTICS.name)]).result(10)
        [delivery] = taken.take(1, timeout=10)
        taken.ack([delivery])
    taken.close()
    assert sender_of(delivery) == "run.7.b2"
    assert sender_problem(delivery, run=7, boot="b2", reply_to="run.7.b2.commands") == ""
    assert sender_problem(delivery, run=7, boot="b3") == "run.7.b2 speaks for run.7.b3"
    assert sender_problem(delivery, run=70) == "run.7.b2 speaks for run.70"
    assert "wants answers in 'runners'" in sender_problem(delivery, run=7, reply_to="runners")
    assert "wants answers in 'run.7.b22'" in sender_problem(delivery, run=7, reply_to="run.7.b22")


def test_it_asks_and_is_answered(broker: Broker, accounts: BrokerAccounts) -> None:
    questions = broker.subscribe(topology.SEEDS.name)

    def answer() -> None:
        [question] = questions.take(1, timeout=20)
        broker.reply(question, b"yes").result(10)
        questions.ack([question])

    answering = threading.Thread(target=answer)
    answering.start()
    with opened(accounts.open(7, "b2", TOPIC)) as own:
        own.declare(topology.SEEDS)  # which is there already, and not its own
        assert own.request(Outgoing(b"?", key=topology.SEEDS.name), 20).body == b"yes"
    answering.join()
    questions.close()


def test_an_answer_into_another_queue_is_refused(broker: Broker, accounts: BrokerAccounts) -> None:
    questions = broker.subscribe(topology.SEEDS.name)
    with opened(accounts.open(7, "b2", TOPIC)) as own:
        message = Outgoing(b"?", key=topology.SEEDS.name, reply_to=topology.RUNNERS.name)
        own.publish([message]).result(10)
        [question] = questions.take(1, timeout=10)
        with pytest.raises(ValueError, match="asks for a reply to 'runners'"):
            broker.reply(question, b"no")
        questions.ack([question])
    questions.close()


def test_what_no_queue_wants_is_an_error(accounts: BrokerAccounts, broker: Broker) -> None:
    with opened(accounts.open(7, "b2", TOPIC)) as own:
        report = Outgoing(b"x", key=topology.center_reports("gone").name)
        with pytest.raises(Unroutable, match=r"center\.reports\.gone"):
            own.publish([report]).result(10)


def test_its_commands_reach_it(broker: Broker, accounts: BrokerAccounts) -> None:
    spec = topology.run_commands(7, "b2")
    with opened(accounts.open(7, "b2", TOPIC)) as own:
        own.declare_exchange(topology.LIFECYCLE, "topic")
        own.declare(spec)
        own.bind(spec.name, topology.LIFECYCLE, TOPIC)
        commands = own.subscribe(spec.name)
        broker.publish([Outgoing(b"pause", key=TOPIC, exchange=topology.LIFECYCLE)]).result(10)
        [command] = commands.take(1, timeout=10)
        assert command.body == b"pause"
        commands.dead_letter(command, "not read")
    dead = broker.subscribe("dead")
    [letter] = dead.take(1, timeout=10)
    assert (letter.body, sender_of(letter)) == (b"pause", "run.7.b2")
    dead.ack([letter])
    dead.close()


def consume(queue: str) -> Callable[[BlockingChannel], object]:
    return lambda channel: channel.basic_get(queue)


def publish(exchange: str, key: str) -> Callable[[BlockingChannel], object]:
    def act(channel: BlockingChannel) -> None:
        channel.confirm_delivery()
        channel.basic_publish(exchange, key, b"x")

    return act


FORBIDDEN: dict[str, Callable[[BlockingChannel], object]] = {
    "publish straight to a queue": publish("", topology.RUNNERS.name),
    "publish to another queue": publish(GATEWAY, "runners.run.7.b2"),
    "publish to an agent": publish(GATEWAY, "agent.a1.run.7.b2"),
    "publish in another run's name": publish(GATEWAY, "statistics.run.8.b2"),
    "publish in the name of another execution": publish(GATEWAY, "statistics.run.7.b3"),
    "publish without a name": publish(GATEWAY, "statistics"),
    "command a run": publish(topology.LIFECYCLE, TOPIC),
    "speak as an agent": publish(topology.HEARTBEATS, ""),
    "tell of an event": publish(topology.EVENTS, ""),
    "read the requests of all": consume(topology.CENTER_REQUESTS.name),
    "read the seeds of all": consume(topology.SEEDS.name),
    "read the dead letters": consume("dead"),
    "read the answers of another run": consume("run.8.b9"),
    "read the answers of a run with a longer number": consume("run.77.b9"),
    "make another queue": lambda channel: channel.queue_declare("other"),
    "make another run's queue": lambda channel: channel.queue_declare("run.8.b3"),
    "empty a queue": lambda channel: channel.queue_purge(topology.SEEDS.name),
    "delete a queue": lambda channel: channel.queue_delete(topology.SEEDS.name),
    "make an exchange": lambda channel: channel.exchange_declare("mine"),
    "delete an exchange": lambda channel: channel.exchange_delete(GATEWAY),
    "listen to all runs": lambda channel: channel.queue_bind("run.7.b2", GATEWAY, "#"),
    "listen to the commands of all": lambda channel: channel.queue_bind(
        "run.7.b2", topology.LIFECYCLE, "#"
    ),
    "listen to another job": lambda channel: channel.queue_bind(
        "run.7.b2", topology.LIFECYCLE, "job.shop.others"
    ),
    "listen to agents": lambda channel: channel.queue_bind("run.7.b2", topology.HEARTBEATS, "#"),
}


@pytest.mark.slow("4 s")
@pytest.mark.parametrize("what", FORBIDDEN)
def test_it_may_not(what: str, broker: Broker, accounts: BrokerAccounts) -> None:
    for other in (topology.run_answers(8, "b9"), topology.run_answers(77, "b9")):
        broker.declare(other)
    url = accounts.open(7, "b2", TOPIC)
    with opened(url) as own:
        own.declare(topology.run_answers(7, "b2"))
    with channel(url) as one, pytest.raises(ChannelClosedByBroker) as refusal:
        FORBIDDEN[what](one)
    assert refusal.value.reply_code == REFUSED


def test_an_account_ends_with_its_run(accounts: BrokerAccounts) -> None:
    url, kept = accounts.open(7, "b2", TOPIC), accounts.open(8, "b1", TOPIC)
    others = BrokerAccounts(accounts_url(accounts), kept, installation="i2")
    foreign = others.open(7, "b2", TOPIC)
    assert accounts.made() == {(7, "b2"), (8, "b1")}
    assert accounts.keep_only({(8, "b1")}, accounts.made()) == 1
    with pytest.raises(ProbableAuthenticationError), channel(url):
        pass
    for lasting in (kept, foreign):
        with channel(lasting) as one:
            assert one.is_open
    # A repeat is no error, nor is one that is not there.
    accounts.close(7, "b2")
    others.close(7, "b2")
    with pytest.raises(BrokerUnavailable, match="refused"):
        connect(url, name="late", timeout=5)


def accounts_url(accounts: BrokerAccounts) -> str:
    user, password = accounts._session.auth  # type: ignore[misc]
    parts = urlsplit(accounts._api)
    return f"http://{user}:{password}@{parts.netloc}"


def test_one_made_anew_has_another_password(accounts: BrokerAccounts) -> None:
    first, second = (accounts.open(7, "b2", TOPIC) for _ in range(2))
    assert first != second
    with pytest.raises(ProbableAuthenticationError), channel(first):
        pass
    with channel(second) as one:
        assert one.is_open


def test_nobody_there_or_not_allowed(node: RabbitNode, accounts: BrokerAccounts) -> None:
    assert accounts.check() == "guest"
    wrong = BrokerAccounts(
        node.management_url.replace("guest:guest", "guest:canary"), node.url, installation="i1"
    )
    away = BrokerAccounts("http://guest:canary@127.0.0.1:9", node.url, installation="i1")
    for broken, said in ((wrong, "answers 401"), (away, "does not answer")):
        with pytest.raises(RunnerAway, match=said) as error:
            broken.open(7, "b2", TOPIC)
        assert "canary" not in str(error.value)


@pytest.mark.parametrize("url", ["", "amqp://guest:guest@127.0.0.1/", "http://", "nonsense"])
def test_a_bad_address_of_the_management(url: str) -> None:
    with pytest.raises(ValueError, match="use http://"):
        BrokerAccounts(url, "amqp://127.0.0.1", installation="i1")


@pytest.mark.parametrize(
    "query", ["own=", "own=run.7", "own=run.x.y", "own=reply.1.2", "own=run.7.b%2F", "other=1"]
)
def test_a_bad_name_in_the_url(query: str) -> None:
    with pytest.raises(BadBrokerURL):
        connect(f"amqp://127.0.0.1:9/?{query}", name="x", timeout=0.1)


# --- the runner ---------------------------------------------------------------------------------

PROBE = """
import os, pathlib
pathlib.Path(os.environ["CRAWLYARD_RUN_DIR"], "url").write_text(os.environ["BROKER_URL"])
raise SystemExit(0)  # which is a failure: there is no spider in here
"""


@pytest.mark.slow("2 s")
@pytest.mark.django_db(transaction=True)
def test_a_runner_gives_and_takes_them(
    node: RabbitNode, broker: Broker, accounts: BrokerAccounts, spiders: Path, tmp_path: Path
) -> None:
    (spiders / "probe.py").write_text(PROBE)
    with override_settings(BROKER_URL=node.url, BROKER_MANAGEMENT_URL=node.management_url):
        daemon = make_runner(broker, tmp_path)
        daemon.setup()
        try:
            run = start("probe")
            until(daemon, run, lambda: run.state in FINAL)
            url = (tmp_path / "runs" / str(run.pk) / "url").read_text()
            assert f"own=run.{run.pk}.{run.boot}" in url
            assert "guest" not in url
            with pytest.raises(ProbableAuthenticationError), channel(url):
                pass
            made = daemon.context.accounts
            assert made is not None
            assert made.made() == set()
            # One whose runner died with it is found when somebody tidies.
            made.open(run.pk, run.boot, TOPIC)
            active = Run.objects.create(
                job=run.job, state=RunState.RUNNING, boot="b5", host="elsewhere", created_at=NOW
            )
            made.open(active.pk, "b5", TOPIC)
            daemon.context.timers.hasten("tidy")
            daemon.watcher.tidy()
            assert made.made() == {(active.pk, "b5")}
        finally:
            daemon.teardown()


@pytest.mark.slow("4 s")
@pytest.mark.django_db(transaction=True)
def test_a_run_waits_while_no_account_can_be_made(
    node: RabbitNode, broker: Broker, spiders: Path, tmp_path: Path
) -> None:
    (spiders / "probe.py").write_text(PROBE)
    away = "http://guest:guest@127.0.0.1:9"
    with override_settings(BROKER_URL=node.url, BROKER_MANAGEMENT_URL=away):
        daemon = make_runner(broker, tmp_path)
        daemon.setup()
        try:
            run = start("probe")
            until(daemon, run, lambda: bool(daemon.context.problem))
            assert run.state == RunState.STARTING
            assert "does not answer" in daemon.context.problem
            daemon.context.accounts = BrokerAccounts(
                node.management_url, node.url, installation="i3"
            )
            until(daemon, run, lambda: run.state in FINAL)
            assert (tmp_path / "runs" / str(run.pk) / "url").exists()
        finally:
            daemon.teardown()


@pytest.mark.django_db(transaction=True)
def test_counters_in_another_runs_name_are_refused(
    broker: Broker, accounts: BrokerAccounts
) -> None:
    daemon = StatisticsDaemon(broker=broker, clock=SystemClock())
    daemon.setup()
    try:
        with opened(accounts.open(7, "b2", TOPIC)) as own:
            counters = RunCounters(run=8, boot="b2", seq=1)
            own.publish([Outgoing(encode(counters), key=topology.STATISTICS.name)]).result(10)
        deadline = time.monotonic() + 30
        while not DeadLetter.objects.exists() and time.monotonic() < deadline:
            daemon.step()
    finally:
        daemon.teardown()
    assert DeadLetter.objects.get().reason == "run.7.b2 speaks for run.8.b2"
    assert not RunCounter.objects.exists()
