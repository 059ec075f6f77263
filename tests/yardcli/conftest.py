"""The command line against the platform's own web process, over HTTP."""

from __future__ import annotations

import gc
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from apps.access.models import User
from apps.access.states import Role
from apps.projects.models import Project
from apps.routing.queries.tracks import track_of
from apps.seeds.services import clients
from tests.access.factories import make_project, make_token, make_user
from yardcli import client, watch
from yardcli.main import main


@dataclass(frozen=True)
class Said:
    """What a command has written, and its exit status."""

    code: int
    out: str
    err: str


Crawlyard = Callable[..., Said]


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of whoever runs the tests, and nobody waits long."""
    for name in [each for each in os.environ if each.startswith(("CRAWLYARD_U", "CRAWLYARD_TO"))]:
        monkeypatch.delenv(name)
    for name in ("LC_ALL", "LC_MESSAGES", "CRAWLYARD_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(client, "WAITS", (0.01, 0.01))
    monkeypatch.setattr(clients, "TIMEOUT_SECONDS", 0.05)


@pytest.fixture(autouse=True)
def _no_track_of_another_test() -> None:
    """Ids of rules begin anew in each test, and compiled rules are kept by them."""
    track_of.cache_clear()


@pytest.fixture(autouse=True)
def _answered() -> Iterator[None]:
    """The threads of the web process share the test's database: they end before it does."""
    yield
    # A session that nobody has closed keeps its connection, and with it the thread.
    gc.collect()
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(10.0)


@pytest.fixture
def crawlyard(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Crawlyard:
    """Runs a command line."""

    def run(*words: Any, stdin: str = "") -> Said:
        capfd.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as left:
            main([str(each) for each in words])
        sys.stdout.flush()
        said = capfd.readouterr()
        code = left.value.code
        return Said(code if isinstance(code, int) else int(code is not None), said.out, said.err)

    return run


@pytest.fixture
def project(transactional_db: None) -> Project:
    return make_project(slug="news", name="The news")


@pytest.fixture
def person(project: Project) -> User:
    return make_user(username="ada", roles={project: Role.ADMIN})


@pytest.fixture
def entered(
    person: User, live_server: Any, crawlyard: Crawlyard, monkeypatch: pytest.MonkeyPatch
) -> Crawlyard:
    """The same, for ``person``, by the environment."""
    monkeypatch.setenv("CRAWLYARD_URL", live_server.url)
    monkeypatch.setenv("CRAWLYARD_TOKEN", make_token(person).secret)
    return crawlyard
