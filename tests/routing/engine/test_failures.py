"""Failure file (seed S2.13): only complete lines, even if a writer is killed."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.routing.engine.confined import ConfinedPath, PathNotAllowed
from apps.routing.engine.failures import FailureFile, FailureFileError
from apps.routing.engine.inbounds.base import Context
from apps.routing.engine.inbounds.file import FileInbound
from tests.plugins.measurements import Measured
from tests.routing.engine.failure_files import failed, files_in, uuids_in
from tests.runtime.processes import PATIENCE_SECONDS, ROOT

WORKER = "tests.routing.engine.failure_worker"

pytestmark = pytest.mark.covers("S2.13")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "failures"
    made.mkdir()
    return made


def opened(folder: Path, **said: object) -> FailureFile:
    return FailureFile("failed.jsonl", folders=[folder], **said)  # type: ignore[arg-type]


def refused(folder: Path, path: str = "failed.jsonl") -> FailureFileError:
    with pytest.raises(FailureFileError) as caught:
        FailureFile(path, folders=[folder]).write([failed()])
    return caught.value


# --- lines ----------------------------------------------------------------------------------------


def test_a_line_says_all_of_an_item_as_it_is_written(folder: Path) -> None:
    opened(folder).write([failed("u-1", "宁乡县老粮仓镇\n楚江冻库")])
    raw = (folder / "failed.jsonl").read_bytes()
    assert "宁乡县老粮仓镇".encode() in raw
    assert raw.count(b"\n") == 1
    assert json.loads(raw) == {
        "task_uuid": "u-1",
        "project": "ic",
        "inbound": "spider_log",
        "outbound": "captcha",
        "state": "failed",
        "reason": "retry_limits",
        "detail": "The task failed with status 1101.",
        "status": "1101",
        "at": "2026-11-21T12:00:00.123000Z",
        "item": {"company_name": "宁乡县老粮仓镇\n楚江冻库"},
    }
    assert (folder / "failed.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "item",
    ["\ud800 half a pair", {"a": "\udfff"}, {"a": {1, 2}}, {"a": 2**90}],
    ids=["text", "surrogate", "set", "number"],
)
def test_what_is_no_item_has_its_line_too(folder: Path, item: object) -> None:
    opened(folder).write([failed("bad", item=item), failed("good")])
    assert uuids_in(folder) == ["bad", "good"]


def test_nothing_makes_no_file(folder: Path) -> None:
    opened(folder).write([])
    assert files_in(folder) == []


def test_nothing_is_written_after_it_is_closed(folder: Path) -> None:
    file = opened(folder)
    file.write([failed("before")])
    file.close()
    with pytest.raises(FailureFileError, match="is closed") as caught:
        file.write([failed("after")])
    assert caught.value.code == "closed"
    assert uuids_in(folder) == ["before"]


# --- rotation -------------------------------------------------------------------------------------


def test_a_full_file_is_set_aside_and_so_many_are_kept(folder: Path) -> None:
    file = opened(folder, most_bytes=1000, kept=2)
    for number in range(10):
        file.write([failed(str(number), "x" * 400)])
        assert (folder / "failed.jsonl").stat().st_size <= 1000
    assert files_in(folder) == ["failed.jsonl.000008", "failed.jsonl.000009", "failed.jsonl"]
    assert uuids_in(folder) == ["7", "8", "9"]


def test_a_batch_that_is_larger_than_a_file_has_one_of_its_own(folder: Path) -> None:
    file = opened(folder, most_bytes=100)
    file.write([failed("1"), failed("2")])
    file.write([failed("3")])
    assert files_in(folder) == ["failed.jsonl.000001", "failed.jsonl"]
    assert uuids_in(folder) == ["1", "2", "3"]


def test_what_was_set_aside_is_packed_on_request(folder: Path) -> None:
    file = opened(folder, most_bytes=1000, compress=True)
    for number in range(3):
        file.write([failed(str(number), "x" * 600)])
    assert files_in(folder) == ["failed.jsonl.000001.gz", "failed.jsonl.000002.gz", "failed.jsonl"]
    assert uuids_in(folder) == ["0", "1", "2"]
    assert file.problem == ""


def test_an_inbound_of_files_reads_them_in_their_order(folder: Path, tmp_path: Path) -> None:
    file = opened(folder, most_bytes=1000, compress=True)
    for number in range(4):
        file.write([failed(str(number), "x" * 600)])
        # Some disks keep times more coarsely than this test goes on.
        os.utime(folder / "failed.jsonl", (1_000_000 + number, 1_000_000 + number))
    file.close()
    context = Context("again", "me", tmp_path / "state", folder, in_flight=1000)
    found = []
    for name in files_in(folder):
        inbound = FileInbound(context, {"path": name, "follow": False})
        while taken := inbound.take(100, 0):
            found += [json.loads(each.raw)["task_uuid"] for each in taken]
            inbound.ack([each.handle for each in taken])
        inbound.close()
        (tmp_path / "state" / "inbound-again.json").unlink()
    assert found == ["0", "1", "2", "3"]


# --- crashes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 30, 100_000], ids=["byte", "part", "blocks"])
def test_half_a_line_of_a_crash_is_taken_away(folder: Path, cut: int) -> None:
    opened(folder).write([failed("1"), failed("2")])
    with (folder / "failed.jsonl").open("ab") as file:
        file.write(b'{"task_uuid": "half", "x": "'.ljust(cut, b"y")[:cut])
    opened(folder).write([failed("3")])
    assert uuids_in(folder) == ["1", "2", "3"]


def test_half_a_line_alone_is_taken_away(folder: Path) -> None:
    (folder / "failed.jsonl").write_bytes(b'{"task_uuid"')
    opened(folder).write([failed("1")])
    assert uuids_in(folder) == ["1"]


def run(folder: Path, name: str, batches: int, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", WORKER, str(folder), name, str(batches), "20000"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}", **environ},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def workers() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for each in started:
        each.kill()
        each.wait()
        if each.stdout:
            each.stdout.close()


def expected(name: str, batches: int) -> list[str]:
    return [f"{name}-{number}-{part}" for number in range(batches) for part in range(3)]


def test_processes_share_a_file_and_its_rotation(
    folder: Path, workers: list[subprocess.Popen[str]]
) -> None:
    workers += [run(folder, name, 60) for name in ("a", "b")]
    for each in workers:
        each.communicate(timeout=PATIENCE_SECONDS)
        assert each.returncode == 0
    found = uuids_in(folder)
    assert [each for each in found if each.startswith("a")] == expected("a", 60)
    assert [each for each in found if each.startswith("b")] == expected("b", 60)
    aside = files_in(folder)[:-1]
    assert len(aside) > 3
    # The last one may have been set aside while the other process was packing.
    opened(folder, compress=True, kept=10_000).write([failed("end")])
    assert all(name.endswith(".gz") for name in files_in(folder)[:-1])


@pytest.mark.slow("1 s")
def test_killed_in_the_middle_it_has_what_it_said_was_written(
    folder: Path, workers: list[subprocess.Popen[str]]
) -> None:
    written: dict[str, int] = {}
    for number, after in enumerate((1, 5, 12)):
        name = f"w{number}"
        worker = run(folder, name, 100_000)
        workers.append(worker)
        assert worker.stdout is not None
        for line in worker.stdout:
            written[name] = int(line) + 1
            if written[name] == after:
                worker.kill()
    opened(folder, kept=10_000).write([failed("end")])
    found = uuids_in(folder)
    assert len(found) == len(set(found))
    for name, batches in written.items():
        own = [each for each in found if each.startswith(name)]
        # Of the batch it was killed in the first lines may be there.
        assert own[: batches * 3] == expected(name, batches)
        assert len(own) <= (batches + 1) * 3


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    "point", ["routing.failures_set_aside", "routing.failures_packed", "routing.failures_renamed"]
)
def test_killed_while_it_sets_a_file_aside_nothing_is_lost(
    folder: Path, workers: list[subprocess.Popen[str]], point: str
) -> None:
    workers.append(run(folder, "w", 100_000, FAILPOINTS=f"{point}=kill@2"))
    said, _ = workers[0].communicate(timeout=PATIENCE_SECONDS)
    batches = len(said.splitlines())
    opened(folder, compress=True, kept=10_000).write([failed("end")])
    found = list(dict.fromkeys(uuids_in(folder)))
    assert found[: batches * 3] == expected("w", batches)
    assert found[-1] == "end"
    # What the crash has left is tidied: no half of a packed file, no file twice.
    assert len(found) == len(uuids_in(folder))
    assert all(name.endswith(".gz") for name in files_in(folder)[:-1])


def test_who_holds_the_lock_is_waited_for_and_told(folder: Path) -> None:
    opened(folder).write([failed("1")])
    with (folder / ".failed.jsonl.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(FailureFileError, match="another process") as caught:
            opened(folder, lock_seconds=0.05).write([failed("2")])
        assert caught.value.code == "locked"
        waiting = threading.Thread(target=opened(folder, lock_seconds=60).write, args=[[failed()]])
        waiting.start()
        fcntl.flock(lock, fcntl.LOCK_UN)
        waiting.join(PATIENCE_SECONDS)
    assert uuids_in(folder) == ["1", "u"]


def test_closing_does_not_wait_for_another_process(folder: Path) -> None:
    opened(folder).write([failed("1")])
    file = opened(folder, lock_seconds=10 * PATIENCE_SECONDS)
    waits = threading.Event()
    seen: list[str] = []

    def write() -> None:
        waits.set()
        with pytest.raises(FailureFileError) as caught:
            file.write([failed("2")])
        seen.append(caught.value.code)

    with (folder / ".failed.jsonl.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        writing = threading.Thread(target=write)
        closing = threading.Thread(target=file.close)
        writing.start()
        waits.wait(PATIENCE_SECONDS)
        closing.start()
        closing.join(PATIENCE_SECONDS)
        writing.join(PATIENCE_SECONDS)
        assert seen == ["closed"]
        assert not closing.is_alive()
    assert uuids_in(folder) == ["1"]


def test_a_folder_that_is_taken_away_is_made_anew(folder: Path) -> None:
    file = FailureFile("deep/er/failed.jsonl", folders=[folder])
    file.write([failed("1")])
    (folder / "deep").rename(folder / "away")
    file.write([failed("2")])
    assert uuids_in(folder / "deep" / "er") == ["2"]


# --- a full disk ----------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """File system of 256 KiB."""
    if os.geteuid() != 0:
        pytest.skip("a small disk can be mounted by root only")
    made = tmp_path / "small"
    made.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(made)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here")
    yield made
    subprocess.run(["umount", str(made)], check=True)


def fill(folder: Path) -> Path:
    other = folder / "other"
    with other.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return other


@pytest.mark.fault
def test_a_full_disk_is_told_and_leaves_no_half_line(small: Path, measured: Measured) -> None:
    file = opened(small)
    file.write([failed("1")])
    other = fill(small)
    with pytest.raises(FailureFileError, match="the disk is full") as caught:
        file.write([failed("2", "省" * 3000)])
    assert caught.value.code == "disk_full"
    assert uuids_in(small) == ["1"]
    other.unlink()
    began = time.monotonic()
    file.write([failed("3")])
    back_s = time.monotonic() - began
    found = uuids_in(small)
    lost, twice = len({"1", "3"} - set(found)), len(found) - len(set(found))
    measured(of=2, lost=lost, twice=twice, back_s=back_s)
    assert found == ["1", "3"]


def test_without_room_to_pack_what_was_set_aside_stays_as_it_is(small: Path) -> None:
    file = opened(small, most_bytes=100_000, compress=True)
    lines = [failed(f"{number}", os.urandom(40_000).hex()) for number in range(3)]
    for each in lines[:2]:
        file.write([each])
    assert files_in(small) == ["failed.jsonl.000001.gz", "failed.jsonl"]
    # Room for the next one, of 80 kB, but for no packed one beside it.
    disk = os.statvfs(small)
    (small / "other").write_bytes(b"x" * (disk.f_bavail * disk.f_bsize - 90_000))
    file.write(lines[2:])
    assert files_in(small) == ["failed.jsonl.000001.gz", "failed.jsonl.000002", "failed.jsonl"]
    assert "the disk is full" in file.problem
    (small / "other").unlink()
    opened(small, most_bytes=100_000, compress=True).write([failed("3")])
    assert files_in(small) == ["failed.jsonl.000001.gz", "failed.jsonl.000002.gz", "failed.jsonl"]
    assert uuids_in(small) == ["0", "1", "2", "3"]


# --- where it may stand ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../x.jsonl", "a/../../x.jsonl", "", ".", "a/", "/", "x\x00y"],
    ids=["whole", "up", "down_and_up", "nothing", "here", "folder", "root", "null"],
)
def test_a_path_outside_the_folders_is_refused(folder: Path, path: str) -> None:
    assert refused(folder, path).code == "outside"
    assert list(folder.parent.iterdir()) == [folder]


def test_the_folder_itself_is_no_file(folder: Path) -> None:
    assert refused(folder, str(folder)).code == "outside"


def test_it_may_stand_below_any_of_the_folders_by_any_name_of_them(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    for path in (f"{link}/a.jsonl", f"{real}/b.jsonl"):
        FailureFile(path, folders=[tmp_path / "first", link]).write([failed()])
    FailureFile("c.jsonl", folders=[tmp_path / "first", link]).write([failed()])
    assert sorted(path.name for path in real.glob("*.jsonl")) == ["a.jsonl", "b.jsonl"]
    assert files_in(tmp_path / "first", "c.jsonl") == ["c.jsonl"]


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (folder / "failed.jsonl").symlink_to(victim)
    error = refused(folder)
    assert error.code == "not_a_file"
    assert str(folder) not in str(error)
    assert victim.read_text() == "mine"


def test_a_link_to_a_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (folder / "way").symlink_to(tmp_path / "elsewhere")
    assert refused(folder, "way/failed.jsonl").code == "not_a_file"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_lock_is_no_way_out_either(folder: Path, tmp_path: Path) -> None:
    (folder / ".failed.jsonl.lock").symlink_to(tmp_path / "victim")
    assert refused(folder).code == "not_a_file"
    assert not (tmp_path / "victim").exists()


def test_a_pipe_a_folder_and_other_peoples_files_are_left_alone(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "sub").mkdir()
    (folder / "notes").write_text("to be kept")
    (folder / "packed").write_bytes(gzip.compress(b"{}"))
    for name in ("pipe", "sub", "notes", "packed"):
        assert refused(folder, name).code == "not_a_file"
    assert (folder / "notes").read_text() == "to be kept"


def test_a_folder_without_rights_is_told(folder: Path) -> None:
    # Root may write everywhere, but no folder stands below a file.
    (folder / "file").write_text("{}\n")
    assert refused(folder, "file/failed.jsonl").code in ("not_a_file", "unwritable")


def test_the_place_is_known_without_writing(tmp_path: Path) -> None:
    assert ConfinedPath("a/b.jsonl", [tmp_path]).name == "b.jsonl"
    with pytest.raises(PathNotAllowed):
        ConfinedPath("/elsewhere/b.jsonl", [tmp_path])
    assert list(tmp_path.iterdir()) == []
