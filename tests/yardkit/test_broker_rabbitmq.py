"""What only the RabbitMQ adapter can suffer: refused logins, lost connections, a hung server."""

from __future__ import annotations

import logging
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit, urlunsplit

import pytest

from tests.plugins.measurements import Measured
from tests.yardkit.broker_fixtures import (
    PATIENCE_SECONDS,
    Brokers,
    bodies,
    put,
    ready,
    take,
    wait_until,
)
from tests.yardkit.broker_proxy import Proxy
from yardkit.broker import BadBrokerURL, Broker, BrokerUnavailable, Outgoing, QueueSpec, connect
from yardkit.broker.rabbitmq_url import parse_rabbitmq_url

PASSWORD = "s3cret-of-nobody"


def with_address(url: str, host: str = "", port: int = 0, user: str = "", path: str = "") -> str:
    parts = urlsplit(url)
    login = user or f"{parts.username or 'guest'}:{parts.password or 'guest'}"
    netloc = f"{login}@{host or parts.hostname}:{port or parts.port or 5672}"
    return urlunsplit(parts._replace(netloc=netloc, path=path or parts.path))


# --- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("amqp://", "no host"),
        ("amqp:///vhost", "no host"),
        ("amqp://host:port/", "port"),
        ("amqp://host:70000/", "port"),
        ("amqp://host:0/", "port"),
        ("amqp://host/a/b", "%2F"),
        ("amqp://host/a?heartbeat=3", "options"),
        ("redis://host", "no broker"),
        ("host:5672", "no broker"),
        ("", "no broker"),
    ],
)
def test_bad_urls_say_what_is_wrong(url: str, said: str) -> None:
    with pytest.raises(BadBrokerURL, match=said) as caught:
        connect(url, name="test")
    assert "amqp://user:password@host:5672/vhost" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "host", "port", "vhost", "user", "password"),
    [
        ("amqp://h", "h", 5672, "/", "guest", "guest"),
        ("amqp://h/", "h", 5672, "/", "guest", "guest"),
        ("amqp://h/%2F", "h", 5672, "/", "guest", "guest"),
        ("amqps://h", "h", 5671, "/", "guest", "guest"),
        ("amqp://u:p%40%2F@h:1/a%2Fb", "h", 1, "a/b", "u", "p@/"),
        ("amqp://u:@[::1]:2/v", "::1", 2, "v", "u", ""),
    ],
)
def test_urls_are_read(
    url: str, host: str, port: int, vhost: str, user: str, password: str
) -> None:
    address = parse_rabbitmq_url(url)
    assert (address.host, address.port, address.vhost) == (host, port, vhost)
    assert (address.user, address.password) == (user, password)
    if password and password != user:
        assert password not in repr(address) + address.url
    again = parse_rabbitmq_url(address.url)
    assert (again.host, again.port, again.vhost, again.user) == (host, port, vhost, user)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable, match=f"no RabbitMQ at 127.0.0.1:{port}") as caught:
        connect(f"amqp://u:{PASSWORD}@127.0.0.1:{port}/", name="test", timeout=0.5)
    assert 0.4 < time.monotonic() - began < 10
    assert "Connection refused" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


@pytest.mark.slow("1 s")
def test_somebody_else_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def hang_up() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(BrokerUnavailable, match=f"127.0.0.1:{port}"):
            connect(f"amqp://127.0.0.1:{port}/", name="test", timeout=1.0)
        server.shutdown(socket.SHUT_RDWR)


def test_unknown_host() -> None:
    with pytest.raises(BrokerUnavailable, match=r"no RabbitMQ at nowhere\.invalid:5672"):
        connect("amqp://nowhere.invalid/", name="test", timeout=0.5)


@pytest.mark.services
def test_refused_logins_fail_at_once(rabbit_vhost: str, caplog: pytest.LogCaptureFixture) -> None:
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable, match="refused the user 'guest' or the password") as one:
        connect(with_address(rabbit_vhost, user=f"guest:{PASSWORD}"), name="test", timeout=60)
    with pytest.raises(BrokerUnavailable, match="has no vhost 'there-is-none'") as two:
        connect(with_address(rabbit_vhost, path="/there-is-none"), name="test", timeout=60)
    assert time.monotonic() - began < 20
    for error in (one, two):
        assert "\n" not in str(error.value)
        assert PASSWORD not in str(error.value)
    assert PASSWORD not in caplog.text
    assert "Traceback" not in caplog.text


def put_surely(broker: Broker, queue: str, text: bytes) -> None:
    """Publish again while the answer is that the outcome is unknown, as callers have to."""

    def is_confirmed() -> bool:
        error = broker.publish([Outgoing(text, queue)]).exception(PATIENCE_SECONDS)
        assert error is None or isinstance(error, BrokerUnavailable)
        return error is None

    wait_until(is_confirmed, "a confirm")


