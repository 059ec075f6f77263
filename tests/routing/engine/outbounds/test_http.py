"""HTTP outbound: status codes, batches, and blocked addresses."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from apps.routing.engine import rules
from apps.routing.engine.outbounds import registry
from apps.routing.engine.outbounds.base import DELIVERED, Outbound, SendStatus, Settings
from tests.routing.engine.outbounds.targets import PATIENCE_SECONDS, sent

Answer = tuple[int, dict[str, str]]


class Service:
    """HTTP server that answers as ``decide`` says; ``seen`` has (headers, JSON) of each request."""

    def __init__(self) -> None:
        self.seen: list[tuple[dict[str, str], Any]] = []
        self.decide: Callable[[Any], Answer] = lambda _: (204, {})
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.seen.append(({k.lower(): v for k, v in self.headers.items()}, body))
                status, headers = service.decide(body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                """Do not log requests."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/items"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def service() -> Iterator[Service]:
    with contextlib.closing(Service()) as made:
        yield made


@pytest.fixture
def make() -> Iterator[Callable[..., Outbound]]:
    with contextlib.ExitStack() as stack:

        def build(url: str, networks: tuple[str, ...] = ("127.0.0.0/8",), **init: Any) -> Outbound:
            rule = rules.Outbound("own", "http.HttpOutbound", init={"url": url, **init})
            assert registry.check(rule) == []
            made = registry.build(rule, Settings("test", PATIENCE_SECONDS, networks))
            stack.callback(made.close)
            return made

        yield build


def test_a_request_says_what_it_is(service: Service, make: Callable[..., Outbound]) -> None:
    outbound = make(service.url, headers={"Authorization": "Bearer hunter2"})
    assert outbound.send([sent(1, name="桂林")]) == [DELIVERED]
    headers, body = service.seen[0]
    assert body["name"] == "桂林"
    assert headers["content-type"] == "application/json; charset=utf-8"
    assert headers["idempotency-key"] == "u1"
    assert headers["authorization"] == "Bearer hunter2"
    assert headers["user-agent"] == "test"


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, "delivered"),
        (201, "delivered"),
        (202, "delivered"),
        (302, "away"),
        (400, "refused"),
        (401, "away"),
        (403, "away"),
        (404, "away"),
        (408, "away"),
        (409, "refused"),
        (413, "refused"),
        (415, "refused"),
        (422, "refused"),
        (429, "away"),
        (500, "away"),
        (503, "away"),
    ],
)
def test_what_an_answer_means(
    service: Service, make: Callable[..., Outbound], status: int, verdict: str
) -> None:
    location = {"Location": service.url} if status == 302 else {}
    service.decide = lambda _: (status, location)
    outcome = make(service.url).send([sent(1)])[0]
    assert outcome.verdict == verdict
    assert verdict == "delivered" or str(status) in outcome.reason
    assert len(service.seen) == 1


def test_one_bad_message_does_not_fail_the_others(
    service: Service, make: Callable[..., Outbound]
) -> None:
    service.decide = lambda body: (422 if body["number"] == 2 else 204, {})
    outcomes = make(service.url).send([sent(number) for number in range(5)])
    assert [one.verdict for one in outcomes] == [
        "delivered",
        "delivered",
        "refused",
        "delivered",
        "delivered",
    ]


def test_nothing_overtakes_a_message_that_is_held_up(
    service: Service, make: Callable[..., Outbound]
) -> None:
    service.decide = lambda body: (500 if body["number"] == 2 else 204, {})
    outcomes = make(service.url).send([sent(number) for number in range(5)])
    assert [one.verdict for one in outcomes] == ["delivered"] * 2 + ["away"] * 3
    assert [body["number"] for _, body in service.seen] == [0, 1, 2]


def test_batches_are_arrays_in_order(service: Service, make: Callable[..., Outbound]) -> None:
    outbound = make(service.url, batch=40)
    assert outbound.send([sent(number) for number in range(100)]) == [DELIVERED] * 100
    assert [len(body) for _, body in service.seen] == [40, 40, 20]
    assert [one["number"] for _, body in service.seen for one in body] == list(range(100))
    names = "\n".join(f"u{number}" for number in range(40)).encode()
    keys = [headers["idempotency-key"] for headers, _ in service.seen]
    assert keys[0] == hashlib.sha256(names).hexdigest()
    assert len(set(keys)) == 3


@pytest.mark.parametrize("status", [400, 413])
def test_a_bad_message_of_a_batch_is_found(
    service: Service, make: Callable[..., Outbound], status: int
) -> None:
    bad = {7, 31}
    service.decide = lambda body: (status if any(one["number"] in bad for one in body) else 204, {})
    outcomes = make(service.url, batch=64).send([sent(number) for number in range(64)])
    assert {n for n, one in enumerate(outcomes) if one.verdict is SendStatus.REFUSED} == bad
    assert {one.verdict for n, one in enumerate(outcomes) if n not in bad} == {SendStatus.DELIVERED}
    taken = [
        one["number"]
        for _, body in service.seen
        for one in body
        if not any(each["number"] in bad for each in body)
    ]
    assert taken == [number for number in range(64) if number not in bad]


def test_several_requests_at_once(service: Service, make: Callable[..., Outbound]) -> None:
    together = threading.Barrier(4, timeout=PATIENCE_SECONDS)

    def decide(_: Any) -> Answer:
        together.wait()
        return 204, {}

    service.decide = decide
    # Each answer waits for three others.
    assert make(service.url, concurrency=4).send([sent(n) for n in range(8)]) == [DELIVERED] * 8


def test_a_pause_that_is_asked_for_is_made(service: Service, make: Callable[..., Outbound]) -> None:
    service.decide = lambda _: (429, {"Retry-After": "3600"})
    outbound = make(service.url)
    assert outbound.send([sent(1)])[0].code == "busy"
    outcome = outbound.send([sent(1)])[0]
    assert (outcome.verdict, outcome.code) == (SendStatus.AWAY, "busy")
    assert len(service.seen) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://169.254.169.254/latest",
        "http://10.0.0.1/",
    ],
)
def test_inner_addresses_are_refused_unless_opened(
    service: Service, make: Callable[..., Outbound], url: str
) -> None:
    outbound = make(url.format(port=service.server.server_port), ())
    outcome = outbound.send([sent(1)])[0]
    assert (outcome.verdict, outcome.code) == (SendStatus.AWAY, "address_refused")
    assert "ROUTING_ALLOWED_NETWORKS" in outcome.reason
    assert service.seen == []


def test_a_name_that_cannot_be_a_header_is_replaced(
    service: Service, make: Callable[..., Outbound]
) -> None:
    odd = sent(1)
    odd = type(odd)("桂林\r\nX: y", odd.message)
    assert make(service.url).send([odd]) == [DELIVERED]
    headers, _ = service.seen[0]
    assert len(headers["idempotency-key"]) == 64
    assert "x" not in headers


def test_the_password_of_the_address_is_sent_and_not_told(
    service: Service, make: Callable[..., Outbound]
) -> None:
    url = service.url.replace("http://", "http://user:hunter2@")
    service.decide = lambda _: (500, {})
    outcome = make(url).send([sent(1)])[0]
    assert service.seen[0][0]["authorization"].startswith("Basic ")
    assert "hunter2" not in outcome.reason
