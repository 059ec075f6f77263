"""Errors, repeats, pages, languages: what every command has."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from apps.access.models import User
from apps.access.states import Role
from apps.jobs.models import Run
from apps.projects.models import Project
from tests.access.factories import make_project, make_token, make_user
from tests.jobs.factories import make_job, make_run
from tests.seeds.factories import make_frontier
from tests.yardcli.conftest import Crawlyard
from yardcli import client
from yardcli.client import language_of
from yardcli.output import inert


@contextmanager
def losing_answers(server: str, count: int) -> Iterator[str]:
    """The address of a line to ``server`` that breaks ``count`` times when an answer comes."""
    target = urlsplit(server)
    left = [count]
    listener = socket.create_server(("127.0.0.1", 0))

    def carry(near: socket.socket) -> None:
        with near, socket.create_connection((target.hostname, target.port)) as far:
            asked = near.recv(65536)
            head, _gap, body = asked.partition(b"\r\n\r\n")
            size = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-len")]
            while size and len(body) < int(size[0].split(b":")[1]):
                more = near.recv(65536)
                asked, body = asked + more, body + more
            far.sendall(asked.replace(b"Connection: keep-alive", b"Connection: close"))
            answer = b"".join(iter(lambda: far.recv(65536), b""))
            if left[0] > 0:
                left[0] -= 1
                return
            near.sendall(answer)

    def serve() -> None:
        while True:
            try:
                near, _address = listener.accept()
            except OSError:
                return
            carry(near)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.slow("2 s")
def test_a_lost_answer_starts_no_second_run(
    entered: Crawlyard, project: Project, live_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(project=project, overlap="allow")
    with losing_answers(live_server.url, 1) as address:
        monkeypatch.setenv("CRAWLYARD_URL", address)
        said = entered("jobs", "start", job.pk, "-o", "json")
    assert said.code == 0, said.err
    assert [run.pk for run in Run.objects.all()] == [json.loads(said.out)["id"]]


@pytest.mark.slow("1 s")
def test_whoever_does_not_answer(
    entered: Crawlyard, live_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setenv("CRAWLYARD_URL", nobody)
    said = entered("jobs", "list")
    assert said.code == 5
    assert said.err == f"error: {nobody} does not answer: Connection refused\n"


@pytest.mark.slow("1 s")
def test_as_long_as_the_server_asks_to_wait(
    entered: Crawlyard, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_frontier(project, name="pages")
    slept: list[float] = []
    monkeypatch.setattr(client.time, "sleep", slept.append)
    # The seed service does not run here.
    said = entered("seeds", "lookup", "pages", "https://example.com/")
    assert said.code == 5
    assert slept == [5.0, 5.0]
    assert "503" in said.err


@pytest.mark.slow("3 s")
def test_exit_codes(entered: Crawlyard, project: Project, person: User) -> None:
    job = make_job(project=project, name="daily", enabled=False)
    make_run(job=job, state="exited")
    refused = entered("jobs", "start", "daily")
    assert refused.code == 6
    assert "409" in refused.err
    assert entered("jobs", "show", "nothing").code == 4
    assert entered("runs", "show", 999_999).code == 4
    assert entered("runs", "pause", Run.objects.get().pk).code == 6
    assert entered("jobs", "list", "--limit", "0").code == 2
    assert entered("no-such-command").code == 2
    wrong = entered("runs", "list", "--state", "nope")
    assert (wrong.code, "  state: " in wrong.err) == (2, True)


@pytest.mark.slow("1 s")
def test_a_role_that_is_missing(
    crawlyard: Crawlyard, live_server: Any, monkeypatch: pytest.MonkeyPatch, project: Project
) -> None:
    make_job(project=project, name="daily")
    viewer = make_user(roles={project: Role.VIEWER})
    monkeypatch.setenv("CRAWLYARD_URL", live_server.url)
    monkeypatch.setenv("CRAWLYARD_TOKEN", make_token(viewer).secret)
    said = crawlyard("jobs", "start", "daily")
    assert (said.code, "role_required" in said.err) == (3, True)


@pytest.mark.slow("1 s")
def test_the_server_speaks_the_language_of_the_shell(
    entered: Crawlyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    said = entered("runs", "show", 999_999)
    assert "Not found" not in said.err
    assert any("\u4e00" <= letter <= "\u9fff" for letter in said.err)


@pytest.mark.slow("3 s")
@pytest.mark.parametrize(
    ("names", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh-CN"),
        ({"LANG": "en_US"}, "en-US"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({}, "en"),
        ({"LANG": "de_DE", "LC_ALL": "zh_TW.UTF-8"}, "zh-TW"),
    ],
)
def test_languages(names: dict[str, str], language: str) -> None:
    assert language_of(names) == language


@pytest.mark.slow("2 s")
def test_pages_are_put_together(entered: Crawlyard, project: Project) -> None:
    job = make_job(project=project, name="many")
    for _number in range(205):
        make_run(job=job, state="exited")
    assert len(json.loads(entered("runs", "list", "-o", "json").out)) == 50
    assert len(json.loads(entered("runs", "list", "--limit", "203", "-o", "json").out)) == 203
    found = json.loads(entered("runs", "list", "--all", "-o", "json").out)
    assert [row["id"] for row in found] == sorted((row["id"] for row in found), reverse=True)
    assert len(found) == 205


@pytest.mark.slow("3 s")
def test_names_and_ids(entered: Crawlyard, project: Project, person: User) -> None:
    job = make_job(project=project, name="daily")
    make_job(project=project, name="daily two")
    for words in (["daily"], [job.pk], ["news/daily"], ["daily", "--project", "The news"]):
        said = entered("jobs", "show", *words, "-o", "json")
        assert json.loads(said.out)["id"] == job.pk, said.err
    other = make_project(slug="other")
    make_job(project=other, name="daily")
    assert entered("jobs", "show", "daily").code == 0
    from apps.access.models import Membership

    Membership.objects.create(user=person, project=other, role=Role.VIEWER)
    several = entered("jobs", "show", "daily")
    assert (several.code, str(job.pk) in several.err) == (2, True)
    assert entered("jobs", "show", "daily", "-p", "news").code == 0


@pytest.mark.slow("2 s")
def test_forms_of_answers(entered: Crawlyard, project: Project) -> None:
    make_job(project=project, name="采集\x1b[31m")
    rows = json.loads(entered("-o", "json", "jobs", "list").out)
    assert yaml.safe_load(entered("jobs", "list", "-o", "yaml").out) == rows
    table = entered("jobs", "list").out
    assert table.splitlines()[0].split() == ["ID", "PROJECT", "NAME", "ENABLED", "CRON", "SPIDER"]
    assert "采集" in table
    # Not a terminal: no colours; nor does a name bring any.
    assert "\x1b" not in table
    assert entered("jobs", "list", "-o", "xml").code == 2


def test_nothing_of_others_moves_the_cursor() -> None:
    assert inert("a\x1b[2Jb\r\x9bc\u202ed\n\t") == "a\ufffd[2Jb\ufffd\ufffdc\ufffdd\n\t"


@pytest.mark.slow("2 s")
def test_any_call(entered: Crawlyard, project: Project) -> None:
    job = make_job(project=project, name="daily")
    said = entered("api", "patch", f"jobs/{job.pk}", "--data", "-", stdin="{enabled: false}")
    assert json.loads(said.out)["enabled"] is False
    found = entered("api", "GET", "jobs", "-q", "enabled=false", "-q", "limit=1")
    assert json.loads(found.out)["results"][0]["name"] == "daily"
    assert entered("api", "GET", "jobs", "-q", "enabled").code == 2
    stale = ("api", "PATCH", f"jobs/{job.pk}", "--data", "-", "--if-match", '"old"')
    assert entered(*stale, stdin="{}").code == 6
