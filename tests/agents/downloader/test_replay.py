"""An agent that replays a recording: real addresses, no connection."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from apps.agents.downloader.fetchers import FetchOptions, available_types, read_fetch_options
from apps.agents.downloader.options import read_options
from tests.agents.downloader.agent_peer import AgentPeer
from tests.agents.downloader.conftest import Start
from tests.plugins.object_server import SECRET, ServedFolder, issuing
from tests.yardkit.recordings.writers import WarcRecorder
from tests.yardkit.web_server import WebServer
from yardkit.broker import Broker
from yardkit.env import Env, EnvError
from yardkit.protocol import DownloaderType, FailureKind, ReplaySource
from yardkit.recordings import open_recording
from yardkit.tokens import sign_pages_token

pytestmark = pytest.mark.covers("OB.5")

SHOP = "https://shop.example"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "shop.warc.gz"
    warc = WarcRecorder(path)
    for number in range(3):
        warc.add(f"{SHOP}/{number}", f"page {number}".encode())
    return path


def refuse(*arguments: object) -> None:
    raise AssertionError(f"a connection or look-up: {arguments}")


@pytest.mark.parametrize("kind", list(DownloaderType)[:3])
async def test_runs_get_recorded_pages_without_a_connection(
    kind: DownloaderType,
    start: Start,
    other: AgentPeer,
    recording: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start(fetching=FetchOptions(recording=open_recording(recording)))
    assert (await other.allocate(type=kind, result_version=2)).ok
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    other.download([f"{SHOP}/{number}" for number in range(4)])
    found = await other.results(4)
    bodies = [found[number].body for number in range(4)]
    assert bodies == [b"page 0", b"page 1", b"page 2", b""]
    missing = found[3]
    assert (missing.failure, missing.status) == (FailureKind.NOT_RECORDED, 0)
    assert missing.error == f"GET {SHOP}/3 is not recorded"


@pytest.fixture
def kept(served_folder: ServedFolder, tmp_path: Path, broker: Broker) -> Iterator[ReplaySource]:
    """Two files of pages that run 3 has kept, and a center that hands out their addresses."""
    for name, numbers in (("a", (0, 1)), ("b", (2,))):
        path = tmp_path / f"{name}.warc.gz"
        warc = WarcRecorder(path)
        for number in numbers:
            warc.add(f"{SHOP}/{number}", f"page {number}".encode())
        served_folder.store.put(f"pages/p1/run-3/{name}.warc.gz", path.read_bytes())
    served_folder.store.put("pages/p1/run-4/other.warc.gz", b"of another run")
    with issuing(broker, served_folder.store, "agent-1"):
        yield ReplaySource(run=3, token=sign_pages_token(SECRET, 1, 3))


async def test_a_run_gets_the_kept_pages_of_another_one(
    start: Start, other: AgentPeer, kept: ReplaySource, served_folder: ServedFolder, site: WebServer
) -> None:
    start()
    assert (await other.allocate(type=DownloaderType.REPLAY, replay=kept, result_version=2)).ok
    other.download([f"{SHOP}/{number}" for number in range(3)] + [site.url("/")])
    found = await other.results(4)
    assert [found[number].body for number in range(3)] == [b"page 0", b"page 1", b"page 2"]
    assert found[3].failure == FailureKind.NOT_RECORDED
    assert served_folder.requests == {"GET": 2}
    assert site.connections == 0


async def test_what_was_not_kept_is_fetched_by_choice(
    start: Start, other: AgentPeer, kept: ReplaySource, site: WebServer
) -> None:
    start()
    source = msgspec.structs.replace(kept, fetch_missing=True)
    assert (await other.allocate(replay=source, result_version=2)).ok
    other.download([f"{SHOP}/2", site.url("/")])
    found = await other.results(2)
    assert [found[0].body, found[1].body] == [b"page 2", b"hello"]


@pytest.mark.parametrize("case", ["token", "none", "away"])
async def test_without_the_kept_pages_downloads_fail_and_say_why(
    case: str, start: Start, other: AgentPeer, kept: ReplaySource, served_folder: ServedFolder
) -> None:
    source, reason = kept, "the disk is full"
    if case == "token":
        source, reason = msgspec.structs.replace(kept, run=4), "the token is not that of"
    elif case == "none":
        served_folder.store.delete([f"pages/p1/run-3/{name}.warc.gz" for name in "ab"])
        reason = "none are kept"
    else:
        served_folder.broken = 507
    start()
    await other.allocate(type=DownloaderType.REPLAY, replay=source, result_version=3)
    other.download([f"{SHOP}/0"])
    (found,) = (await other.results(1)).values()
    assert found.failure == FailureKind.BODY_STORE
    assert found.error.startswith(f"kept pages of run {source.run}: ")
    assert reason in found.error


async def test_what_is_not_recorded_is_fetched_if_the_agent_may(
    start: Start, other: AgentPeer, recording: Path, site: WebServer
) -> None:
    start(fetching=FetchOptions(recording=open_recording(recording), fetches_missing=True))
    await other.allocate()
    other.download([f"{SHOP}/0", site.url("/")])
    found = await other.results(2)
    assert [found[0].body, found[1].body] == [b"page 0", b"hello"]


def test_options(recording: Path, tmp_path: Path) -> None:
    data = {"CRAWLYARD_DATA": str(tmp_path)}
    words = ["--replay", str(recording), "--replay-missing", "fetch"]
    _, _, given = read_options(words, Env(data))
    assert given.fetching.recording is not None
    assert given.fetching.fetches_missing
    env = Env({"AGENT_REPLAY": str(recording)})
    found = read_fetch_options(env, tmp_path)
    assert found.recording is not None
    assert not found.fetches_missing
    assert set(available_types(found)) == set(DownloaderType) - {DownloaderType.FILE}
    with pytest.raises(EnvError, match=r"^AGENT_REPLAY: .*nowhere: there is no such file"):
        read_fetch_options(Env({"AGENT_REPLAY": str(tmp_path / "nowhere")}), tmp_path)
    with pytest.raises(EnvError, match="AGENT_REPLAY_MISSING"):
        read_fetch_options(Env({"AGENT_REPLAY_MISSING": "perhaps"}), tmp_path)
