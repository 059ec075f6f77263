"""The plain part of a build, without the Docker Engine: context, .dockerignore, log, limits."""

from __future__ import annotations

import os
import random
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.projects.engine.builder import (
    BuildControl,
    BuildLog,
    BuildPlan,
    BuildStepFailed,
    BuildStopped,
)
from apps.projects.engine.builder import logs as logs_module
from apps.projects.engine.builder.context import DOCKERFILE, labelled, make_context
from apps.projects.engine.builder.control import StopReason
from apps.projects.engine.builder.dockerignore import Ignoring
from apps.projects.engine.builder.engine import BuildEngine
from apps.projects.engine.builder.plan import EngineOptions
from apps.projects.engine.builder.steps import ImageBuild
from apps.projects.engine.git import FetchedTag, GitRemote, fetch_tag
from apps.projects.engine.refusals import ProjectInputError
from apps.projects.engine.tags import ImageName
from tests.plugins.git_server import GitServer
from yardkit.protocol import LogBatch

TAG = "prod/news/1.0"
LARGE = 200 * 1024**2


@pytest.fixture
def fetch(git_server: GitServer, tmp_path: Path) -> Callable[..., FetchedTag]:
    """A repository with these files, fetched."""

    def make(files: dict[str, str | bytes], links: dict[str, str] | None = None) -> FetchedTag:
        name = f"context-{random.randrange(10**9)}"
        made = git_server.make_repository(name)
        for link, target in (links or {}).items():
            (made.work / link).parent.mkdir(parents=True, exist_ok=True)
            os.symlink(target, made.work / link)
        made.commit(files)
        made.tag(TAG)
        remote = GitRemote(
            made.url, git_server.username, git_server.password, allowed_networks=["127.0.0.0/8"]
        )
        folder = tmp_path / name
        return fetch_tag(remote, TAG, folder=folder, timeout=60, max_bytes=LARGE)

    return make


def make_plan(folder: Path, **fields: Any) -> BuildPlan:
    folder.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {
        "build": 1,
        "boot": "b1",
        "remote": GitRemote("http://127.0.0.1/x.git"),
        "tag": TAG,
        "expected_commit": "",
        "dockerfile": "Dockerfile",
        "script": "",
        "arguments": {},
        "image": ImageName("crawlyard/test/news", "prod-1.0"),
        "labels": {},
        "engine": EngineOptions("unix:///nowhere", "none", 256 * 1024**2, "test-owner"),
        "folder": folder,
        "max_image_bytes": LARGE,
    }
    return BuildPlan(**{**values, **fields})


def members_of(path: Path) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(path) as archive:
        found = {}
        for each in archive:
            content = archive.extractfile(each) if each.isreg() else None
            found[each.name] = (each, content.read() if content else b"")
        return found


def refusal(call: Callable[[], object]) -> BuildStepFailed:
    with pytest.raises(BuildStepFailed) as caught:
        call()
    return caught.value


# --- the context --------------------------------------------------------------------------------


@pytest.mark.slow("1 s")
def test_the_context_is_the_same_for_the_same_commit(
    fetch: Callable[..., FetchedTag], tmp_path: Path
) -> None:
    fetched = fetch(
        {
            "Dockerfile": "FROM x\n",
            "run.sh": "#!/bin/sh\n",
            "a/b.py": "1",
            ".dockerignore": "*.md\n",
        }
        | {"README.md": "no"}
    )
    made = [
        make_context(fetched, make_plan(tmp_path / name), BuildControl(limit_seconds=60))
        for name in ("one", "two")
    ]
    assert made[0].path.read_bytes() == made[1].path.read_bytes()
    members = members_of(made[0].path)
    assert set(members) == {"Dockerfile", "run.sh", "a", "a/b.py", ".dockerignore", DOCKERFILE}
    for info, _content in members.values():
        assert (info.uid, info.gid, info.uname, info.gname) == (0, 0, "", "")
    assert members[DOCKERFILE][1] == b'FROM x\nLABEL crawlyard.layer="test-owner"\n'
    # The engine takes our Dockerfile out again before the first COPY.
    assert members[".dockerignore"][1] == f"*.md\n{DOCKERFILE}\n".encode()


