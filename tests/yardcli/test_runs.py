"""Jobs, runs and their logs; waiting and following in a process of their own."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from apps.jobs.models import Run
from apps.projects.models import Project
from tests.joblogs.factories import store_texts
from tests.jobs.factories import make_job, make_run
from tests.yardcli.conftest import Crawlyard

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0


def started(*words: Any, **more: Any) -> subprocess.Popen[str]:
    """The command in a process of its own, as people start it.

    Tests that run in the background of a shell ignore Ctrl-C, and so would what they start.
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT / "platform")}
    argv = [sys.executable, "-m", "yardcli.main", *map(str, words)]
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(argv, env=environment, text=True, **more)
    finally:
        signal.signal(signal.SIGINT, ignored)


def move(run: Run, state: str) -> None:
    ended = timezone.now() if state in ("exited", "failed") else None
    Run.objects.filter(pk=run.pk).update(state=state, ended_at=ended)


@pytest.mark.slow("2 s")
def test_starting_without_waiting(entered: Crawlyard, project: Project) -> None:
    make_job(project=project, name="daily")
    said = entered("runs", "start", "daily", "-a", "pages=3", "-a", "site=a=b", "-o", "json")
    assert said.code == 0, said.err
    run = Run.objects.get()
    assert json.loads(said.out)["id"] == run.pk
    assert run.arguments == {"pages": 3, "site": "a=b"}
    assert entered("runs", "start", "daily", "-a", "pages").code == 2
    stopped = entered("runs", "stop", run.pk, "-o", "json")
    assert json.loads(stopped.out)["state"] == "cancelled"


@pytest.mark.slow("3 s")
@pytest.mark.parametrize(("state", "code"), [("exited", 0), ("failed", 1), ("lost", 1)])
def test_what_waiting_ends_with(
    entered: Crawlyard, project: Project, state: str, code: int
) -> None:
    run = make_run(job=make_job(project=project), state=state)
    assert entered("runs", "wait", run.pk).code == code


@pytest.mark.slow("1 s")
def test_waiting_no_longer_than_that(entered: Crawlyard, project: Project) -> None:
    run = make_run(job=make_job(project=project), state="running")
    said = entered("runs", "wait", run.pk, "--timeout", "0.1")
    assert (said.code, f"run {run.pk} goes on" in said.err) == (1, True)


@pytest.mark.slow("2 s")
def test_interrupted_waiting_leaves_the_run(entered: Crawlyard, project: Project) -> None:
    make_job(project=project, name="daily")
    waiting = started(
        "jobs", "start", "daily", "--wait", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert waiting.stderr is not None
    assert "run " in waiting.stderr.readline()
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=SECONDS)
    assert waiting.returncode == 130, err
    assert "goes on" in err
    assert "Traceback" not in err
    assert out == ""
    assert Run.objects.get().state == "queued"


@pytest.mark.slow("3 s")
def test_progress_on_a_terminal_alone(entered: Crawlyard, project: Project) -> None:
    run = make_run(job=make_job(project=project), state="running")
    near, far = pty.openpty()
    waiting = started("runs", "wait", run.pk, stdout=subprocess.PIPE, stderr=far)
    os.close(far)
    seen = b""
    while b"running" not in seen:
        seen += os.read(near, 1000)
    move(run, "exited")
    out, _err = waiting.communicate(timeout=SECONDS)
    os.close(near)
    assert waiting.returncode == 0
    # What programs read has nothing of it.
    assert "\x1b" not in out
    assert "exited" in out


@pytest.mark.slow("2 s")
def test_colours_on_a_terminal_unless_unwanted(
    entered: Crawlyard, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(job=make_job(project=project), state="failed")
    monkeypatch.setenv("TERM", "xterm-256color")
    for wanted in (True, False):
        if not wanted:
            monkeypatch.setenv("NO_COLOR", "1")
        near, far = pty.openpty()
        listing = started("runs", "list", stdout=far)
        os.close(far)
        assert listing.wait(SECONDS) == 0
        shown = os.read(near, 10_000)
        os.close(near)
        assert b"failed" in shown
        assert (b"\x1b[31m" in shown) is wanted


@pytest.mark.slow("2 s")
@pytest.mark.usefixtures("entered")
def test_a_log_is_followed_to_the_end(project: Project) -> None:
    run = make_run(job=make_job(project=project), state="running")
    store_texts(f"run:{run.pk}", "first", "second")
    following = started("runs", "logs", run.pk, "-f", stdout=subprocess.PIPE)
    assert following.stdout is not None
    try:
        assert "first" in following.stdout.readline()
        assert "second" in following.stdout.readline()
        store_texts(f"run:{run.pk}", "first", "second", "third")
        assert "third" in following.stdout.readline()
        store_texts(f"run:{run.pk}", "first", "second", "third", "last")
        move(run, "exited")
        rest, _err = following.communicate(timeout=SECONDS)
    finally:
        following.kill()
        following.wait()
        following.stdout.close()
    assert "last" in rest
    assert len(rest.splitlines()) == 1
    assert following.returncode == 0


@pytest.mark.slow("1 s")
def test_logs_and_errors(entered: Crawlyard, project: Project) -> None:
    run = make_run(job=make_job(project=project), state="failed")
    store_texts(f"run:{run.pk}", "all is well", "ERROR it broke", level="ERROR")
    said = entered("runs", "logs", run.pk, "--tail", "1", "-o", "json")
    assert json.loads(said.out)["text"] == "ERROR it broke"
    assert "all is well" in entered("runs", "errors", run.pk).err
    assert entered("runs", "logs", run.pk, "-f", "--contains", "x").code == 2
    empty = make_run(job=make_job(project=project), state="exited")
    assert entered("runs", "logs", empty.pk, "-f").out == ""


@pytest.mark.slow("2 s")
def test_jobs_are_switched(entered: Crawlyard, project: Project) -> None:
    job = make_job(project=project, name="daily", cron="0 3 * * *")
    for action, enabled in (("disable", False), ("enable", True)):
        assert entered("jobs", action, "daily").code == 0
        job.refresh_from_db()
        assert job.enabled is enabled
    assert "0 3 * * *" in entered("jobs", "schedule", "daily").out
    assert entered("jobs", "pause", "daily").code == 0


@pytest.mark.slow("2 s")
def test_whoever_has_read_enough_gets_no_traceback(entered: Crawlyard, project: Project) -> None:
    job = make_job(project=project)
    for _number in range(3):
        make_run(job=job, state="exited")
    reading, writing = os.pipe()
    os.close(reading)
    listing = started("runs", "list", "-o", "json", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    _out, err = listing.communicate(timeout=SECONDS)
    assert "Traceback" not in err
    assert "Exception" not in err


def test_it_starts_without_what_it_does_not_need() -> None:
    code = (
        "import sys, yardcli.main; print(*sorted({each.partition('.')[0] for each in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT / "platform")},
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"requests", "rich", "yaml", "django", "urllib3", "asyncio", "apps"}


@pytest.mark.slow("1 s")
def test_completion_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else typer asks which shell has started it, and under make or CI none has.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    done = started("--show-completion", "bash", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out, _err = done.communicate(timeout=SECONDS)
    assert done.returncode == 0, out
    assert "crawlyard" in out
