"""Files of resources: what is taken, what is refused, and that nothing quotes a secret."""

from __future__ import annotations

import contextlib
import csv
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.seeds.engine.resource_files import (
    MAX_RESOURCES,
    MAX_SECRET_BYTES,
    BadSecret,
    FileFormat,
    NewResource,
    UnreadableFile,
    checked_secret,
    opened,
    read_resources,
    write_csv,
)
from tests.seeds.resources.factories import PASSWORD

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
KEYS = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)


def read(text: str | bytes, kind: FileFormat = FileFormat.CSV) -> dict[str, dict[str, str]]:
    return {each.name: opened(each.secret) for each in read_resources(text, kind)}


@pytest.mark.covers("S3.21")
def test_columns_become_the_entries_of_the_secret() -> None:
    found = read("name,user,password\nann,ann@example.com,p1\nbob,bob@example.com,p2\n")
    assert found == {
        "ann": {"user": "ann@example.com", "password": "p1"},
        "bob": {"user": "bob@example.com", "password": "p2"},
    }


def test_a_column_secret_is_a_text_or_an_object() -> None:
    text = 'name;secret\none;abc,def\ntwo;"{""user"": ""u""}"\n'
    assert read(text) == {"one": {"secret": "abc,def"}, "two": {"user": "u"}}


def test_bytes_of_excel_and_empty_rows() -> None:
    raw = "\ufeffname,secret\r\n一,密\r\n,\r\n\r\n".encode()
    assert read(raw) == {"一": {"secret": "密"}}


def test_json_lines() -> None:
    text = '{"name": "a", "secret": {"user": "u"}}\n\n{"name": " b ", "secret": "t"}\n'
    assert read(text, FileFormat.JSONL) == {"a": {"user": "u"}, "b": {"secret": "t"}}


@pytest.mark.parametrize(
    ("text", "kind", "problem"),
    [
        ("", "csv", "Line 1: the first row names the columns"),
        ("name\nx\n", "csv", "Line 1: the first row names the columns"),
        ("name,secret,more\n", "csv", "Line 1: beside secret there is only name."),
        ("name,secret\n", "csv", "The file has no resources."),
        (f"name,secret\na,{PASSWORD},x\n", "csv", "Line 2: 3 cells"),
        (f"name,secret\n,{PASSWORD}\n", "csv", "Line 2: a name is needed."),
        (f"name,secret\na,{PASSWORD}\na,x\n", "csv", "Line 3: the name of line 2 again."),
        (f'name,secret\na,"{PASSWORD}', "csv", "Line 2: no CSV."),
        (f'name,secret\na,"{{ {PASSWORD}"\n', "csv", "Line 2: the secret begins like JSON"),
        (f'name,secret\na,"{{""k"": [""{PASSWORD}""]}}"\n', "csv", "Line 2: k of the secret"),
        (f"{PASSWORD}\n", "jsonl", "Line 1: no JSON."),
        (f'["{PASSWORD}"]\n', "jsonl", "Line 1: not an object"),
        (f'{{"name": "a", "secret": 5, "{PASSWORD}": 1}}', "jsonl", "Line 1: not an object"),
        ('{"name": "a", "secret": {}}', "jsonl", "Line 1: a secret is a text or an object"),
        ('{"name": "a", "secret": "\\ud800"}', "jsonl", "Line 1: a secret holds characters"),
        ('{"name": 5, "secret": "x"}', "jsonl", "Line 1: a name is needed."),
        ('{"name": "a\\u0007", "secret": "x"}', "jsonl", "Line 1: a name has at most"),
        ("[" * 100_000, "jsonl", "Line 1: no JSON."),
    ],
    ids=lambda value: value[:24].replace("\n", "/") if isinstance(value, str) else None,
)
def test_what_is_wrong_is_told_by_line_and_without_the_secret(
    text: str, kind: str, problem: str
) -> None:
    with pytest.raises(UnreadableFile) as caught:
        read_resources(text, FileFormat(kind))
    assert str(caught.value).startswith(problem)
    assert PASSWORD not in str(caught.value)
    assert PASSWORD not in repr(caught.value.__cause__)


def test_all_problems_at_once_up_to_a_limit() -> None:
    with pytest.raises(UnreadableFile) as caught:
        read_resources("name,secret\n" + ",x\n" * 100, FileFormat.CSV)
    assert len(caught.value.problems) == 20


def test_limits() -> None:
    with pytest.raises(UnreadableFile, match="larger"):
        read_resources(b"x" * (8 * 1024 * 1024 + 1), FileFormat.CSV)
    rows = "".join(f"n{number},x\n" for number in range(MAX_RESOURCES + 1))
    with pytest.raises(UnreadableFile, match="More than"):
        read_resources("name,secret\n" + rows, FileFormat.CSV)
    with pytest.raises(UnreadableFile, match="no UTF-8"):
        read_resources(b"name,secret\na,\xff\n", FileFormat.CSV)
    with pytest.raises(BadSecret, match="at most"):
        checked_secret("x" * MAX_SECRET_BYTES)


@pytest.mark.slow("1 s")
@given(st.dictionaries(KEYS, TEXTS, min_size=1, max_size=5))
def test_a_secret_comes_back_as_it_was(secret: dict[str, str]) -> None:
    assert opened(checked_secret(secret)) == secret
    assert opened(checked_secret(json.dumps(secret))) == secret


@given(st.binary(max_size=200), st.sampled_from(FileFormat))
def test_nothing_crashes_it(raw: bytes, kind: FileFormat) -> None:
    with contextlib.suppress(UnreadableFile):
        assert read_resources(raw, kind)


@given(st.recursive(st.none() | st.floats() | TEXTS, lambda inner: st.lists(inner), max_leaves=5))
def test_no_secret_crashes_it(value: Any) -> None:
    try:
        checked_secret(value)
    except BadSecret:
        pass
    else:
        assert isinstance(value, str)


def test_what_holds_a_secret_does_not_show_it() -> None:
    assert PASSWORD not in repr(NewResource("a", PASSWORD))


def test_cells_that_a_spreadsheet_would_run_are_quoted() -> None:
    text = "".join(write_csv(("name", "score"), [("=1+1", -0.5), ("@x", 1.0), ("plain", None)]))
    rows = list(csv.reader(text.removeprefix("\ufeff").splitlines()))
    assert rows == [["name", "score"], ["'=1+1", "-0.5"], ["'@x", "1.0"], ["plain", ""]]
