"""manage.py check_input: each input answered in order, bad files refused as a whole."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

FOLDER = Path("tests/data/corpus")
CORPUS, GIT, EXPRESSIONS = (
    json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    for name in ("addresses", "git", "expressions")
)
GOOD_TAG, GOOD_URL = "prod/news/1.2", "https://8.8.8.8/team/spiders.git"


def ask(tmp_path: Path, inputs: object, kind: str = "addresses") -> list[dict[str, Any]]:
    file = tmp_path / "inputs.json"
    file.write_text(json.dumps(inputs))
    out = io.StringIO()
    call_command("check_input", kind, str(file), "--json", stdout=out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_every_blocked_address_of_the_corpus_is_refused_with_a_reason(tmp_path: Path) -> None:
    rows = ask(tmp_path, CORPUS["blocked"])
    assert [row["input"] for row in rows] == CORPUS["blocked"]
    assert [row["input"] for row in rows if row["accepted"]] == []
    assert all(row["reason"] for row in rows)


def test_every_allowed_address_of_the_corpus_is_accepted(tmp_path: Path) -> None:
    rows = ask(tmp_path, CORPUS["allowed"])
    assert [row["input"] for row in rows if not row["accepted"]] == []
    assert set(rows[0]) == {"input", "accepted", "reason", "position", "ms"}


def test_a_name_that_cannot_be_resolved_is_refused_as_such(tmp_path: Path) -> None:
    (row,) = ask(tmp_path, ["no-such-host.invalid"])
    assert not row["accepted"]
    assert "resolve" in row["reason"]


@pytest.mark.parametrize(
    ("kind", "refused", "accepted"),
    [
        ("tags", GIT["refused_tags"], [GOOD_TAG]),
        ("clone_urls", GIT["refused_clone_urls"], [GOOD_URL]),
        ("selectors", EXPRESSIONS["escape"] + EXPRESSIONS["exhaust"], EXPRESSIONS["good"]),
    ],
)
def test_each_kind_refuses_its_corpus_and_accepts_what_is_good(
    tmp_path: Path, kind: str, refused: list[str], accepted: list[str]
) -> None:
    rows = ask(tmp_path, [*refused, *accepted], kind)
    assert [row["input"] for row in rows] == [*refused, *accepted]
    assert [row["accepted"] for row in rows] == [False] * len(refused) + [True] * len(accepted)
    assert all(row["reason"] for row in rows[: len(refused)])


def test_the_place_in_a_selector_is_said(tmp_path: Path) -> None:
    (row,) = ask(tmp_path, ["省份 == '广东' and a.b"], "selectors")
    assert (row["accepted"], row["position"]) == (False, 16)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[1, 2", ":1:6: not JSON"),
        (b'{"a": 1}', "a JSON list"),
        (b'["a", 3]', "entry 1 is no string"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"[" * 100_000, "nested too deep"),
    ],
)
def test_a_bad_file_ends_with_status_2_and_says_where(
    tmp_path: Path, content: bytes, told: str
) -> None:
    file = tmp_path / "bad.json"
    file.write_bytes(content)
    with pytest.raises(CommandError, match=told) as refused:
        call_command("check_input", "addresses", str(file))
    assert refused.value.returncode == 2


def test_a_missing_file_ends_with_status_2(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file") as refused:
        call_command("check_input", "addresses", str(tmp_path / "none.json"))
    assert refused.value.returncode == 2
