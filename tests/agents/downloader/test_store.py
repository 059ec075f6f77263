"""Allocation files: never half of one, and no damage that stops an agent."""

from __future__ import annotations

import hashlib
import os
import resource
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.agents.downloader.store import AllocationStore, BadAllocation, from_bytes, to_bytes
from tests.plugins.measurements import Measured
from yardkit import failpoints
from yardkit.protocol import AllocateDownloader, DownloaderSettings, ReleaseDownloader, encode


def allocation(run: int = 7, **changes: object) -> AllocateDownloader:
    changes.setdefault("cookies", {"session": "secret"})
    made = DownloaderSettings(**changes)  # type: ignore[arg-type]
    return AllocateDownloader(run=run, reply_to="run.7.boot", settings=made, allocated_at=5.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "agents" / "a" / "downloaders"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.covers("S1.49")
def test_what_is_saved_is_loaded_until_it_is_removed(folder: Path) -> None:
    store = AllocationStore(folder)
    assert store.load() == []
    for run in (7, -3, 2**63):
        store.save(allocation(run))
    store.save(allocation(7, timeout_seconds=3.0))
    assert {one.run: one for one in AllocationStore(folder).load()} == {
        7: allocation(7, timeout_seconds=3.0),
        -3: allocation(-3),
        2**63: allocation(2**63),
    }
    store.remove(7)
    store.remove(7)
    assert [one.run for one in AllocationStore(folder).load()] == [-3, 2**63]
    assert names(folder) == ["run--3.alloc", "run-9223372036854775808.alloc"]


def test_nobody_else_reads_the_cookies(folder: Path) -> None:
    before = os.umask(0)
    try:
        AllocationStore(folder).save(allocation())
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "run-7.alloc").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.covers("S1.49")
def test_names_with_a_dot_and_strange_names_are_skipped(folder: Path) -> None:
    store = AllocationStore(folder)
    store.save(allocation())
    (folder / ".run-7.alloc.tmp").write_bytes(b"half")
    (folder / ".run-8.alloc").write_bytes(to_bytes(allocation(8)))
    (folder / "notes.txt").write_text("by hand")
    assert [one.run for one in store.load()] == [7]
    assert names(folder) == [".run-8.alloc", "notes.txt", "run-7.alloc"]
    assert store.bad_files() == {}


GOOD = to_bytes(allocation())
HEADER_END = GOOD.index(b"\n") + 1


def newer() -> bytes:
    return GOOD.replace(b"allocation 1 ", b"allocation 2 ", 1)


@pytest.mark.fault
@pytest.mark.covers("S1.49")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (GOOD[:30], "it does not begin like an allocation file"),
        (GOOD[:-1], "its checksum is wrong"),
        (GOOD[:HEADER_END], "its checksum is wrong"),
        (GOOD + b"x", "its checksum is wrong"),
        (GOOD[:-5] + bytes([GOOD[-5] ^ 1]) + GOOD[-4:], "its checksum is wrong"),
        (newer(), "it is of version 2, this agent reads 1"),
        (b"\x80\x04\x95pickle", "it does not begin like an allocation file"),
        (to_bytes(allocation(8)), "it is of run 8"),
        (b"x" * (8 * 1024 * 1024 + 1), "it is larger than 8388608 bytes"),
    ],
    ids=["empty", "cut-head", "cut", "head-only", "longer", "flipped", "newer", "pickle", "other",
         "huge"],
)  # fmt: skip
def test_a_damaged_file_is_set_aside_and_told(
    folder: Path, content: bytes, reason: str, caplog: pytest.LogCaptureFixture, measured: Measured
) -> None:
    folder.mkdir(parents=True)
    damaged, bad = folder / "run-7.alloc", folder / "run-7.alloc.bad"
    AllocationStore(folder).save(allocation(9))
    damaged.write_bytes(content)
    store = AllocationStore(folder)
    served = [one.run for one in store.load()]
    measured(of=1, lost=len({9} - set(served)), twice=len(served) - len(set(served)))
    assert served == [9]
    assert bad.read_bytes() == content
    assert store.bad_files() == {"run-7.alloc.bad": reason}
    assert f"allocation file {bad}: {reason}" in caplog.text
    # The next one does not take its place, nor the one after that.
    damaged.write_bytes(content + b"2")
    assert [one.run for one in store.load()] == [9]
    damaged.write_bytes(b"3")
    again = AllocationStore(folder)
    again.load()
    assert names(folder) == [
        "run-7.alloc.bad", "run-7.alloc.bad.1", "run-7.alloc.bad.2", "run-9.alloc",
    ]  # fmt: skip
    assert bad.read_bytes() == content
    assert again.bad_files() == {
        "run-7.alloc.bad": "it was damaged",
        "run-7.alloc.bad.1": "it was damaged",
        "run-7.alloc.bad.2": "it does not begin like an allocation file",
    }
    # Until its owner has taken them away.
    for path in folder.glob("*.bad*"):
        path.unlink()
    assert again.bad_files() == {}
    assert not again.has_bad_files


