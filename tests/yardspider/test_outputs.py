"""Items and the exit state on disk: whole or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.yardspider.commands import environment
from yardspider.errors import RunFailed
from yardspider.outputs import ItemFile, write_exit


def test_items_are_appended_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    for number in range(2):
        with ItemFile(path) as items:
            items.add({"n": number, "text": "é\n中"})
            assert path.read_bytes().count(b"\n") == number
    assert [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] == [
        {"n": 0, "text": "é\n中"},
        {"n": 1, "text": "é\n中"},
    ]


def test_an_item_that_is_no_json_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with ItemFile(tmp_path / "items.jsonl") as items:
        with pytest.raises(TypeError):
            items.add({"n": object()})
        items.add({"n": 1})
    assert (tmp_path / "items.jsonl").read_text() == '{"n":1}\n'


@pytest.mark.fault
def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    program = """
import resource, sys
from pathlib import Path
from yardspider.errors import RunFailed
from yardspider.outputs import ItemFile
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
items = ItemFile(Path("items.jsonl"))
items.add({"text": "x" * 300})
items.flush()
for _ in range(5):
    items.add({"text": "x" * 300})
try:
    items.flush()
except RunFailed as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "cannot write items.jsonl: File too large\n"
    lines = (tmp_path / "items.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"text": "x" * 300}]


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").mkdir()
    with pytest.raises(RunFailed, match=r"cannot write .*items\.jsonl: Is a directory"):
        ItemFile(tmp_path / "items.jsonl")


def test_the_exit_state_replaces_the_one_before(tmp_path: Path) -> None:
    write_exit(tmp_path, {"state": "failed"})
    write_exit(tmp_path, {"state": "exited", "total": 1})
    assert json.loads((tmp_path / "exit.json").read_text()) == {"state": "exited", "total": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["exit.json"]
