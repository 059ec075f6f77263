"""An agent that replays a recording: real addresses, no connection."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from apps.agents.downloader.fetchers import FetchOptions, available_types, read_fetch_options
from apps.agents.downloader.options import read_options
from tests.agents.downloader.conftest import Start
from tests.agents.downloader.other_side import OtherSide
from tests.yardkit.recordings.writers import WarcRecorder
from tests.yardkit.web_server import WebServer
from yardkit.env import Env, EnvError
from yardkit.protocol import DownloaderType, FailureKind
from yardkit.recordings import open_recording

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
    other: OtherSide,
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


async def test_what_is_not_recorded_is_fetched_if_the_agent_may(
    start: Start, other: OtherSide, recording: Path, site: WebServer
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
