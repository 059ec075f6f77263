"""File inbound: rotation, truncation, compression, and the stored position."""

from __future__ import annotations

import gzip
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.routing.engine.inbounds.base import BadInit, Context, Taken
from apps.routing.engine.inbounds.file import FileInbound
from apps.routing.engine.items import MAX_BYTES, ItemError, read_item


class Folder:
    """Log file with its readers and its rotation."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "log.jsonl"
        self._made: list[FileInbound] = []

    def write(self, *lines: str, path: Path | None = None) -> None:
        with (path or self.log).open("a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)

    def open(self, name: str = "log.jsonl", *, follow: bool = True) -> FileInbound:
        context = Context("in", "me", self.path / "state", self.path, in_flight=1000)
        made = FileInbound(context, {"path": name, "follow": follow})
        self._made.append(made)
        return made

    def rotate(self, number: int = 1) -> Path:
        """Rename the file; set its time, because some disks have a coarse clock."""
        away = self.path / f"log.jsonl.{number}"
        self.log.rename(away)
        os.utime(away, (1_000_000 - number, 1_000_000 - number))
        return away

    def mark(self) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.path / "state" / "inbound-in.json").read_text())
        return found

    def close(self) -> None:
        for made in self._made:
            made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    made.close()


def raws(taken: list[Taken]) -> list[str]:
    return [each.raw.decode() for each in taken]


def handles(taken: list[Taken]) -> list[object]:
    return [each.handle for each in taken]


def test_it_goes_on_where_the_acknowledged_prefix_ends(folder: Folder) -> None:
    folder.write("1", "2", "3", "4")
    first = folder.open()
    taken = first.take(10, 0)
    assert [each.where for each in taken] == [f"log.jsonl:{at}" for at in (0, 2, 4, 6)]
    first.ack([taken[0].handle, taken[2].handle])
    first.close()
    assert folder.mark()["offset"] == 2
    assert raws(folder.open().take(10, 0)) == ["2", "3", "4"]


def test_a_line_that_is_being_written_waits_for_its_end(folder: Folder) -> None:
    folder.log.write_bytes(b'{"a": 1}\n{"a"')
    inbound = folder.open()
    assert raws(inbound.take(10, 0)) == ['{"a": 1}']
    assert inbound.take(10, 0) == []
    with folder.log.open("ab") as file:
        file.write(b": 2}\r\n\n  \n")
    assert raws(inbound.take(10, 0)) == ['{"a": 2}']
    assert inbound.take(10, 0) == []


def test_a_complete_file_needs_no_last_line_break(folder: Folder) -> None:
    folder.log.write_bytes(b"\xef\xbb\xbf1\n2")
    inbound = folder.open(follow=False)
    assert raws(inbound.take(10, 0)) == ["1", "2"]
    assert inbound.depth() == 0


def test_a_renamed_file_is_read_to_its_end_before_the_new_one(folder: Folder) -> None:
    folder.write("1", "2")
    inbound = folder.open()
    assert raws(inbound.take(1, 0)) == ["1"]
    away = folder.rotate()
    assert raws(inbound.take(5, 0)) == ["2"]
    # Its writer has not yet heard of the rotation.
    folder.write("3", path=away)
    assert raws(inbound.take(5, 0)) == ["3"]
    folder.write("4")
    assert raws(inbound.take(5, 0)) == ["4"]


def test_rotations_that_nobody_saw(folder: Folder) -> None:
    folder.write("1", "2")
    first = folder.open()
    first.ack(handles(first.take(1, 0)))
    first.close()
    folder.rotate(3)
    for number in (2, 1):
        folder.write(f"of {number}")
        folder.rotate(number)
    folder.write("newest")
    # No rotation makes these.
    folder.write("other", path=folder.path / "log.jsonl.lock")
    second = folder.open()
    found = [raws(second.take(1, 0)) for _ in range(4)]
    assert found == [["2"], ["of 2"], ["of 1"], ["newest"]]
    assert second.check_running(8) == []


def test_acks_of_a_file_that_is_over_are_remembered_in_order(folder: Folder) -> None:
    folder.write("1", "2")
    inbound = folder.open()
    old = inbound.take(2, 0)
    inode = folder.log.stat().st_ino
    folder.rotate()
    folder.write("3")
    new = inbound.take(2, 0)
    inbound.ack(handles(new))
    inbound.ack([old[0].handle])
    inbound.close()
    assert (folder.mark()["inode"], folder.mark()["offset"]) == (inode, 2)
    second = folder.open()
    again = [*second.take(1, 0), *second.take(1, 0)]
    assert raws(again) == ["2", "3"]
    second.ack(handles(again))
    second.close()
    assert (folder.mark()["inode"], folder.mark()["offset"]) == (folder.log.stat().st_ino, 2)


@pytest.mark.parametrize("content", [b"new\n", b"a longer new line than before\n"])
def test_a_file_that_was_cut_is_read_from_its_beginning(folder: Folder, content: bytes) -> None:
    folder.write("1 is long", "2")
    inbound = folder.open()
    inbound.ack(handles(inbound.take(10, 0)))
    assert inbound.take(1, 0) == []
    folder.log.write_bytes(content)
    [taken] = inbound.take(10, 0)
    assert taken.raw == content.strip()
    inbound.ack([taken.handle])
    inbound.close()
    assert folder.mark()["offset"] == len(content)


def test_a_file_that_is_gone_is_said_to_be(folder: Folder) -> None:
    folder.write("1", "2")
    first = folder.open()
    first.ack(handles(first.take(1, 0)))
    first.close()
    folder.log.write_bytes(b"other\n")
    second = folder.open()
    assert raws(second.take(10, 0)) == ["other"]
    [finding] = second.check_running(8)
    assert finding.code == "file_lost"
    assert "up to byte 2" in finding.text


def test_a_packed_file_is_known_by_its_beginning(folder: Folder) -> None:
    lines = [json.dumps({"number": number, "text": "x" * 50}) for number in range(40)]
    folder.write(*lines)
    first = folder.open()
    first.ack(handles(first.take(30, 0)))
    first.close()
    (folder.path / "log.jsonl.1.gz").write_bytes(gzip.compress(folder.log.read_bytes()))
    folder.log.unlink()
    folder.write("new")
    second = folder.open()
    assert raws(second.take(100, 0)) == lines[30:]
    assert raws(second.take(100, 0)) == ["new"]


def test_a_gz_is_read_and_continued(folder: Folder) -> None:
    (folder.path / "old.gz").write_bytes(gzip.compress(b"1\n2\n3"))
    first = folder.open("old.gz")
    first.ack(handles(first.take(2, 0)))
    assert first.depth() is None
    first.close()
    assert raws(folder.open("old.gz").take(10, 0)) == ["3"]


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_gz_is_a_problem_after_what_is_good(folder: Folder, damage: str) -> None:
    numbers = [secrets.token_hex(8) for _ in range(20_000)]
    packed = bytearray(gzip.compress("\n".join(numbers).encode()))
    if damage == "cut":
        del packed[-12:]
    else:
        packed[len(packed) // 2] ^= 0xFF
    (folder.path / "old.gz").write_bytes(packed)
    inbound = folder.open("old.gz")
    found: list[str] = []
    while taken := inbound.take(1000, 0):
        found += raws(taken)
        inbound.ack(handles(taken))
    assert inbound.problem.startswith("old.gz: ")
    assert found[:5000] == numbers[:5000]
    # A flipped bit may make more lines of what follows, until the checksum tells.
    assert found != numbers


def test_a_line_that_is_too_long_is_cut_and_no_item(folder: Folder) -> None:
    long = json.dumps({"a": "x" * (3 * MAX_BYTES)})
    folder.write(long, "{}")
    taken = folder.open().take(10, 0)
    assert [len(each.raw) for each in taken] == [MAX_BYTES + 1, 2]
    with pytest.raises(ItemError) as refused:
        read_item(taken[0].raw)
    assert refused.value.code == "too_large"


def test_one_reads_at_a_time(folder: Folder) -> None:
    folder.write("1")
    first, second = folder.open(), folder.open()
    assert raws(first.take(1, 0)) == ["1"]
    assert second.take(1, 0) == []
    assert second.problem == "log.jsonl: another router reads it"
    first.close()
    assert raws(second.take(1, 0)) == ["1"]
    assert second.problem == ""


def test_a_file_that_is_not_there_is_waited_for(folder: Folder) -> None:
    inbound = folder.open()
    assert inbound.take(1, 0) == []
    assert inbound.problem == "log.jsonl: No such file or directory"
    assert inbound.depth() is None
    folder.write("1")
    assert raws(inbound.take(1, 0)) == ["1"]
    assert inbound.problem == ""


def test_a_pipe_is_no_file(folder: Folder) -> None:
    os.mkfifo(folder.log)
    inbound = folder.open()
    assert inbound.take(1, 0) == []
    assert inbound.problem == "log.jsonl: log.jsonl is no file"


def test_a_mark_that_cannot_be_read_is_none(folder: Folder) -> None:
    folder.write("1")
    (folder.path / "state").mkdir()
    (folder.path / "state" / "inbound-in.json").write_text('{"path": "log.jsonl"')
    assert raws(folder.open().take(1, 0)) == ["1"]


def test_another_path_begins_anew(folder: Folder) -> None:
    folder.write("1")
    first = folder.open()
    first.ack(handles(first.take(1, 0)))
    first.close()
    folder.write("2", path=folder.path / "other.jsonl")
    assert raws(folder.open("other.jsonl").take(1, 0)) == ["2"]


def test_nothing_outside_the_folder_is_read(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(BadInit, match="not below the folder"):
        folder.open("/etc/passwd")
    inbound = folder.open()
    folder.log.symlink_to("/etc/passwd")
    assert inbound.take(1, 0) == []
    assert inbound.problem == "log.jsonl: log.jsonl is not below the folder for files"
