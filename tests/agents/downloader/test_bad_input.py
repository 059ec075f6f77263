"""An agent's queue with everything in it that is no command: set aside, and the agent goes on."""

from __future__ import annotations

import time

import pytest

from tests.agents.downloader.agent_peer import LOOPBACK, AgentPeer, item, until
from tests.agents.downloader.conftest import Start
from tests.agents.malformed_messages import BAD_BODIES
from tests.yardkit.web_server import WebServer
from yardkit.broker import Broker
from yardkit.broker.base import DEAD_QUEUE, HEADER_REASON
from yardkit.protocol import (
    MAX_MESSAGE_BYTES,
    AllocateDownloader,
    DownloadCommand,
    DownloaderSettings,
    DownloadRequest,
    FailureKind,
    Register,
    encode,
)

REGISTER = Register(agent="a", name="", boot="", processors=1, total_memory_bytes=1)
LONG = DownloadRequest(url="http://a/", method="POST", body=b"x" * MAX_MESSAGE_BYTES)


def download(**changes: object) -> bytes:
    fields = {"run": 7, "reply_to": "r", "items": [], "dispatched_at": time.time()}
    return encode(DownloadCommand(**(fields | changes)))  # type: ignore[arg-type]


def allocate(**changes: object) -> bytes:
    fields = {"run": 7, "reply_to": "r", "settings": DownloaderSettings()}
    return encode(AllocateDownloader(**(fields | changes)))  # type: ignore[arg-type]


REFUSED = {name: (body, "not a message") for name, body in BAD_BODIES.items()} | {
    "too-long": (BAD_BODIES["too-long"], "a command has up to"),
    "too-long-string": (BAD_BODIES["too-long-string"], "a command has up to"),
    "too-long-command": (download(items=[item(1, LONG)]), "a command has up to"),
    "version-99": (BAD_BODIES["version-99"], "message version 99"),
    "version-minus-1": (BAD_BODIES["version-minus-1"], "message version -1"),
    "other-message": (encode(REGISTER), "Register is no command to an agent"),
    "dispatched-nan": (download(dispatched_at=float("nan")), "dispatched_at is nan"),
    "dispatched-infinite": (download(dispatched_at=float("inf")), "dispatched_at is inf"),
    "allocated-nan": (allocate(allocated_at=float("nan")), "allocated_at is nan"),
    "no-reply": (download(reply_to=""), "reply_to names no queue"),
    "long-reply": (download(reply_to="x" * 999), "reply_to names no queue"),
    "allocate-no-reply": (allocate(reply_to=""), "reply_to names no queue"),
    "long-report": (download(report_to="中" * 86), "report_to names no queue"),
}


@pytest.mark.fault
@pytest.mark.covers("S1.24")
@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_no_command_is_set_aside(
    start: Start, broker: Broker, other: AgentPeer, site: WebServer, name: str
) -> None:
    body, reason = REFUSED[name]
    running = start()
    dead = broker.subscribe(DEAD_QUEUE)
    other.send(body)
    letters = await until(lambda: dead.take(10))
    dead.ack(letters)
    assert [letter.body == body for letter in letters] == [True]
    said = str(letters[0].headers[HEADER_REASON])
    assert reason in said
    assert len(said) < 1000
    # And the agent goes on.
    assert (await other.allocate()).ok
    other.download([site.url("/")])
    assert (await other.results(1))[0].body == b"hello"
    await other.emptied()
    assert running.agent.counters.refused == 1
    assert "1 messages refused" in str(running.agent.counters)


@pytest.mark.fault
async def test_strange_values_in_a_good_command_fail_what_they_are_in(
    start: Start, other: AgentPeer, site: WebServer
) -> None:
    running = start()
    await other.allocate()
    requests = [
        DownloadRequest(url="\x00"),
        DownloadRequest(url=site.url("/\x00")),
        DownloadRequest(url=site.url("/"), method="G\x00T"),
        DownloadRequest(url=site.url("/"), headers={"X\x00": "y"}),
        DownloadRequest(url=site.url("/"), headers={"X": "y\x00"}),
        DownloadRequest(url=site.url("/"), timeout_seconds=float("nan")),
        DownloadRequest(url=site.url("/"), timeout_seconds=float("inf")),
        DownloadRequest(url="http://" + "a" * 1_000_000),
    ]
    items = [item(number, request, "\x00") for number, request in enumerate(requests)]
    good = item(len(items), DownloadRequest(url=site.url("/")))
    for reply_to in (other.answers.name, "gone\x00"):
        command = DownloadCommand(
            run=7,
            reply_to=reply_to,
            items=[*items, good],
            dispatched_at=time.time(),
            report_to="also\x00gone",
        )
        other.send(command)
    results = await other.results(len(items) + 1)
    assert results.pop(len(items)).body == b"hello"
    assert results.pop(1).status == 404, "it is sent as %00"
    failures = {number: result.failure for number, result in results.items()}
    assert failures == dict.fromkeys(failures, FailureKind.BAD_REQUEST)
    await other.emptied()
    await until(lambda: running.agent.counters.unroutable == len(items) + 1)
    good_settings = DownloaderSettings(allowed_networks=LOOPBACK)
    strange = DownloaderSettings(allowed_networks=LOOPBACK, cookies={"a": "\x00\r\nX: y"})
    other.send(AllocateDownloader(run=-9, reply_to="gone\x00", settings=strange))
    other.send(AllocateDownloader(run=-8, reply_to="gone\x00", settings=good_settings))
    await until(lambda: -8 in running.agent.downloaders)
    assert -9 not in running.agent.downloaders
    await other.emptied()
    assert (await other.allocate()).ok
