"""Files of the agent's server: what lies below its folder, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from apps.agents.downloader.fetchers import FetchOptions, available_types
from apps.agents.downloader.fetchers.options import read_fetch_options
from tests.agents.downloader.agent_peer import AgentPeer
from tests.agents.downloader.conftest import Start
from tests.agents.downloader.fetchers.conftest import Opener, get
from yardkit.env import Env, EnvError
from yardkit.protocol import DownloaderType, FailureKind


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "files"
    (root / "in").mkdir(parents=True)
    (root / "in" / "页 1.html").write_bytes(b"<p>hello</p>")
    (root / "data.json.gz").write_bytes(b"packed")
    (root / "large").write_bytes(b"x" * 5000)
    (tmp_path / "secret").write_bytes(b"secret")
    return root


@pytest.mark.covers("S1.30")
async def test_files(root: Path, opener: Opener) -> None:
    opener.equip(files=root)
    fetcher = opener("file")
    for url in (f"file://{root}/in/%E9%A1%B5%201.html", f"{root}/in/页 1.html", "in/页 1.html"):
        fetched = await get(fetcher, url)
        assert (fetched.status, fetched.body, fetched.url) == (200, b"<p>hello</p>", url), fetched
        headers = dict(fetched.headers)
        assert (headers["Content-Type"], headers["Content-Length"]) == ("text/html", "12")
        assert headers["Last-Modified"].endswith("GMT")
    assert dict((await get(fetcher, "data.json.gz")).headers)["Content-Type"] == "application/gzip"
    for missing in ("nothing", "in/nothing", "no/folder"):
        gone = await get(fetcher, missing)
        assert (gone.status, gone.failure, gone.body) == (404, "", b"")
    head = await get(fetcher, "large", method="HEAD")
    assert (head.status, head.body) == (200, b"")


async def test_the_size_is_limited(root: Path, opener: Opener) -> None:
    opener.equip(files=root)
    cut = await get(opener("file", max_body_bytes=1000), "large")
    assert (cut.status, cut.body, cut.truncated) == (200, b"x" * 1000, True)
    exact = await get(opener("file", max_body_bytes=5000), "large")
    assert (len(exact.body), exact.truncated) == (5000, False)


async def test_nothing_else_is_read(root: Path, opener: Opener) -> None:
    (root / "link").symlink_to(root.parent / "secret")
    (root / "folder-link").symlink_to(root.parent)
    (root / "inside-link").symlink_to(root / "large")
    os.mkfifo(root / "fifo")
    opener.equip(files=root)
    fetcher = opener("file", timeout_seconds=5.0)
    for url in (
        "/etc/passwd",
        "file:///etc/passwd",
        f"file://{root.parent}/secret",
        "../secret",
        "in/../../secret",
        f"file://{root}/../secret",
        f"file://{root}/%2e%2e/secret",
        "link",
        "inside-link",
        "folder-link/secret",
        "fifo",
        "in",
        ".",
        f"file://{root}/",
        "large/x",
        "file://other.example/large",
        f"{root}-other/large",
    ):
        fetched = await get(fetcher, url)
        assert fetched.failure == FailureKind.ADDRESS_REFUSED, (url, fetched)
        assert fetched.body == b""
    for url in ("", "a\0b", "file:///%00", "http://127.0.0.1/", "file:///%ff"):
        fetched = await get(fetcher, url)
        assert fetched.failure == FailureKind.BAD_REQUEST, (url, fetched)
    post = await get(fetcher, "large", method="POST")
    assert post.failure == FailureKind.BAD_REQUEST


async def test_a_device_is_not_read(opener: Opener) -> None:
    opener.equip(files=Path("/dev"))
    for device in ("zero", "null"):
        fetched = await get(opener("file"), device)
        assert fetched.failure == FailureKind.ADDRESS_REFUSED, fetched


async def test_without_a_folder_there_is_no_such_type(root: Path, opener: Opener) -> None:
    assert DownloaderType.FILE not in available_types()
    assert DownloaderType.FILE in available_types(opener.equip(files=root).options)
    with pytest.raises(ValueError, match=r"type file: set AGENT_FILES"):
        opener("file", opener.equip())


def test_the_setting(root: Path, tmp_path: Path) -> None:
    assert read_fetch_options(Env({}), tmp_path).files is None
    assert read_fetch_options(Env({"AGENT_FILES": str(root)}), tmp_path).files == root
    for bad in ("relative", str(root / "large")):
        with pytest.raises(EnvError, match="AGENT_FILES: it is no folder"):
            read_fetch_options(Env({"AGENT_FILES": bad}), tmp_path)


@pytest.mark.covers("S1.30", "S1.31")
async def test_an_agent_answers_what_it_cannot_make(
    root: Path, start: Start, other: AgentPeer
) -> None:
    start(fetching=FetchOptions(files=root))
    refused = await other.allocate(use_proxy=True)
    assert (refused.ok, "no proxy" in refused.reason) == (False, True)
    assert (await other.allocate(type="file")).ok
    other.download(["in/页 1.html", "../secret"])
    answers = await other.results(2)
    assert [answers[number].body for number in sorted(answers)] == [b"<p>hello</p>", b""]


async def test_an_agent_without_files(start: Start, other: AgentPeer) -> None:
    start()
    ready = await other.allocate(type="file")
    assert not ready.ok
    assert "this agent cannot make downloaders of type file: set AGENT_FILES" in ready.reason
