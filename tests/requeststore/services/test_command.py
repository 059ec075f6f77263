"""manage.py requests: what it prints, stores, and ends with."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from apps.access.models import AuditRecord
from apps.projects.models import Project
from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.models import Rebalance, ShardReport
from apps.requeststore.services.store import close_shared_request_store, shared_request_store
from apps.requeststore.stores.sqlite import SqliteNode
from tests.access.factories import make_project
from tests.requeststore.api.test_requests import process
from tests.requeststore.factories import make_bizzes, save_bizzes

pytestmark = pytest.mark.django_db
Said = Callable[..., tuple[str, str]]
FOUR = {"splits": 4, "nodes": ["default", "second"]}


@pytest.fixture
def project(db: None, request_nodes: dict[str, str]) -> Project:
    return make_bizzes(news={"epochs": [FOUR]})


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run a verb; stdout and stderr."""

    def run(*words: str) -> tuple[str, str]:
        call_command("requests", *words)
        captured = capsys.readouterr()
        return captured.out, captured.err

    return run


def refused(*words: str) -> tuple[int, str]:
    """Run a verb that ends badly; its exit status and its last words."""
    with pytest.raises(CommandError) as error:
        call_command("requests", *words)
    return error.value.returncode, str(error.value)


def test_a_file_is_handed_in_shown_listed_and_tried_again(
    say: Said, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pages.jsonl"
    lines = ["https://example.com/1", "", json.dumps({"url": "https://example.com/2", "meta": {}})]
    file.write_text("\n".join(lines))
    out, err = say("submit", "news", str(file))
    ids = out.split()
    assert (len(ids), err.strip()) == (2, "2 are stored")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"https://a.cn/\n")))
    out, _err = say("submit", f"{project.slug}/news", "-", "--json")
    (third,) = json.loads(out)
    assert isinstance(third, str)
    out, _err = say("show", ids[1])
    assert out.startswith(f"{ids[1]}  new (flag 0)\n")
    assert "https://example.com/2" in out
    assert "queued" in out
    story = json.loads(say("show", ids[1], "--json")[0])
    assert (story["id"], story["state"]) == (ids[1], "new")
    rows = json.loads(say("list", "news", "--json")[0])
    assert [row["id"] for row in rows] == [third, *reversed(ids)]
    out, _err = say("list", "news", "--flag", "0", "--since", "1h", "--limit", "1")
    assert out.splitlines()[0].split()[:3] == ["ID", "STATE", "FLAG"]
    assert len(out.splitlines()) == 2
    assert len(say("list", "news", "--until", "2020-01-01")[0].splitlines()) == 1
    process(shared_request_store(), project, int(ids[0]), rows[-1]["ts"], 2)
    assert say("reopen", "news", "--since", "1d")[0] == "1 are new again\n"
    found = json.loads(say("reopen", "news", ids[0], "--json")[0])
    assert found == {"reopened": 0, "more": False}
    assert "manage.py requests" in AuditRecord.objects.filter(project=project)[0].actor_label


def test_the_books(say: Said, project: Project) -> None:
    ShardReport.objects.create(
        project=project, biz="news", node="n", database="d", collection="c", by_flag={"0": 1200}
    )
    out, _err = say("books")
    assert out.splitlines()[1].split() == [
        f"{project.slug}/news",
        *["1,200", "1,200", "0", "0", "0"],
    ]
    (row,) = json.loads(say("books", "--project", project.slug, "--json")[0])
    assert (row["stored"], row["balanced"]) == (1200, True)
    ShardReport.objects.update(by_flag={"0": -1, "1": 2})
    status, text = refused("books")
    assert (status, text) == (1, f"unaccounted requests: {project.slug}/news")


