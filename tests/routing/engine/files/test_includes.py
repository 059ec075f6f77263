"""Included files: search, order, and no access outside the folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from apps.routing.engine.files import folder, reader
from apps.routing.engine.files.reader import read_rules
from apps.routing.engine.rules import Problem

ENTRY = "- {{name: {}, class: redis_queue.RedisListOutbound}}\n"


def put(path: Path, *names: str, head: str = "") -> None:
    """Write a file with outbounds of these names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "outbound:\n" + "".join(ENTRY.format(name) for name in names) if names else ""
    path.write_text(head + body, encoding="utf-8")


def put_main(path: Path, include: str, *names: str) -> Path:
    """Write a main file with this include."""
    put(path / "main.yaml", *names, head=f"project: p\ninclude: {include}\n")
    return path / "main.yaml"


def names_of(main: Path) -> list[str]:
    rules, problems = read_rules(main, {})
    assert problems == []
    assert rules is not None
    return [outbound.name for outbound in rules.outbounds]


def told(main: Path) -> list[Problem]:
    rules, problems = read_rules(main, {})
    assert rules is None
    return problems


@pytest.mark.covers("S2.15", "S2.16")
def test_files_are_merged_by_their_names_wherever_they_stand(tmp_path: Path) -> None:
    put(tmp_path / "z" / "1.yaml", "z1")
    put(tmp_path / "z" / "3.YML", "z3b", "z3a")
    put(tmp_path / "a" / "2.yaml", "a2")
    put(tmp_path / "a" / "1.yaml", "a1")
    put(tmp_path / "0.yaml", "top")
    main = put_main(tmp_path, "[z, a/2.yaml, ./0.yaml, a/1.yaml]", "own")
    assert names_of(main) == ["top", "a1", "z1", "a2", "z3b", "z3a", "own"]


