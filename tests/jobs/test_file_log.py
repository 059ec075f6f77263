"""The output of a local process as lines: whatever is written, and however it comes."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.jobs.runners.log_sources import (
    BATCH_LINES,
    ENDLESS_BYTES,
    LINE_BYTES,
    FileLog,
    LogLineRead,
)

PLAIN = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=40)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.txt"


def test_a_file_that_is_not_there_yet_has_no_lines(log: Path) -> None:
    source = FileLog(log)
    assert source.read() == []
    log.write_bytes(b"first\n")
    assert [line.text for line in source.read()] == ["first"]
    source.close()


def test_a_line_counts_when_it_has_ended(log: Path) -> None:
    source = FileLog(log)
    with log.open("ab", buffering=0) as file:
        file.write(b"one\nha")
        assert [line.text for line in source.read()] == ["one"]
        file.write("lf 中".encode()[:-1])
        assert source.read() == []
        file.write("中".encode()[-1:] + b"\r\n\n")
        assert [line.text for line in source.read()] == ["half 中", ""]
        file.write(b"never ended")
    assert source.read() == []
    assert [line.text for line in source.read(last=True)] == ["never ended"]
    assert source.read(last=True) == []
    source.close()


def test_no_read_gives_more_than_a_batch(log: Path) -> None:
    log.write_bytes(b"x\n" * (3 * BATCH_LINES + 1))
    source = FileLog(log)
    assert [len(source.read()) for _ in range(5)] == [BATCH_LINES] * 3 + [1, 0]
    source.close()


def test_bytes_that_are_no_text_are_shown_as_such(log: Path) -> None:
    log.write_bytes(b"\xff\xfe\x00caf\xe9\n\x1b[31mred\n")
    source = FileLog(log)
    assert [line.text for line in source.read()] == ["��\x00caf�", "\x1b[31mred"]
    source.close()


def test_an_endless_line_takes_little_memory_and_ends(log: Path) -> None:
    with log.open("wb") as file:
        file.truncate(2 * ENDLESS_BYTES + 5)
        file.seek(0, os.SEEK_END)
        file.write(b"\nafter\n")
    source = FileLog(log)
    lines: list[LogLineRead] = []
    while found := source.read(last=True):
        lines += found
    assert [len(line.text) for line in lines] == [LINE_BYTES + 1] * 2 + [5, 5]
    assert lines[-1].text == "after"
    source.close()


def test_endless_lines_are_the_same_whenever_they_are_read(log: Path) -> None:
    piece, early, whole = b"y" * (ENDLESS_BYTES // 3), [], []
    growing = FileLog(log)
    with log.open("ab", buffering=0) as file:
        for _ in range(5):
            file.write(piece)
            early += growing.read()
        file.write(b"\nz\n")
    while found := growing.read(last=True):
        early += found
    later = FileLog(log)
    while found := later.read(last=True):
        whole += found
    assert [line.text for line in early] == [line.text for line in whole]
    growing.close()
    later.close()


def test_a_file_that_shrinks_is_read_from_its_beginning(log: Path) -> None:
    log.write_bytes(b"a long first line\nand half a")
    source = FileLog(log)
    assert len(source.read()) == 1
    log.write_bytes(b"anew\n")
    assert [line.text for line in source.read()] == ["anew"]
    source.close()


def test_what_is_no_plain_file_is_not_read(log: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"of somebody else\n")
    log.symlink_to(secret)
    source = FileLog(log)
    assert source.read(last=True) == []
    log.unlink()
    os.mkfifo(log)
    assert source.read(last=True) == []
    source.close()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lines=st.lists(PLAIN, max_size=30), cuts=st.lists(st.integers(0, 1200), max_size=8))
def test_lines_out_are_lines_in(tmp_path: Path, lines: list[str], cuts: list[int]) -> None:
    path = tmp_path / "chunks.txt"
    path.write_bytes(b"")
    whole = "\n".join(lines).encode()
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    source, found = FileLog(path), []
    with path.open("ab", buffering=0) as file:
        for begin, end in pairwise(edges):
            file.write(whole[begin:end])
            found += source.read()
    while more := source.read(last=True):
        found += more
    source.close()
    expected = lines[:-1] if lines and not lines[-1] else lines
    assert [line.text for line in found] == expected
