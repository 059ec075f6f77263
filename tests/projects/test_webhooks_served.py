"""Deliveries to a real server: bodies that are too long, and a database that is away."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.projects.web_process import START_SECONDS, web_process
from tests.projects.webhooks import github, tag_push

LIMIT = 100_000


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nowhere = probe.getsockname()[1]
    with web_process(
        tmp_path_factory.mktemp("data"),
        DATABASE_URL=f"postgresql://nobody@127.0.0.1:{nowhere}/nothing",
        WEBHOOK_MAX_BYTES=str(LIMIT),
    ) as web:
        yield web.port


def post(port: int, body: Any, headers: dict[str, str]) -> tuple[int, dict[str, Any], Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    with closing(connection):
        connection.request("POST", "/webhooks/news/", body, headers, encode_chunked=True)
        response = connection.getresponse()
        return response.status, json.loads(response.read()), response.headers


@pytest.mark.slow("4 s")
def test_a_length_that_is_told_is_judged_before_the_body(port: int) -> None:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=START_SECONDS)) as wire:
        wire.sendall(
            b"POST /webhooks/news/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 31457280\r\n\r\n"
        )
        # Not a byte of the body was sent.
        assert wire.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_tells_no_length(port: int) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(LIMIT // 1000 + 1):
            yield b"x" * 1000

    status, answer, _headers = post(port, pieces(), {"Transfer-Encoding": "chunked"})
    assert (status, answer["code"]) == (413, "body_too_large")


@pytest.mark.slow("10 s")
def test_without_a_database_the_sender_shall_try_again(port: int) -> None:
    # As long as a body may be.
    sent = github("push", json.dumps(tag_push("a/b/1")).encode().ljust(LIMIT))
    status, answer, headers = post(port, sent.body, sent.headers)
    assert (status, answer["code"]) == (503, "unavailable")
    assert int(headers["Retry-After"]) > 0
