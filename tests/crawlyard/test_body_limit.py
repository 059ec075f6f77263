"""Bodies of strangers: none is kept on disk before its length is judged."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from http.client import HTTPConnection
from typing import Any

import pytest
import uvicorn

from crawlyard.body_limit import MOST_ELSEWHERE, BodyLimit

PIECE = b" " * 1024 * 1024
PATHS = ["/admin/login/", "/no/such/page", "/api/v1/jobs", "/api/v1/jobs/import"]


class Reads:
    """Stands where Django does: takes the whole body, then answers 200."""

    def __init__(self) -> None:
        self.taken = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            self.taken += len(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def sent(path: str, size: int, *, told: bool) -> tuple[int, int]:
    """(status of the answer, bytes that came through) for a body of ``size``."""
    reads, answers, left = Reads(), [], size

    async def receive() -> dict[str, Any]:
        nonlocal left
        body = PIECE[: min(left, len(PIECE))]
        left -= len(body)
        return {"type": "http.request", "body": body, "more_body": left > 0}

    async def send(message: Any) -> None:
        answers.append(message)

    headers = [(b"content-length", str(size).encode())] if told else []
    scope = {"type": "http", "path": path, "headers": headers}
    asyncio.run(BodyLimit(reads)(scope, receive, send))
    return answers[0]["status"], reads.taken


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
def test_a_stranger_cannot_fill_the_disk_by_any_page(path: str, told: bool) -> None:
    status, taken = sent(path, MOST_ELSEWHERE + 1, told=told)
    assert status == 413
    assert taken <= (0 if told else MOST_ELSEWHERE)
    assert sent(path, MOST_ELSEWHERE, told=told) == (200, MOST_ELSEWHERE)


@pytest.mark.parametrize("chunked", [False, True])
def test_the_answer_reaches_a_client_that_sends_all_before_it_reads(chunked: bool) -> None:
    reads = Reads()
    server = uvicorn.Server(uvicorn.Config(BodyLimit(reads), lifespan="off", log_level="error"))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        client = HTTPConnection("127.0.0.1", listener.getsockname()[1], timeout=20)
        pieces = MOST_ELSEWHERE // len(PIECE) + 8
        headers = {} if chunked else {"Content-Length": str(pieces * len(PIECE))}
        client.request("POST", "/api/v1/jobs", iter([PIECE] * pieces), headers)
        answer = client.getresponse()
        assert (answer.status, json.load(answer)["code"]) == (413, "body_too_large")
        client.close()
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
    assert reads.taken <= MOST_ELSEWHERE
