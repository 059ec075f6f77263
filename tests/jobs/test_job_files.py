"""Files of jobs: what is read, what is refused and where, and that no cell is a formula."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.access.models import User
from apps.access.states import Role
from apps.jobs.engine.csv_files import read_csv, write_csv
from apps.jobs.engine.portable import MAX_BYTES, JobFile, JobFileFormat
from apps.jobs.engine.yaml_files import MAX_NODES, read_yaml, write_yaml
from apps.jobs.models import OPTIONS, Job
from apps.jobs.services.portable import COLUMNS, FIELDS, NAMES_OF_SECRETS
from apps.projects.models import Project
from tests.access.factories import make_user
from tests.jobs.factories import make_project

HEAD = "crawlyard_jobs: 1\njobs:\n"
READ = {JobFileFormat.YAML: read_yaml, JobFileFormat.CSV: read_csv}


@pytest.fixture
def project() -> Project:
    return make_project()


def editor(*projects: Project) -> User:
    return make_user(roles=dict.fromkeys(projects, Role.EDITOR))


def complaints(read: JobFile, file: str = "f") -> list[str]:
    return [problem.said(file) for problem in read.problems]


# --- reading --------------------------------------------------------------------------------------


def test_the_columns_are_every_field_of_a_job_but_what_is_sealed() -> None:
    special = {
        "id",
        "image_digest",
        "secrets",
        "cookies",
        "created_at",
        "updated_at",
        "deleted_at",
        "deleted_by",
    }
    model = {field.name for field in Job._meta.concrete_fields} - special
    assert set(FIELDS) == model | {NAMES_OF_SECRETS}
    assert len(FIELDS) == len(set(FIELDS))
    assert set(OPTIONS) - {"cookies"} <= set(FIELDS)


BAD_YAML: list[tuple[str | bytes, str]] = [
    ("", "f:1: A file of jobs begins with crawlyard_jobs: 1"),
    ("[]", "f:1: A file of jobs begins"),
    ("jobs: []", "f:1: The line crawlyard_jobs: 1 is missing."),
    ("crawlyard_jobs: 2\njobs: []", "f:1: crawlyard_jobs: This file has version 2"),
    ("crawlyard_jobs: true\njobs: []", "f:1: crawlyard_jobs: This file has version True"),
    ("crawlyard_jobs: 1\nx: 1", "f:2: x: Unknown field; only crawlyard_jobs and jobs are allowed"),
    ("crawlyard_jobs: 1\njobs: 5", "f:2: jobs: `jobs` must be a list."),
    (HEAD + "- 5", "f:3: jobs[0]: A job must be a mapping"),
    (HEAD + "- name: a\n  nmae: b", "f:4: jobs[0].nmae: Unknown field “nmae”; the fields are"),
    (HEAD + "- name: a\n  secrets: {A: b}", "f:4: jobs[0].secrets: secrets are not imported"),
    (HEAD + "- name: a\n  cookies: x", "f:4: jobs[0].cookies: cookies are not imported"),
    (HEAD + "- name: 5", "f:3: jobs[0].name: Enter a text in quotes."),
    (HEAD + "- name: a\n- name: b\n  speed: fast", "f:5: jobs[1].speed: Enter a number."),
    (HEAD + "- name: a\n  speed: .nan", "f:4: jobs[0].speed: Enter a number."),
    (HEAD + "- name: a\n  enabled: yes", "f:4: jobs[0].enabled: Enter true or false."),
    (HEAD + "- name: a\n  priority: 1.5", "f:4: jobs[0].priority: Enter a whole number."),
    (HEAD + "- name: a\n  priority: true", "f:4: jobs[0].priority: Enter a whole number."),
    (HEAD + "- name: a\n  priority: 99999999999999999999", "f:4: jobs[0].priority: The number is"),
    (HEAD + f"- name: a\n  priority: {'9' * 9999}", "f:4: A number has too many digits."),
    (HEAD + "- name: a\n  tags: news", "f:4: jobs[0].tags: Enter a list of words"),
    (HEAD + "- name: a\n  cron:", "f:4: jobs[0].cron: The value is missing"),
    (HEAD + "- name: a\n  name: b", "f:4: jobs[0]: “name” occurs twice."),
    (
        HEAD + "- name: a\n  environment:\n    A: x\n    A: y",
        "f:6: jobs[0].environment: “A” occurs",
    ),
    (HEAD + "- name: a\n  cron: */5 * * * *", "f:4: "),
    (HEAD + "- name: a\n  cron: *x", "f:4: jobs[0].cron: There is no anchor “x”"),
    (HEAD + "- name: a\n 5: b", "f:4: "),
    (HEAD + "- name: a\n  5: b", "f:4: jobs[0]: The name of a field must be a text"),
    (HEAD + "- ? [a]\n  : b", "f:3: jobs[0]: The name of a field must be a text."),
    (HEAD + "- name: !!python/object/apply:os.system [x]", "f:3: jobs[0].name: YAML tags such as"),
    (HEAD + "- name: !!str 5", "f:3: jobs[0].name: YAML tags such as"),
    (HEAD + "- !x name: a", "f:3: "),
    (HEAD + "- name: a\n---\njobs: []", "f:4: One document only"),
    (HEAD + '- name: "a\\0"', "f:3: jobs[0].name: A character that cannot be stored"),
    (HEAD + "- name: a\n\tspeed: 5", "f:4: Not valid YAML"),
    (HEAD + "- name: 'a", "f:3: Not valid YAML"),
    (HEAD + "- name: a\x00", "f:3: The control character U+0000 is not allowed."),
    (HEAD.encode() + b"- name: \xff", "f:3: Not UTF-8"),
    (HEAD.encode("utf-16"), "f:1: Not UTF-8"),
    (HEAD + "- name: a\n  arguments: " + "[" * 50_000, "f:4: jobs[0].arguments[0]"),
    (HEAD + "- name: a\n  arguments: " + "{a: " * 50_000, "f:4: jobs[0].arguments.a.a"),
    ("- " * 400_000, "f:1: "),
    (HEAD + "- name: a\n  <<: {speed: 5}", "f:4: jobs[0].<<: Merge keys"),
    (HEAD + "- &a {name: x, arguments: *a}", "f:3: jobs[0].arguments: There is no anchor “a”"),
    (HEAD + "- &a {name: x}\n" + "- *a\n" * 101, "f:104: More than 100 aliases."),
    (HEAD + "- {name: x}\n" * 1001, "f:2: jobs: 1001 jobs are given, at most 1000 are allowed."),
    ("#" * (MAX_BYTES + 1), "f:1: The file is larger than 1024 KiB."),
]


@pytest.mark.parametrize(("text", "said"), BAD_YAML, ids=lambda x: repr(x)[:50])
def test_bad_yaml_is_refused_with_its_line(text: str | bytes, said: str) -> None:
    found = complaints(read_yaml(text, COLUMNS))
    assert found
    assert found[0].startswith(said), found
    assert len(found[0]) < 2000


def test_aliases_do_not_blow_up() -> None:
    rows = ["a0: &a0 [" + "x, " * 9 + "x]"]
    rows += [f"a{n}: &a{n} [" + f"*a{n - 1}, " * 9 + f"*a{n - 1}]" for n in range(1, 9)]
    bomb = HEAD + "- name: a\n  arguments:\n" + "".join(f"    {row}\n" for row in rows)
    found = complaints(read_yaml(bomb, COLUMNS))
    assert len(found) == 1
    assert f"More than {MAX_NODES} values" in found[0]


def test_plain_words_are_texts_and_aliases_may_be_used() -> None:
    text = """\ufeff# Jobs