def test_the_projects_script_stands_in_for_the_dockerfile(
    fetch: Callable[..., FetchedTag], tmp_path: Path
) -> None:
    fetched = fetch({"a": "1"})
    context = make_context(
        fetched,
        make_plan(tmp_path / "c", script="FROM base\r\nRUN x\r\n"),
        BuildControl(limit_seconds=60),
    )
    members = members_of(context.path)
    assert members[DOCKERFILE][1] == b'FROM base\nLABEL crawlyard.layer="test-owner"\nRUN x\n'
    assert members[".dockerignore"][1] == f"{DOCKERFILE}\n.dockerignore\n".encode()


@pytest.mark.slow("4 s")
@pytest.mark.parametrize(
    ("dockerfile", "code"),
    [
        ("docker/Missing", "dockerfile_missing"),
        ("/etc/passwd", "dockerfile_outside"),
        ("../Dockerfile", "dockerfile_outside"),
        ("a/../../Dockerfile", "dockerfile_outside"),
        ("docker", "git_no_plain_file"),
        ("link", "git_no_plain_file"),
    ],
)
def test_a_dockerfile_must_be_a_plain_file_of_the_repository(
    dockerfile: str, code: str, fetch: Callable[..., FetchedTag], tmp_path: Path
) -> None:
    fetched = fetch({"docker/Dockerfile": "FROM x\n"}, {"link": "/etc/passwd"})
    plan = make_plan(tmp_path / "c", dockerfile=dockerfile)
    with pytest.raises(ProjectInputError) as caught:
        make_context(fetched, plan, BuildControl(limit_seconds=60))
    assert caught.value.code == code


@pytest.mark.slow("3 s")
def test_links_that_lead_out_are_refused_by_name_and_others_stay_links(
    fetch: Callable[..., FetchedTag], tmp_path: Path
) -> None:
    files = {"Dockerfile": "FROM x\n", "a/real": "here"}
    out = fetch(files, {"a/b/out": "../../../etc/passwd"})
    failure = refusal(
        lambda: make_context(out, make_plan(tmp_path / "1"), BuildControl(limit_seconds=60))
    )
    assert (failure.code, failure.params["path"]) == ("context_link", "a/b/out")
    fine = fetch(files, {"a/b/in": "../real", "python": "/usr/bin/python3"})
    context = make_context(fine, make_plan(tmp_path / "2"), BuildControl(limit_seconds=60))
    members = members_of(context.path)
    assert members["a/b/in"][0].linkname == "../real"
    # Of the image, not of this machine: nothing here has followed it.
    assert members["python"][0].issym()
    ignored = fetch({**files, ".dockerignore": "a/b\n"}, {"a/b/out": "../../../etc/passwd"})
    make_context(ignored, make_plan(tmp_path / "3"), BuildControl(limit_seconds=60))


@pytest.mark.slow("1 s")
def test_the_size_of_the_files_is_limited_however_small_they_travel(
    fetch: Callable[..., FetchedTag], tmp_path: Path
) -> None:
    fetched = fetch({"Dockerfile": "FROM x\n", "zeros": b"\0" * 5_000_000})
    plan = make_plan(tmp_path / "c", max_image_bytes=1_000_000)
    failure = refusal(lambda: make_context(fetched, plan, BuildControl(limit_seconds=60)))
    assert failure.code == "context_too_large"


def test_a_cancelled_build_prepares_no_further(
    fetch: Callable[..., FetchedTag], tmp_path: Path
) -> None:
    control = BuildControl(limit_seconds=60)
    control.stop(StopReason.CANCELLED)
    fetched = fetch({"Dockerfile": "FROM x\n"})
    with pytest.raises(BuildStopped):
        make_context(fetched, make_plan(tmp_path / "c"), control)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FROM a", 'FROM a\nLABEL crawlyard.layer="o"\n'),
        ("from a as b\nRUN x", 'from a as b\nLABEL crawlyard.layer="o"\nRUN x\n'),
        ("FROM \\\n  a\nRUN x", 'FROM \\\n  a\nLABEL crawlyard.layer="o"\nRUN x\n'),
        (
            "# escape=`\nFROM a `\n  AS b\nRUN c:\\",
            '# escape=`\nFROM a `\n  AS b\nLABEL crawlyard.layer="o"\nRUN c:\\\n',
        ),
        ("RUN echo \\\nFROM x", "RUN echo \\\nFROM x\n"),
        ("RUN echo \\\n# FROM y\n\nFROM x", "RUN echo \\\n# FROM y\n\nFROM x\n"),
        ("ARG B\nFROM $B\n\n", 'ARG B\nFROM $B\nLABEL crawlyard.layer="o"\n\n'),
    ],
)
def test_a_label_follows_each_from(text: str, expected: str) -> None:
    assert labelled(text.encode(), "o")[0].decode() == expected


