"""Submissions to a real server: too large bodies, and an unreachable database."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from apps.routing.engine.submissions import MOST_BYTES
from tests.projects.web_process import START_SECONDS, web_process

PATHS = [
    "/task/",
    "/projects/ic/task",
    "/inbound/a/b/check_task/",
    "/api/v1/routing/projects/7/task",
]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nowhere = probe.getsockname()[1]
    with web_process(
        tmp_path_factory.mktemp("data"),
        DATABASE_URL=f"postgresql://nobody@127.0.0.1:{nowhere}/nothing",
        COMPAT_ANONYMOUS_FROM="127.0.0.1/32",
    ) as web:
        yield web.port


def post(port: int, path: str, body: Any, **headers: str) -> tuple[int, dict[str, Any], Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
    with closing(connection):
        connection.request("POST", path, body, {"Content-Type": "application/json"} | headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read()), response.headers


@pytest.mark.slow("6 s")
@pytest.mark.parametrize("path", PATHS)
def test_a_length_that_is_told_is_judged_before_the_body(path: str, port: int) -> None:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=START_SECONDS)) as wire:
        told = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {MOST_BYTES + 1}\r\n\r\n"
        )
        wire.sendall(told.encode())
        # Not a byte of the body was sent.
        assert wire.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_tells_no_length(port: int) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(MOST_BYTES // 100_000 + 1):
            yield b" " * 100_000

    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)) as wire:
        headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
        wire.request("POST", "/task/", pieces(), headers, encode_chunked=True)
        answer = wire.getresponse()
        assert (answer.status, json.loads(answer.read())["code"]) == (413, "body_too_large")


@pytest.mark.slow("20 s")
@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer cy_abc_def"}], ids=["guest", "token"]
)
def test_without_a_database_the_client_shall_try_again(headers: dict[str, str], port: int) -> None:
    status, answer, told = post(port, "/task/", b"{}", **headers)
    assert (status, answer["code"]) == (503, "unavailable")
    assert int(told["Retry-After"]) > 0