@pytest.mark.covers("S2.15")
def test_of_a_folder_only_its_own_visible_yaml_files_are_read(tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.yaml", "a")
    put(tmp_path / "d" / "empty.yaml")
    put(tmp_path / "d" / "comment.yaml", head="# nothing yet\n")
    for name in ("a.yaml.bak", "b.txt", ".hidden.yaml", "deeper/c.yaml"):
        put(tmp_path / "d" / name, head="{{{ no yaml")
    main = put_main(tmp_path, "d")
    assert names_of(main) == ["a"]
    assert names_of(put_main(tmp_path, "")) == []


@pytest.mark.covers("S2.15")
def test_a_sub_file_defines_inbound_and_outbound_only(tmp_path: Path) -> None:
    head = "project: p\ninclude: main.yaml\nrouting: {limits: 1}\noutbonud: []\ninbound:\n- 5\n"
    put(tmp_path / "d" / "a.yaml", "a", head=head)
    assert [(problem.place, problem.code) for problem in told(put_main(tmp_path, "d"))] == [
        ("d/a.yaml:1", "main_file_only"),
        ("d/a.yaml:2", "main_file_only"),
        ("d/a.yaml:3", "main_file_only"),
        ("d/a.yaml:4", "unknown_key"),
        ("d/a.yaml:6", "wrong_type"),
    ]


def test_a_name_that_is_taken_names_both_files(tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.yaml", "x")
    (problem,) = told(put_main(tmp_path, "d", "x"))
    assert (problem.place, problem.code) == ("main.yaml:4", "duplicate_name")
    assert "taken by d/a.yaml:2" in problem.text


@pytest.fixture
def rules_folder(tmp_path: Path) -> Path:
    """Create a folder of rules, with secrets beside it and links to them."""
    put(tmp_path / "secret.yaml", "stolen")
    put(tmp_path / "rules-of-others" / "a.yaml", "stolen")
    rules = tmp_path / "rules"
    put(rules / "d" / "a.yaml", "a")
    (rules / "file.yaml").symlink_to(tmp_path / "secret.yaml")
    (rules / "others").symlink_to(tmp_path / "rules-of-others")
    (rules / "d2").mkdir()
    (rules / "d2" / "link.yaml").symlink_to("../../secret.yaml")
    (rules / "inside.yaml").symlink_to("d/a.yaml")
    (rules / "gone.yaml").symlink_to("nowhere.yaml")
    (rules / "circle.yaml").symlink_to("circle.yaml")
    (rules / "self.yaml").symlink_to("main.yaml")
    (rules / "a.txt").write_text("x")
    os.mkfifo(rules / "pipe.yaml")
    return rules


@pytest.mark.parametrize(
    ("include", "code"),
    [
        ("../secret.yaml", "include_outside"),
        ("d/../../secret.yaml", "include_outside"),
        ("d/../d/a.yaml", "include_outside"),
        ("/etc/passwd", "include_outside"),
        ("~/x.yaml", "include_outside"),
        (r"'..\\secret.yaml'", "include_outside"),
        ("''", "include_outside"),
        ("file.yaml", "include_outside"),
        ("others", "include_outside"),
        ("others/a.yaml", "include_outside"),
        ("d2", "include_outside"),
        ("main.yaml", "include_circle"),
        ("self.yaml", "include_circle"),
        (".", "include_outside"),
        ("[d, d/a.yaml]", "include_twice"),
        ("[d, inside.yaml]", "include_twice"),
        ("missing", "include_missing"),
        ("gone.yaml", "include_missing"),
        ("circle.yaml", "include_missing"),
        (f"{'x' * 5000}.yaml", "include_missing"),
        ("a.txt", "not_yaml_file"),
        ("pipe.yaml", "not_a_file"),
        ("'{nowhere}'", "unknown_placeholder"),
        ("5", "wrong_type"),
        ("{a: b}", "wrong_type"),
    ],
)
def test_what_may_not_be_included(rules_folder: Path, include: str, code: str) -> None:
    problem = told(put_main(rules_folder, include))[0]
    assert problem.code == code
    assert problem.place == ("pipe.yaml:1" if code == "not_a_file" else "main.yaml:2")
    assert "stolen" not in str(problem)


def test_a_link_inside_the_folder_may_be_used(rules_folder: Path) -> None:
    assert names_of(put_main(rules_folder, "inside.yaml", "own")) == ["a", "own"]


def test_the_main_file_may_be_a_link(tmp_path: Path) -> None:
    # As Kubernetes mounts a ConfigMap.
    hidden = tmp_path / "..data"
    put(hidden / "a.yaml", "a")
    put_main(hidden, "a.yaml", "own")
    for name in ("a.yaml", "main.yaml"):
        (tmp_path / name).symlink_to(hidden / name)
    assert names_of(tmp_path / "main.yaml") == ["a", "own"]


def test_a_main_file_that_is_none(tmp_path: Path) -> None:
    assert [str(problem) for problem in told(tmp_path / "main.yaml")] == [
        "main.yaml:1: cannot be read: no such file or directory"
    ]
    (tmp_path / "main.yaml").mkdir()
    assert [problem.code for problem in told(tmp_path / "main.yaml")] == ["not_a_file"]


def test_a_text_cannot_include() -> None:
    rules, problems = read_rules("project: p\ninclude: [config.d]\n", {})
    assert rules is None
    assert [(problem.place, problem.code) for problem in problems] == [("main.yaml:2", "no_folder")]


def test_files_are_limited_in_number_size_and_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = put_main(tmp_path, "d", "own")
    for number in range(5):
        put(tmp_path / "d" / f"{number}.yaml", f"o{number}")
    assert len(names_of(main)) == 6
    with monkeypatch.context() as patch:
        patch.setattr(reader, "MAX_FILES", 4)
        assert [problem.code for problem in told(main)] == ["too_many_files"]
    with monkeypatch.context() as patch:
        patch.setattr(folder, "MAX_ALL_BYTES", 300)
        assert {problem.code for problem in told(main)} == {"too_large"}
    with monkeypatch.context() as patch:
        patch.setattr(reader, "MAX_ALL_VALUES", 40)
        assert {problem.code for problem in told(main)} == {"too_many_values"}
    with monkeypatch.context() as patch:
        patch.setattr(folder, "_MOST_NAMES", 4)
        assert [problem.code for problem in told(main)] == ["too_many_files"]
    (tmp_path / "d" / "large.yaml").write_text("#" * (folder.MAX_FILE_BYTES + 1))
    assert [(problem.place, problem.code) for problem in told(main)] == [
        ("d/large.yaml:1", "too_large")
    ]


def test_a_list_of_very_many_includes_is_not_looked_at(tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.yaml", "a")
    many = "[" + "d, " * (folder.MAX_FILES + 1) + "]"
    assert [problem.code for problem in told(put_main(tmp_path, many))] == ["too_many_files"]