def test_each_step_is_known_by_its_line() -> None:
    text = b"# syntax\nARG A\n\nFROM a\n# why\nRUN one \\\n # not a step\n  two\nFROM b\nCOPY . .\n"
    assert labelled(text, "o")[1] == (2, 4, 0, 6, 9, 0, 10)


def test_a_dockerfile_may_hold_any_bytes() -> None:
    assert labelled(b"FROM a\nRUN \xff\xfe", "o")[0].endswith(b"RUN \xff\xfe\n")


# --- .dockerignore ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "out", "stays"),
    [
        ("*.md", ["a.md"], ["b/a.md", "a.mdx"]),
        ("**/*.md", ["a.md", "b/c/a.md"], ["a.txt"]),
        ("docs", ["docs", "docs/a/b"], ["my/docs", "docs2"]),
        ("/docs/", ["docs/a"], ["x/docs"]),
        ("docs\n!docs/keep", ["docs/a"], ["docs/keep", "docs/keep/x"]),
        ("*\n!src", ["a", "b/c"], ["src", "src/a.py"]),
        ("# *\n\n  a  ", ["a"], ["b"]),
        ("a?c", ["abc"], ["ac", "a/c"]),
        ("[a-c].txt", ["b.txt"], ["d.txt"]),
        ("a/**", ["a/b", "a/b/c"], ["b"]),
        ("a/**/z", ["a/z", "a/b/c/z"], ["a/y"]),
        ("x/../b", ["b"], ["x"]),
        (r"a\*b", ["a*b"], ["axb"]),
        ("a+(b)", ["a+(b)"], ["aab"]),
        (".", [], ["a"]),
        ("", [], ["a"]),
    ],
)
def test_dockerignore(rules: str, out: list[str], stays: list[str]) -> None:
    ignoring = Ignoring(rules)
    assert [path for path in out if not ignoring.leaves_out(path)] == []
    assert [path for path in stays if ignoring.leaves_out(path)] == []


def test_a_pattern_cannot_hold_up_the_worker() -> None:
    ignoring = Ignoring("*a" * 200 + "b")
    began = time.process_time()
    assert not ignoring.leaves_out("a" * 4000)
    assert time.process_time() - began < 30
    assert refusal(lambda: Ignoring("[")).code == "ignore_bad_pattern"
    assert refusal(lambda: Ignoring("x" * 501)).code == "ignore_bad_pattern"
    assert refusal(lambda: Ignoring("x\n" * 1001)).code == "ignore_too_many"


@settings(deadline=None)
@given(st.text(max_size=60), st.text("ab*/.!?[]\\", min_size=1, max_size=20))
def test_any_dockerignore_is_read_or_refused(rules: str, path: str) -> None:
    try:
        ignoring = Ignoring(rules)
    except BuildStepFailed:
        return
    assert ignoring.leaves_out(path) in (True, False)


# --- the log ------------------------------------------------------------------------------------


class Line:
    """Where batches go; ``away`` takes none."""

    def __init__(self) -> None:
        self.batches: list[LogBatch] = []
        self.away = False

    def send(self, batch: LogBatch) -> bool:
        if not self.away:
            self.batches.append(batch)
        return not self.away

    @property
    def texts(self) -> list[str]:
        return [line.text for batch in self.batches for line in batch.lines]


def make_log(line: Line, **fields: Any) -> BuildLog:
    return BuildLog(**{"stream": "build:3", "boot": "b1", "send": line.send, **fields})