@pytest.mark.slow("1 s")
@pytest.mark.covers("S4.14")
def test_a_rebalance_with_its_dry_run(say: Said, project: Project, tmp_path: Path) -> None:
    file = tmp_path / "urls.txt"
    file.write_text("".join(f"https://example.com/{number}\n" for number in range(60)))
    ids = say("submit", "news", str(file))[0].split()
    assert refused("rebalance", "news", "--yes")[0] == 1
    since = shared_request_store().now()
    save_bizzes(project, news={"epochs": [FOUR, {"since": since, "splits": 9}]})
    # Each call is a process of its own.
    close_shared_request_store()
    out, _err = say("rebalance", "news", "--dry-run")
    assert out.startswith("would move ")
    assert out.endswith(" of 60 requests from 4 to 9 splits\n")
    would = json.loads(say("rebalance", "news", "--dry-run", "--json")[0])
    assert (would["requests"], would["is_exact"]) == (60, True)
    assert not Rebalance.objects.exists()
    assert refused("rebalance", "news")[0] == 2
    assert refused("rebalance", "news", "--cancel") == (1, "no re-balance of it goes")
    out, err = say("rebalance", "news", "--yes", "--follow")
    assert f"done, {would['would_move']:,} moved" in out
    assert re.search(r"^(\d+) of \1, ", err, re.MULTILINE)
    assert all(json.loads(say("show", each, "--json")[0])["id"] == each for each in ids[:5])


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("show", "x"), 2, "x is no id"),
        (("show", "9" * 18), 1, "there is no request"),
        (("list", "new"), 2, "there is no biz new; did you mean news?"),
        (("list", "nowhere/news"), 2, "there is no project 'nowhere'"),
        (("list", "news", "--since", "soon"), 2, "soon is no time"),
        (("list", "news", "--limit", "0"), 2, "--limit: from 1 to 10000"),
        (("submit", "news", "/nowhere"), 2, "/nowhere: No such file"),
        (("books", "--project", "nowhere"), 2, "there is no project 'nowhere'"),
    ],
)
def test_refusals_are_one_line(
    project: Project, words: tuple[str, ...], status: int, text: str
) -> None:
    code, said = refused(*words)
    assert code == status
    assert said.startswith(text)
    assert "\n" not in said


def test_nothing_is_logged_before_an_answer(
    say: Said, project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        say("list", "news")
    assert [record.name for record in caplog.records if record.name.startswith("apps.")] == []


def test_a_bad_line_is_named_and_nothing_is_stored(
    say: Said, project: Project, tmp_path: Path
) -> None:
    file = tmp_path / "urls.txt"
    file.write_text("https://a.cn/\n\nftp://b\n" + json.dumps({"uri": "x"}))
    status, said = refused("submit", "news", str(file))
    assert status == 2
    assert [line.split(":")[0] for line in said.splitlines()] == [
        "line 3",
        "line 4",
        "line 4",
        "nothing was stored",
    ]
    file.write_bytes(b"https://a.cn/\n\xff\n")
    assert refused("submit", "news", str(file))[1].startswith("line 2: ")
    file.write_text('{"url": ')
    assert refused("submit", "news", str(file))[1] == "line 1: no JSON: Expecting value (column 8)"
    assert len(say("list", "news")[0].splitlines()) == 1


def test_the_same_name_in_two_projects_and_a_store_that_is_away(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_project()
    save_bizzes(other, news={})
    assert refused("list", "news") == (2, "several projects have a biz news: say PROJECT/news")

    def away(*_arguments: Any, **_options: Any) -> Any:
        raise RequestStoreUnavailable("no answer")

    monkeypatch.setattr(SqliteNode, "page", away)
    assert refused("list", f"{project.slug}/news") == (1, "the request store is away: no answer")


def test_a_reader_that_goes_away_is_no_error(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `| head`: everything is stored, and nothing is written to the closed pipe later."""
    file = tmp_path / "pages.txt"
    file.write_text("".join(f"https://example.com/{number}\n" for number in range(3)))
    reading, writing = os.pipe()
    os.close(reading)
    told = io.StringIO()
    with os.fdopen(writing, "w", buffering=1) as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        monkeypatch.setattr(sys, "stderr", told)
        call_command("requests", "submit", "crawls/news", str(file))
    assert told.getvalue() == "3 are stored\n"
    yard = shared_request_store()
    assert len(yard.page(yard.biz(project.pk, "news"))) == 3