# --- lost connections ---------------------------------------------------------------------------


@pytest.fixture
def proxy(rabbit_vhost: str) -> Iterator[Proxy]:
    parts = urlsplit(rabbit_vhost)
    with Proxy(parts.hostname or "127.0.0.1", parts.port or 5672) as made:
        yield made


@pytest.fixture
def brokers(rabbit_vhost: str, proxy: Proxy, unique_prefix: str) -> Iterator[Brokers]:
    """Direct connections; ``through`` makes one that can be cut."""
    made = Brokers(rabbit_vhost, unique_prefix)
    yield made
    proxy.open()
    proxy.freeze(frozen=False)
    made.close()


@pytest.fixture
def through(brokers: Brokers, proxy: Proxy) -> Broker:
    return brokers.connect(with_address(brokers.url, "127.0.0.1", proxy.port))


@pytest.fixture
def queue(through: Broker, brokers: Brokers) -> str:
    name = brokers.name()
    through.declare(QueueSpec(name))
    return name


@pytest.mark.services
def test_the_url_hides_the_password(through: Broker) -> None:
    assert through.url.startswith("amqp://guest@127.0.0.1:")
    assert "guest:guest" not in through.url


@pytest.mark.services
@pytest.mark.fault
def test_publishing_and_consuming_go_on_after_a_cut(
    through: Broker, queue: str, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    subscription = through.subscribe(queue)
    put(through, queue, b"before")
    (held,) = take(subscription, 1)
    proxy.cut()
    wait_until(lambda: not through.connected, "the loss is noticed")
    put_surely(through, queue, b"after")
    got = take(subscription, 2)
    assert bodies(got) == [b"before", b"after"]
    assert [delivery.redelivered for delivery in got] == [True, False]
    subscription.ack([held])  # of the old connection: ignored
    subscription.ack(got)
    subscription.close()
    wait_until(lambda: ready(through, queue) == 0, "both are acknowledged")
    assert "Traceback" not in caplog.text


@pytest.mark.services
@pytest.mark.fault
def test_nothing_confirmed_is_lost_under_repeated_cuts(
    through: Broker, brokers: Brokers, queue: str, proxy: Proxy, measured: Measured
) -> None:
    confirmed: list[bytes] = []
    unknown: list[bytes] = []
    done = threading.Event()

    def publish_all() -> None:
        number = 0
        while not done.is_set():
            texts = [str(number + offset).encode() for offset in range(10)]
            number += 10
            confirm = through.publish([Outgoing(text, queue) for text in texts])
            error = confirm.exception(PATIENCE_SECONDS)
            assert error is None or isinstance(error, BrokerUnavailable)
            (confirmed if error is None else unknown).extend(texts)

    thread = threading.Thread(target=publish_all)
    thread.start()
    for _ in range(3):
        goal = len(confirmed) + 200
        wait_until(lambda goal=goal: len(confirmed) >= goal, "publishing goes on")
        proxy.cut()
        # Ten may have been confirmed before it and are noted only now.
        began, goal = time.monotonic(), len(confirmed) + 11
        wait_until(lambda goal=goal: len(confirmed) >= goal, "publishing goes on")
        measured(back_s=time.monotonic() - began)
    done.set()
    thread.join(PATIENCE_SECONDS)
    other = brokers.connect()
    number = ready(other, queue)
    got = bodies(take(other.subscribe(queue, prefetch=5000), number))
    lost = set(confirmed) - set(got)
    measured(of=len(confirmed), lost=len(lost), twice=len(got) - len(set(got)))
    assert set(confirmed) <= set(got) <= {*confirmed, *unknown}
    assert len(got) == len(set(got))


@pytest.mark.services
@pytest.mark.fault
def test_publishes_wait_for_the_connection(
    through: Broker, queue: str, proxy: Proxy, measured: Measured
) -> None:
    put(through, queue, b"first")
    proxy.shut()
    # Both connections: what is sent on one that only seems to stand would fail.
    wait_until(lambda: proxy.refused >= 2, "the loss is noticed")
    confirms = [through.publish([Outgoing(b"x", queue)] * 10) for _ in range(20)]
    assert not any(confirm.done() for confirm in confirms)
    proxy.open()
    began = time.monotonic()
    confirms[0].result(PATIENCE_SECONDS)
    back = time.monotonic() - began
    for confirm in confirms:
        confirm.result(PATIENCE_SECONDS)
    more = ready(through, queue) - 201
    measured(of=201, lost=max(0, -more), twice=max(0, more), back_s=back)
    assert more == 0


@pytest.mark.services
@pytest.mark.fault
def test_waiting_ends_one_day(
    through: Broker, queue: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yardkit.broker.rabbitmq_publisher.PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr("yardkit.broker.rabbitmq_control.PATIENCE_SECONDS", 0.3)
    proxy.shut()
    wait_until(lambda: not through.connected, "the loss is noticed")
    with pytest.raises(BrokerUnavailable, match="no connection"):
        put(through, queue, b"x")
    with pytest.raises(BrokerUnavailable, match="no connection"):
        through.depth(queue)


@pytest.mark.services
@pytest.mark.fault
def test_what_was_declared_comes_back(through: Broker, brokers: Brokers, proxy: Proxy) -> None:
    exchange, name = brokers.name(), brokers.name()
    through.declare_exchange(exchange, "topic")
    through.declare(QueueSpec(name, durable=False))
    through.bind(name, exchange, "a.*")
    subscription = through.subscribe(name)
    proxy.shut()
    wait_until(lambda: not through.connected, "the loss is noticed")
    other = brokers.connect()
    other.delete(name)  # as a restart of the broker does with a queue that is not durable
    waiting = [through.publish([Outgoing(b"waiting", name)]) for _ in range(10)]
    proxy.open()
    for confirm in waiting:
        confirm.result(PATIENCE_SECONDS)  # sent only after the queue was declared again
    subscription.ack(take(subscription, 10))

    def is_bound() -> bool:
        message = Outgoing(b"x", "a.b", exchange=exchange)
        return other.publish([message]).exception(PATIENCE_SECONDS) is None

    wait_until(is_bound, "queue and binding are back")
    assert bodies(take(subscription, 1)) == [b"x"]


@pytest.mark.services
@pytest.mark.fault
def test_requests_work_after_a_cut(
    through: Broker, brokers: Brokers, queue: str, proxy: Proxy
) -> None:
    brokers.worker("echo", brokers.url, queue)
    assert through.request(Outgoing(b"ab", queue), PATIENCE_SECONDS).body == b"ba"
    proxy.cut()
    wait_until(lambda: not through.connected, "the loss is noticed")

    def is_answered() -> bool:
        try:
            return through.request(Outgoing(b"cd", queue), 5.0).body == b"dc"
        except BrokerUnavailable:
            return False  # it was sent before its own connection was known to be lost

    wait_until(is_answered, "an answer")


@pytest.mark.services
@pytest.mark.fault
def test_closing_while_the_broker_is_away_or_silent(
    brokers: Brokers, proxy: Proxy, measured: Measured
) -> None:
    name = brokers.name()
    away, silent = (
        brokers.connect(with_address(brokers.url, "127.0.0.1", proxy.port)) for _ in range(2)
    )
    away.declare(QueueSpec(name))
    for broker in (away, silent):
        with pytest.raises(TimeoutError):  # so that both have a reply queue to leave
            broker.request(Outgoing(b"", name), 0.1)
    proxy.freeze(frozen=True)
    waiting = silent.publish([Outgoing(b"", name)])
    began = time.monotonic()
    silent.close(timeout=0.3)
    of_silent = time.monotonic() - began
    assert waiting.exception(0) is not None
    proxy.freeze(frozen=False)
    proxy.shut()
    wait_until(lambda: not away.connected, "the loss is noticed")
    waiting = away.publish([Outgoing(b"", name)])
    closing = time.monotonic()
    away.close(timeout=0.3)
    of_away = time.monotonic() - closing
    assert waiting.exception(0) is not None
    measured(note=f"closed in {of_away:.1f} s from one away, in {of_silent:.1f} s from one silent")
    assert time.monotonic() - began < 20


@pytest.mark.services
@pytest.mark.fault
@pytest.mark.skipif(shutil.which("rabbitmqctl") is None, reason="needs rabbitmqctl")
def test_connections_closed_by_the_operator(
    brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    vhost = unquote(urlsplit(brokers.url).path[1:]) or "/"
    if vhost == "/":
        pytest.skip("no own vhost here: other people's connections would be closed too")
    name = brokers.name()
    broker = brokers.connect()
    broker.declare(QueueSpec(name))
    subscription = broker.subscribe(name)
    put(broker, name, b"before")
    subscription.ack(take(subscription, 1))
    caplog.set_level(logging.INFO)
    command = ["rabbitmqctl", "--quiet", "close_all_connections", "--vhost", vhost, "a test"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    wait_until(lambda: "lost" in caplog.text, "the loss is noticed")
    wait_until(lambda: broker.connected, "it comes back")
    put_surely(broker, name, b"after")
    assert b"after" in bodies(take(subscription, 1))
    assert "Traceback" not in caplog.text
