"""The seed's own bind address and port (S2.9), served by real web processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.migrated_databases import fill_data_folder
from tests.projects.web_process import ROOT, web_environment

# Generous: processes start and ports follow while much else runs.
PATIENCE_SECONDS = 90
EVERYWHERE = "0.0.0.0"  # noqa: S104 - as the seed writes it
pytestmark = [pytest.mark.slow("several web processes"), pytest.mark.timeout(300)]


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(what: Any) -> Any:
    """Call a function until its result is true; return the result."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.1)


@dataclass
class Installation:
    """Installation with a database, web processes and a helper process."""

    data: Path
    token: str = ""

    def environment(self) -> dict[str, str]:
        return web_environment(self.data, ALLOWED_HOSTS="127.0.0.1")

    def run(self, *argv: str) -> str:
        done = subprocess.run(
            [sys.executable, *argv],
            env=self.environment(),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def helper(self, *words: object) -> str:
        return self.run("-m", "tests.routing.api.helper_process", *map(str, words))

    @contextmanager
    def web(self) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
        """Start a web process; return it and its main port."""
        port = free_port()
        argv = [sys.executable, str(ROOT / "manage.py"), "run_web", "--port", str(port)]
        with (self.data / f"web-{port}.log").open("wb") as log:
            process = subprocess.Popen(argv, env=self.environment(), stderr=log, stdout=log)
        try:
            until(lambda: is_open(port))
            yield port, process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def ask(self, port: int, path: str, body: Any = None, token: bool = True) -> tuple[int, Any]:
        """Return status and JSON; the status is 0 if nothing answers."""
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {self.token}"
        with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            try:
                method = "GET" if body is None else "POST"
                raw = None if body is None else json.dumps(body)
                connection.request(method, path, raw, headers)
                answer = connection.getresponse()
                told = answer.read()
            except (OSError, HTTPException):
                return 0, None
        if answer.headers.get_content_type() != "application/json":
            return answer.status, told
        return answer.status, json.loads(told)

    def server(self, port: int, project: str) -> Any:
        """Return the status of the project's HTTP server from REST."""
        return self.ask(port, f"/api/v1/routing/projects/{project}")[1]["server"]


def is_open(port: int) -> bool:
    with closing(socket.socket()) as wire:
        return wire.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    made = Installation(tmp_path_factory.mktemp("data"))
    fill_data_folder(made.data)
    made.token = made.helper("person")
    return made


@pytest.fixture(scope="module")
def main(site: Installation) -> Iterator[int]:
    """The main port of a web process."""
    with site.web() as (port, _process):
        yield port


@pytest.mark.covers("S2.9")
def test_a_port_of_its_own_opens_and_moves_and_closes_with_the_active_rules(
    site: Installation, main: int
) -> None:
    first, second = free_port(), free_port()
    assert not is_open(first)
    project = site.helper("rules", "ic", "127.0.0.1", first)
    until(lambda: is_open(first))

    status, told = site.ask(first, "/task/", {"data_type": "change"})
    assert (status, told["project"], told["items"][0]["fate"]) == (200, "ic", "accepted")
    assert site.ask(first, "/task/", {}, token=False)[0] == 401
    assert site.ask(first, "/inbound/http/check_task/", {})[1]["outcome"] == "end"
    names = [each["name"] for each in site.ask(first, "/outbound/")[1]["outbounds"]]
    assert names == ["changes", "rest"]
    # Nothing else of the platform is here.
    for path in ("/", "/admin/", "/api/v1/me", "/projects/ic/task/", "/static/x", "/taskx"):
        assert site.ask(first, path)[0] == 404
    assert site.ask(main, "/api/v1/me")[0] == 200
    standing = until(lambda: site.server(main, project)["processes"])
    assert [each["problem"] for each in standing] == [""]

    site.helper("rules", "ic", "127.0.0.1", second)
    until(lambda: is_open(second) and not is_open(first))
    assert site.ask(second, "/task/", {})[0] == 200
    site.helper("off", "ic")
    until(lambda: not is_open(second))
    assert site.ask(main, "/api/v1/me")[0] == 200


def test_a_taken_port_is_told_and_taken_over_once_it_is_free(site: Installation, main: int) -> None:
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        project = site.helper("rules", "taken", "127.0.0.1", port)

        def problem() -> str:
            shown = site.server(main, project)["processes"]
            return str(shown[0]["problem"]) if shown else ""

        assert "in use" in until(problem)
        assert site.ask(main, "/api/v1/me")[0] == 200
        other.close()
        until(lambda: site.ask(port, "/task/", {})[0] == 200)
        until(lambda: not problem())
        site.helper("off", "taken")


def test_rules_open_no_port_that_the_installation_does_not_allow(
    site: Installation, main: int
) -> None:
    port = free_port()
    project = site.helper("rules", "wide", EVERYWHERE, port)
    told = until(lambda: site.server(main, project)["processes"])
    assert "ROUTING_SERVERS" in told[0]["problem"]
    assert "ROUTING_SERVERS" in site.server(main, project)["problem"]
    assert not is_open(port)
    assert site.helper("rules", "wide", "127.0.0.1", 80)
    until(lambda: site.server(main, project)["address"] == "127.0.0.1:80")
    assert "ROUTING_SERVERS" in site.server(main, project)["problem"]
    site.helper("off", "wide")


@pytest.mark.fault
def test_two_web_processes_share_a_port_and_one_may_die(site: Installation, main: int) -> None:
    port = free_port()
    project = site.helper("rules", "shared", "127.0.0.1", port)
    with site.web() as (_other, victim):

        def listening() -> bool:
            shown = site.server(main, project)["processes"]
            return [each["problem"] for each in shown] == ["", ""]

        until(listening)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        for _ in range(20):
            assert site.ask(port, "/task/", {})[0] == 200
        # Two projects cannot have one port: the first keeps it.
        second = site.helper("rules", "zz", "127.0.0.1", port)
        shown = until(lambda: site.server(main, second)["processes"])
        assert "shared" in shown[0]["problem"]
        assert site.ask(port, "/task/", {})[1]["project"] == "shared"
        for slug in ("shared", "zz"):
            site.helper("off", slug)


@pytest.mark.fault
def test_a_web_process_with_a_port_of_rules_ends_when_it_is_told(
    site: Installation, main: int
) -> None:
    port = free_port()
    project = site.helper("rules", "ends", "127.0.0.1", port)
    with site.web() as (_other, process):
        until(lambda: len(site.server(main, project)["processes"]) == 2)
        process.terminate()
        assert process.wait(30) in (0, -signal.SIGTERM)
        # It has taken back its word, and the other goes on.
        assert len(site.server(main, project)["processes"]) == 1
        assert site.ask(port, "/task/", {})[0] == 200
    site.helper("off", "ends")