@pytest.mark.fault
def test_what_is_no_file_is_set_aside_too(folder: Path, measured: Measured) -> None:
    folder.mkdir(parents=True)
    AllocationStore(folder).save(allocation(9))
    (folder / "run-1.alloc").mkdir()
    (folder / "run-2.alloc").symlink_to("/etc/passwd")
    os.mkfifo(folder / "run-3.alloc")
    store = AllocationStore(folder)
    served = [one.run for one in store.load()]
    measured(of=1, lost=len({9} - set(served)), twice=len(served) - len(set(served)))
    assert served == [9]
    assert set(store.bad_files().values()) == {"it is no file"}
    bad = ["run-1.alloc.bad", "run-2.alloc.bad", "run-3.alloc.bad"]
    assert names(folder) == [*bad, "run-9.alloc"]


@pytest.mark.fault
def test_a_file_that_may_not_be_read_is_set_aside(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    AllocationStore(folder).save(allocation())

    def refuse(path: Path) -> bytes:
        # What the system says; as root no mode of the file would bring it about.
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    store = AllocationStore(folder)
    assert store.load() == []
    assert store.bad_files() == {"run-7.alloc.bad": "Permission denied"}


@pytest.mark.fault
def test_a_disk_that_takes_half_a_file_keeps_the_whole_one(folder: Path) -> None:
    store = AllocationStore(folder)
    store.save(allocation(timeout_seconds=1.0))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The system takes 50 bytes and then refuses, as a full disk does.
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            store.save(allocation(timeout_seconds=2.0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(folder) == ["run-7.alloc"]
    assert [one.settings.timeout_seconds for one in AllocationStore(folder).load()] == [1.0]
    store.save(allocation(timeout_seconds=2.0))
    assert [one.settings.timeout_seconds for one in AllocationStore(folder).load()] == [2.0]


@pytest.mark.slow("1 s")
@settings(deadline=None)
@given(st.data())
def test_no_damage_is_taken_for_an_allocation(data: st.DataObject) -> None:
    content = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] ^= data.draw(st.integers(1, 255))
    damaged = bytes(content)[: data.draw(st.none() | st.integers(0, len(content)))]
    if damaged == GOOD:
        assert from_bytes(damaged) == allocation()
    else:
        with pytest.raises(BadAllocation):
            from_bytes(damaged)


def test_a_checksum_alone_makes_no_allocation() -> None:
    for body, reason in (
        (b"\xc1", "not a message"),
        (encode(ReleaseDownloader(run=7)), "it holds ReleaseDownloader"),
    ):
        checksum = hashlib.sha256(b"1\n" + body).hexdigest().encode()
        with pytest.raises(BadAllocation, match=reason):
            from_bytes(b"crawlyard-allocation 1 " + checksum + b"\n" + body)


@pytest.mark.fault
@settings(deadline=None)
@given(
    before=st.booleans(),
    point=st.sampled_from(
        ["agent.allocation_written", "agent.allocation_synced", "agent.allocation_renamed"]
    ),
)
def test_an_error_while_writing_leaves_the_file_that_was_there(before: bool, point: str) -> None:
    """The old file or the new one, whole, and nothing beside it. SIGKILL: test_process.py."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        store = AllocationStore(folder)
        if before:
            store.save(allocation(timeout_seconds=1.0))
        failpoints.configure({"FAILPOINTS": f"{point}=raise"})
        try:
            with pytest.raises(failpoints.FailpointError):
                store.save(allocation(timeout_seconds=2.0))
        finally:
            failpoints.configure({})
        found = [one.settings.timeout_seconds for one in AllocationStore(folder).load()]
        old = [1.0] if before else []
        assert found == ([2.0] if point == "agent.allocation_renamed" else old)
        assert set(names(folder)) <= {"run-7.alloc"}