crawlyard_jobs: 1
jobs:
  - name: no
    spider: on
    cron: 12:30
    notes: 2026-01-01
    environment: &usual
      A: 0x10
      B: 1_000
      C: yes
  - name: b
    environment: *usual
    enabled: true
    speed: 1e3
    priority: -5
    image: ~
""".replace("\n", "\r\n")
    read = read_yaml(text.encode(), COLUMNS)
    assert complaints(read) == []
    first, second = read.entries
    assert first.values == {
        "name": "no",
        "spider": "on",
        "cron": "12:30",
        "notes": "2026-01-01",
        "environment": {"A": "0x10", "B": "1_000", "C": "yes"},
    }
    assert second.values["environment"] == first.values["environment"]
    assert (second.values["speed"], second.values["priority"]) == (1000.0, -5)
    assert (second.values["enabled"], second.values["image"]) == (True, None)
    assert (first.line, first.lines["notes"], second.line) == (4, 7, 12)


BAD_CSV: list[tuple[str | bytes, str]] = [
    ("", "f:1: The first row names the columns"),
    ("name,speed\na,1", "f:1: The first row names the columns; crawlyard_jobs"),
    ("crawlyard_jobs,nmae\n1,a", "f:1: column 2: Unknown field “nmae”"),
    ("crawlyard_jobs,secrets\n1,a", "f:1: column 2: secrets are not imported"),
    ("crawlyard_jobs,name,name\n1,a,b", "f:1: column 3: “name” occurs twice."),
    ("crawlyard_jobs,name\n2,a", "f:2: crawlyard_jobs: This file has version 2"),
    ("crawlyard_jobs,name\n,a", "f:2: crawlyard_jobs: This file has version "),
    ("crawlyard_jobs,name\n1,a,b", "f:2: jobs[0]: 3 cells, but the first row names 2"),
    ('crawlyard_jobs,name,notes\n1,a,"x\ny"\n1,b,"z', "f:4: Not valid CSV"),
    ('crawlyard_jobs,name,notes\n1,a,"x\ny"\n1,b,z\n1,c,"q"r', "f:5: Not valid CSV"),
    (
        'crawlyard_jobs,name,notes,speed\n1,a,"x\ny",1\n1,b,,fast',
        "f:4: jobs[1].speed: Enter a number",
    ),
    ("crawlyard_jobs,name,speed\n1,a,nan", "f:2: jobs[0].speed: Enter a number."),
    ("crawlyard_jobs,name,speed\n1,a,1e999", "f:2: jobs[0].speed: Enter a number."),
    ("crawlyard_jobs,name,enabled\n1,a,maybe", "f:2: jobs[0].enabled: Enter true or false"),
    ("crawlyard_jobs,name,priority\n1,a,1.5", "f:2: jobs[0].priority: Enter a whole number"),
    ("crawlyard_jobs,name,arguments\n1,a,{", "f:2: jobs[0].arguments: Not valid JSON"),
    ("crawlyard_jobs,name,arguments\n1,a," + "[" * 99_999, "f:2: jobs[0].arguments: Not valid"),
    ("crawlyard_jobs,name,notes\n1,a," + "x" * 200_000, "f:2: Not valid CSV: field larger"),
    ("crawlyard_jobs,name\n1,a\x00", "f:2: The control character"),
    (b"crawlyard_jobs,name\n1,\xff", "f:2: Not UTF-8"),
    ("crawlyard_jobs,name\n" + "1,a\n" * 1001, "f:1002: More than 1000 jobs."),
]


@pytest.mark.parametrize(("text", "said"), BAD_CSV, ids=lambda x: repr(x)[:50])
def test_bad_csv_is_refused_with_its_line(text: str | bytes, said: str) -> None:
    found = complaints(read_csv(text, COLUMNS))
    assert found
    assert found[0].startswith(said), found


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_csv_as_spreadsheets_write_it(delimiter: str, end: str) -> None:
    rows = [
        ["crawlyard_jobs", "name", "enabled", "priority", "tags", "notes", "cpu_limit", "image"],
        ["1", "新闻", "TRUE", "5.0", "a b", '"two"\nlines', "", ""],
        ["", "", "", "", "", "", "", ""],
        ["1", "b", "", "", "", "", "0.5", "'=x:1"],
    ]
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator=end).writerows(rows)
    read = read_csv("\ufeff" + out.getvalue() + end, COLUMNS)
    assert complaints(read) == []
    first, second = read.entries
    assert first.values == {
        "name": "新闻",
        "enabled": True,
        "priority": 5,
        "tags": ["a", "b"],
        "notes": '"two"\nlines',
        "cpu_limit": None,
        "image": "",
    }
    assert (second.values["cpu_limit"], second.values["image"]) == (0.5, "=x:1")
    assert "priority" not in second.values


TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"], include_characters="\n\t"), max_size=30
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": TEXTS.filter(bool),
            "notes": TEXTS,
            "enabled": st.booleans(),
            "priority": st.integers(-100, 100),
            "cpu_limit": st.none() | st.floats(0.01, 256),
            "tags": st.lists(st.from_regex(r"[a-z=+@-][a-z]{0,5}", fullmatch=True), max_size=3),
            "arguments": st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4),
        }
    ),
    max_size=4,
)


@pytest.mark.slow("5 s")
@settings(deadline=None)
@given(rows=ROWS)
def test_whatever_is_written_is_read_again(rows: list[dict[str, Any]]) -> None:
    columns = [
        column
        for column in COLUMNS
        if column.name in ("name", "notes", "enabled", "priority", "cpu_limit", "tags", "arguments")
    ]
    for text, read in ((write_yaml(rows), read_yaml), (write_csv(rows, columns), read_csv)):
        found = read(text.encode(), columns)
        assert complaints(found) == []
        assert [entry.values for entry in found.entries] == rows


@settings(deadline=None)
@given(raw=st.binary(max_size=300) | TEXTS.map(str.encode))
def test_whatever_comes_is_read_or_refused(raw: bytes) -> None:
    for head, read in ((HEAD.encode(), read_yaml), (b"crawlyard_jobs,name\n", read_csv)):
        for text in (raw, head + raw):
            for problem in read(text, COLUMNS).problems:
                assert problem.line >= 1
                assert problem.text


# --- formulas -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "'=1", "''=1", "＝1", "it's"])
def test_no_cell_is_a_formula_and_none_is_changed(text: str) -> None:
    columns = [column for column in COLUMNS if column.name in ("name", "notes")]
    written = write_csv([{"name": "a", "notes": text}], columns)
    cell = list(csv.reader(io.StringIO(written.removeprefix("\ufeff"), newline="")))[1][2]
    assert cell[0] not in "=+-@\t\r＝＋－＠"
    assert read_csv(written, columns).entries[0].values["notes"] == text