def test_lines_are_whole_numbered_and_harmless() -> None:
    line = Line()
    log = make_log(line, secrets=["s3cret", "s3cret tok"])
    log.write("one\nhalf", source="build")
    log.write(" line s3cret tok\n\x1b[31mred\x1b[0m\x07\n10%\r50%\r100%\nopen", source="build")
    log.end_line(source="build")
    log.say("said\ntwice", source="check", level="ERROR")
    log.tick(force=True)
    assert line.texts == ["one", "half line •••", "red\\x07", "100%", "open", "said", "twice"]
    records = [each for batch in line.batches for each in batch.lines]
    assert [each.seq for each in records] == list(range(1, 8))
    assert {(batch.stream, batch.boot, batch.dropped) for batch in line.batches} == {
        ("build:3", "b1", 0)
    }
    assert (records[-1].source, records[-1].level) == ("check", "ERROR")


def test_a_line_without_end_comes_in_pieces() -> None:
    line = Line()
    log = make_log(line)
    for _ in range(100):
        log.write("x" * 1000, source="build")
    log.write("\n", source="build")
    log.tick(force=True)
    assert max(map(len, line.texts)) <= logs_module.MAX_LINE
    assert sum(text.count("x") for text in line.texts) == 100_000


def test_too_much_is_counted_and_the_end_is_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_module, "MAX_LINES", 10)
    line = Line()
    log = make_log(line)
    for number in range(25):
        log.write(f"{number}\n", source="build")
    log.say("failed: why", source="build", level="ERROR")
    log.close(5)
    assert line.texts == [*map(str, range(10)), "failed: why"]
    assert line.batches[-1].dropped == log.dropped == 15


def test_while_the_broker_is_away_lines_wait_and_none_is_sent_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs_module, "MAX_WAITING", 3)
    monkeypatch.setattr(logs_module, "RETRY_SECONDS", 0.0)
    line = Line()
    line.away = True
    log = make_log(line)
    for number in range(5):
        log.write(f"{number}\n", source="build")
    assert not log.tick(force=True)
    line.away = False
    log.close(5)
    assert line.texts == ["0", "1", "2"]
    assert line.batches[-1].dropped == 2


def test_the_time_limit_and_who_stops_first() -> None:
    control = BuildControl(limit_seconds=0.0)
    assert refusal(control.check).code == "build_time_limit"
    control = BuildControl(limit_seconds=60)
    control.check()
    control.stop(StopReason.GIVEN_UP)
    control.stop(StopReason.CANCELLED)
    with pytest.raises(BuildStopped) as caught:
        control.wait(30)
    assert caught.value.why is StopReason.GIVEN_UP


# --- what the builder says ----------------------------------------------------------------------


def hear(folder: Path, lines: tuple[int, ...], *messages: dict[str, Any]) -> BuildStepFailed:
    control, line = BuildControl(limit_seconds=60), Line()
    plan = make_plan(folder)
    log = make_log(line)
    image = ImageBuild(plan, cast(BuildEngine, None), control, log)
    image.lines = lines
    for message in messages[:-1]:
        image.hear(message)
    return refusal(lambda: image.hear(messages[-1]))


def test_the_failing_line_is_named_whatever_a_command_prints(tmp_path: Path) -> None:
    failure = hear(
        tmp_path / "1",
        (1, 0, 4),
        {"stream": "Step 1/9 : FROM a\n"},
        {"stream": "Step 2/9 : LABEL x=y\n"},
        {"stream": "Step 3/9 : RUN \x1b[31mevil\n"},
        {"stream": "Step 9/9 : RUN good\n"},
        {"stream": "Step 3/9 : RUN good\n"},
        {"errorDetail": {"message": "returned\x07 1"}, "error": "returned 1"},
    )
    assert failure.code == "build_line_failed"
    assert failure.params == {"line": 4, "step": "RUN evil", "error": "returned\\x07 1"}


def test_a_step_that_is_in_no_line_and_one_before_any(tmp_path: Path) -> None:
    messages = [{"stream": f"Step {number}/2 : LABEL a=b\n"} for number in (1, 2)]
    failure = hear(tmp_path / "1", (1,), *messages, {"error": "no"})
    assert (failure.code, failure.params["step"]) == ("build_step_failed", "LABEL a=b")
    assert hear(tmp_path / "2", (1,), {"error": "no"}).code == "build_refused"


def test_what_the_engine_loads_itself_counts(tmp_path: Path) -> None:
    loads = {"status": "Downloading", "progressDetail": {"current": LARGE + 1, "total": LARGE}}
    assert hear(tmp_path / "1", (), loads).code == "build_too_large"
