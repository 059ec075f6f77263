"""Files of JSON lines after crashes, beside other processes, and as time goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from apps.requeststore.sinks.base import SinkUnavailable
from apps.requeststore.sinks.json_lines import JsonLinesSink
from tests.requeststore.test_sinks import NOW, gathered

DAY = 86_400_000


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sink(tmp_path: Path, clock: Clock) -> Iterator[JsonLinesSink]:
    with closing(JsonLinesSink(tmp_path, process="box.1", now=clock)) as made:
        yield made


def ids(folder: Path) -> list[tuple[str, int]]:
    """(request, position) of every line of every file, all of which must be whole."""
    found: list[dict[str, Any]] = [
        json.loads(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return [(one["request_id"], one["position"]) for one in found]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_each_day_and_each_process_has_its_file(
    tmp_path: Path, clock: Clock, sink: JsonLinesSink
) -> None:
    sink.write([gathered(1, {"n": 1})])
    clock.now += DAY
    sink.write([gathered(2, {"n": 1})])
    with closing(JsonLinesSink(tmp_path, process="box2", now=clock)) as other:
        other.write([gathered(3, {"n": 1})])
    assert names(tmp_path) == [
        "2026-09-21.box_1.jsonl",
        "2026-09-22.box2.jsonl",
        "2026-09-22.box_1.jsonl",
    ]


def test_a_file_that_is_full_is_followed_by_another(tmp_path: Path, clock: Clock) -> None:
    for number in range(4):
        with closing(JsonLinesSink(tmp_path, process="box", now=clock, max_file_bytes=300)) as sink:
            sink.write([gathered(number, {"n": 1})])
    assert names(tmp_path) == ["2026-09-21.box.1.jsonl", "2026-09-21.box.jsonl"]
    assert len(ids(tmp_path)) == 4


def test_two_of_one_name_do_not_write_into_one_file(
    tmp_path: Path, clock: Clock, sink: JsonLinesSink
) -> None:
    sink.write([gathered(1, {"n": 1})])
    with closing(JsonLinesSink(tmp_path, process="box.1", now=clock)) as twin:
        twin.write([gathered(2, {"n": 1})])
    assert names(tmp_path) == ["2026-09-21.box_1.1.jsonl", "2026-09-21.box_1.jsonl"]


@pytest.mark.covers("S4.22")
@pytest.mark.parametrize("cut", [1, 40, "a line", "all but a line"])
def test_what_a_crash_has_torn_is_cut_off(
    tmp_path: Path, clock: Clock, sink: JsonLinesSink, cut: int | str
) -> None:
    """The last request has three lines; it is there as a whole or not at all."""
    sink.write([gathered(1, {"n": 1}, {"n": 2})])
    whole = ids(tmp_path)
    sink.write([gathered(2, {"n": 1}, {"n": 2}, {"n": 3})])
    sink.close()
    (path,) = tmp_path.iterdir()
    lines = path.read_bytes().splitlines(keepends=True)
    ends = {"a line": len(lines[-1]), "all but a line": len(lines[-1] + lines[-2])}
    os.truncate(path, path.stat().st_size - (cut if isinstance(cut, int) else ends[cut]))

    again = [gathered(number, {"n": 1}, {"n": 2}, {"n": 3}, again=True) for number in (1, 2)]
    with closing(JsonLinesSink(tmp_path, process="another", now=clock)) as other:
        other.write(again)
        other.write(again)
    assert sorted(ids(tmp_path)) == [*whole, ("2", 0), ("2", 1), ("2", 2)]


def test_lines_of_earlier_days_are_found(tmp_path: Path, clock: Clock, sink: JsonLinesSink) -> None:
    sink.write([gathered(1, {"n": 1})])
    clock.now += 3 * DAY
    with closing(JsonLinesSink(tmp_path, process="other", now=clock)) as other:
        other.write([gathered(1, {"n": 1}, again=True), gathered(4, {"n": 1}, again=True)])
        # What others have written since the last look is found, too.
        sink.write([gathered(5, {"n": 1})])
        other.write([gathered(5, {"n": 1}, again=True)])
    assert sorted(ids(tmp_path)) == [("1", 0), ("4", 0), ("5", 0)]


def test_half_a_request_of_a_living_process_does_not_count(
    tmp_path: Path, clock: Clock, sink: JsonLinesSink
) -> None:
    sink.write([gathered(1, {"n": 1})])
    (path,) = tmp_path.iterdir()
    line = path.read_text().replace('"1"', '"2"').replace('"of":1', '"of":2')
    with path.open("a") as file:
        file.write(line)
    with closing(JsonLinesSink(tmp_path, process="other", now=clock)) as other:
        other.write([gathered(2, {"n": 1}, {"n": 2}, again=True)])
    assert sorted(ids(tmp_path)) == [("1", 0), ("2", 0), ("2", 0), ("2", 1)]


def test_what_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, clock: Clock, sink: JsonLinesSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full after half of the bytes."""
    sink.write([gathered(1, {"n": 1})])
    before = ids(tmp_path)
    write = os.write

    def full(file: int, data: bytes) -> int:
        write(file, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(SinkUnavailable, match="No space left"):
            sink.write([gathered(2, {"n": 1}), gathered(3, {"n": 1})])
    assert ids(tmp_path) == before
    sink.write([gathered(2, {"n": 1}, again=True), gathered(3, {"n": 1}, again=True)])
    assert [number for number, _ in ids(tmp_path)] == ["1", "2", "3"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "file").write_text("")
    sink = JsonLinesSink(tmp_path / "file" / "x", process="box", now=clock)
    with pytest.raises(SinkUnavailable, match="records"):
        sink.write([gathered(1, {"n": 1})])
