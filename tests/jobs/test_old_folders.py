"""What ended runs left on a host goes in the end, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from apps.jobs.daemon.context import RunnerContext
from apps.jobs.daemon.folders import BATCH, remove_old_folders
from apps.jobs.runners.log_shipper import LogShipper
from apps.jobs.runners.log_sources import FileLog
from apps.jobs.runners.process import ProcessRunner
from apps.jobs.states import RunState
from tests.jobs.factories import make_run
from yardkit.broker import Broker
from yardkit.clock import SystemClock

pytestmark = pytest.mark.django_db
DAYS = 30


@pytest.fixture
def here(broker: Broker, tmp_path: Path) -> RunnerContext:
    shipper = LogShipper(broker, tmp_path / "runs" / ".shipping")
    return RunnerContext(
        host="here",
        clock=SystemClock(),
        runner=ProcessRunner(),
        folder=tmp_path / "runs",
        shipper=shipper,
    )


def make_folder(
    here: RunnerContext, name: object, *, days: float, file_days: float | None = None
) -> Path:
    """A folder with a log, last written so many days ago."""
    folder = here.folder / str(name)
    folder.mkdir(parents=True)
    log = folder / "log.txt"
    log.write_text("one line\n")
    now = here.clock.now().timestamp()
    for path, age in ((log, days if file_days is None else file_days), (folder, days)):
        os.utime(path, (now - age * 86_400, now - age * 86_400))
    return folder


def test_old_folders_go_and_younger_ones_stay(here: RunnerContext) -> None:
    old = make_folder(here, 1, days=31)
    young = make_folder(here, 2, days=29)
    still_written = make_folder(here, 3, days=31, file_days=1)
    foreign = make_folder(here, "notes", days=400)
    assert remove_old_folders(here, days=DAYS) == 1
    assert not old.exists()
    assert young.exists()
    assert still_written.exists()
    assert foreign.exists()


def test_the_folder_of_a_run_that_goes_on_stays(here: RunnerContext) -> None:
    active, ended = make_run(state=RunState.PAUSED), make_run(state=RunState.EXITED)
    kept, gone = (make_folder(here, run.pk, days=90) for run in (active, ended))
    assert remove_old_folders(here, days=DAYS) == 1
    assert kept.exists()
    assert not gone.exists()


def test_lines_that_are_not_shipped_yet_keep_their_folder(here: RunnerContext) -> None:
    followed = make_folder(here, 7, days=90)
    noted = make_folder(here, 8, days=90)
    here.shipper.follow(run=7, boot="b", source=FileLog(followed / "log.txt"))
    (here.folder / ".shipping" / "8.b").touch()
    assert remove_old_folders(here, days=DAYS) == 0
    assert followed.exists()
    assert noted.exists()
    here.shipper.close(timeout=0)


def test_many_go_a_part_at_a_time(here: RunnerContext) -> None:
    for number in range(BATCH + 3):
        make_folder(here, number, days=90)
    assert [remove_old_folders(here, days=DAYS) for _ in range(3)] == [BATCH, 3, 0]


def test_what_cannot_be_removed_keeps_nothing_else(
    here: RunnerContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_folder(here, "elsewhere", days=90).rename(tmp_path / "elsewhere")
    for number in range(BATCH):
        # Moved by a person, who left a link.
        link = here.folder / str(number)
        link.symlink_to(tmp_path / "elsewhere")
        os.utime(link, (0, 0), follow_symlinks=False)
    make_folder(here, BATCH, days=90)
    assert [remove_old_folders(here, days=DAYS) for _ in range(2)] == [1, 0]
    assert f"{BATCH} old folders cannot be removed, as {here.folder / '0'}" in caplog.text


def test_a_host_without_any_run_has_nothing_to_remove(here: RunnerContext) -> None:
    here.folder = here.folder / "not-there"
    assert remove_old_folders(here, days=DAYS) == 0
