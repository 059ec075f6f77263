"""Which host gets a run, why a run waits, and what the hosts' rows say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from apps.access.models import AuditRecord
from apps.jobs.engine import placement
from apps.jobs.engine.placement import RunRequirements
from apps.jobs.engine.vitals import HostDescription, HostVitals
from apps.jobs.errors import HostOnline
from apps.jobs.models import Host, Run
from apps.jobs.services import (
    beat_host,
    claim_runs,
    explain_placement,
    explain_run_placement,
    finish_run,
    forget_host,
    place_runs,
    register_host,
    stop_run,
    switch_host,
)
from apps.jobs.services import placement as placing
from apps.jobs.states import HostMode, RunState
from apps.runtime.models import OutboxMessage
from tests.jobs.factories import NOW, make_host, make_job, make_run
from yardkit.protocol import RunQueued, decode

GIB = 1024**3

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def usual_limits() -> Any:
    with override_settings(RUN_MAX_CPU_PERCENT=90.0, RUN_MIN_MEMORY=150 * 1024**2):
        yield


def place(**later: Any) -> int:
    return place_runs(now=NOW + timedelta(**later))


def places(*runs: Run) -> list[str]:
    for run in runs:
        run.refresh_from_db()
    return [run.host for run in runs]


@pytest.mark.covers("S1.53", "S1.54")
def test_the_least_loaded_host_gets_the_run_and_is_woken() -> None:
    make_host("busy", capacity=8, cpu_percent=5)
    make_host("warm", capacity=2, cpu_percent=40)
    make_host("cool", capacity=2, cpu_percent=20)
    make_run(state=RunState.RUNNING, host="busy")
    for _ in range(6):
        make_run(state=RunState.RUNNING, host="busy")
    first, second, third = make_run(), make_run(), make_run()
    assert place() == 3
    assert places(first, second, third) == ["cool", "warm", "busy"]
    assert (first.state, first.placed_at) == (RunState.QUEUED, NOW)
    woken = {m.key: decode(bytes(m.body)) for m in OutboxMessage.objects.all()}
    assert woken["runner.cool"] == RunQueued(run=first.pk)
    assert {"runner.warm", "runner.busy"} < set(woken)


def test_a_higher_priority_gets_the_only_place() -> None:
    make_host("small", capacity=1)
    early, urgent = make_run(), make_run(priority=5)
    assert place() == 1
    assert places(early, urgent) == ["", "small"]
    assert early.waiting_reason == "host small: all 1 of its run slots are in use"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"cpu_percent": 95.4}, "CPU 95 % (limit 90 %)"),
    ({"cpu_percent": 90.0}, "CPU 90 % (limit 90 %)"),
    ({"memory_free_bytes": 150 * 1024**2}, "150.0\xa0MB of memory free (150.0\xa0MB needed)"),
    ({"labels": {"gpu": "no"}}, "label gpu=yes is missing"),
    ({"labels": {}}, "label gpu=yes is missing"),
    ({"beat_at": NOW - timedelta(seconds=43)}, "silent for 40 s"),
    ({"mode": HostMode.DRAINING}, "it is draining"),
    ({"mode": HostMode.DISABLED}, "it is disabled"),
    ({"kind": "docker"}, "it runs only containers"),
    ({"problem": "Docker does not answer"}, "Docker does not answer"),
    ({"capacity": 0}, "all 0 of its run slots are in use"),
]


@pytest.mark.slow("3 s")
@pytest.mark.covers("S1.54")
@pytest.mark.parametrize(("fields", "reason"), REFUSED)
def test_an_unfit_host_is_refused_with_the_reason(fields: dict[str, Any], reason: str) -> None:
    make_host("fit", labels={"gpu": "yes", "disk": "big"}, capacity=1)
    make_host("unfit", **{"labels": {"gpu": "yes"}, **fields})
    run = make_run(job=make_job(host_labels={"gpu": "yes"}))
    explained = explain_run_placement(run=run, now=NOW)
    assert explained.chosen == "fit"
    assert explained.hosts[1].against == [reason]
    assert explained.hosts[1].eligible is False
    assert place() == 1
    waiting = make_run(job=run.job)
    assert place() == 0
    assert places(run, waiting) == ["fit", ""]
    assert waiting.waiting_reason == (
        f"host fit: all 1 of its run slots are in use; host unfit: {reason}"
    )
    assert explain_placement(job=run.job, now=NOW).reason == waiting.waiting_reason


def test_every_reason_is_named_at_once() -> None:
    make_host("a", cpu_percent=99, memory_free_bytes=GIB, mode=HostMode.DRAINING)
    job = make_job(memory_limit_bytes=2 * GIB)
    assert explain_placement(job=job, now=NOW).reason == (
        "host a: it is draining, CPU 99 % (limit 90 %), 1.0\xa0GB of memory free (2.0\xa0GB needed)"
    )


def test_without_any_host_the_run_says_so() -> None:
    run = make_run()
    assert place() == 0
    run.refresh_from_db()
    assert "no host" in run.waiting_reason


def test_an_image_goes_to_a_container_host_alone() -> None:
    make_host("laptop")
    make_host("server", kind="docker")
    container, process = make_run(image_digest="sha256:1"), make_run()
    place()
    assert places(container, process) == ["server", "laptop"]


@pytest.mark.covers("S1.13")
def test_a_run_waits_for_its_time_and_for_another_run() -> None:
    make_host("one", capacity=9)
    earlier = make_run(state=RunState.RUNNING, host="one")
    delayed = make_run(not_before=NOW + timedelta(seconds=5))
    behind = make_run(waits_for=earlier)
    assert place() == 0
    assert places(delayed, behind) == ["", ""]
    assert delayed.waiting_reason == "not before 2026-03-01 12:00:05 UTC"
    assert behind.waiting_reason == f"run {earlier.pk} has not ended yet"
    assert explain_run_placement(run=behind, now=NOW).reason == behind.waiting_reason
    Run.objects.filter(pk=earlier.pk).update(state=RunState.EXITED, ended_at=NOW)
    assert place(seconds=5) == 2
    assert places(delayed, behind) == ["one", "one"]


@pytest.mark.covers("S1.13")
def test_a_run_behind_one_that_is_cancelled_waits_for_those_before_that() -> None:
    make_host("one", capacity=9)
    job = make_job()
    running = make_run(job=job, state=RunState.RUNNING, host="one")
    second = make_run(job=job, waits_for=running)
    third = make_run(job=job, waits_for=second)
    stop_run(run=second, now=NOW, actor=None)
    assert place() == 0
    assert places(third) == [""]
    assert third.waiting_reason == f"run {running.pk} has not ended yet"
    assert explain_run_placement(run=third, now=NOW).reason == third.waiting_reason
    finish_run(run=running, state=RunState.EXITED, reason="", now=NOW)
    assert place() == 1
    assert places(third) == ["one"]


@pytest.mark.covers("S1.13")
def test_a_run_behind_one_that_is_tried_again_waits_for_the_retry() -> None:
    make_host("one", capacity=9)
    rules = [{"on": "failed", "retries": 1, "delay_seconds": 5}]
    job = make_job(retry_rules=rules)
    running = make_run(job=job, state=RunState.RUNNING, host="one")
    behind = make_run(job=job, waits_for=running)
    finish_run(run=running, state=RunState.FAILED, reason="", now=NOW)
    assert place() == 0
    retry = running.retries.get()
    assert places(behind, retry) == ["", ""]
    assert behind.waiting_reason == f"run {retry.pk} has not ended yet"
    assert place(seconds=5) == 1
    assert places(behind, retry) == ["", "one"]


def test_runs_that_may_not_begin_yet_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "MOST_PLACED", 2)
    make_host("one", capacity=9)
    for _ in range(3):
        make_run(not_before=NOW + timedelta(hours=1), priority=9)
    ready = make_run()
    assert place() == 1
    assert places(ready) == ["one"]


def test_runs_that_fit_no_host_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "MOST_PLACED", 2)
    asked: list[RunRequirements] = []

    def choose(hosts: Any, wanted: RunRequirements, limits: Any) -> Any:
        asked.append(wanted)
        return placement.choose(hosts, wanted, limits)

    monkeypatch.setattr(placing, "choose", choose)
    make_host("one", capacity=9)
    picky = [make_run(job=make_job(host_labels={"gpu": "yes"}), priority=9) for _ in range(4)]
    ready = [make_run() for _ in range(3)]
    assert place() == 2
    assert places(*picky, *ready) == ["", "", "", "", "one", "one", ""]
    assert {run.waiting_reason for run in picky} == {"host one: label gpu=yes is missing"}
    # The same need is asked about once.
    assert [bool(wanted.labels) for wanted in asked] == [True, False, False]
    assert place() == 1
    assert places(ready[2]) == ["one"]


def test_what_is_full_for_one_is_still_free_for_another() -> None:
    make_host("plain", capacity=1)
    make_host("gpu", capacity=1, labels={"gpu": "yes"}, cpu_percent=50)
    first, second = make_run(priority=9), make_run(job=make_job(memory_limit_bytes=GIB))
    third = make_run(job=make_job(host_labels={"gpu": "yes"}))
    assert place() == 2
    assert places(first, second, third) == ["plain", "gpu", ""]
    assert "all 1 of its run slots are in use" in third.waiting_reason


def test_more_that_fit_no_host_than_one_look_holds_hold_up_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placing, "MOST_LOOKED_AT", 2)
    make_host("one", capacity=2)
    job = make_job(host_labels={"gpu": "yes"})
    picky = [make_run(job=job, priority=9) for _ in range(5)]
    behind = [make_run() for _ in range(3)]
    assert place() == 2
    assert places(*picky, *behind) == [*[""] * 5, "one", "one", ""]


def test_one_pass_looks_so_often_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "MOST_LOOKED_AT", 2)
    monkeypatch.setattr(placing, "MOST_LOOKS", 2)
    host = make_host("one", capacity=9)
    for _ in range(4):
        make_run(job=make_job(host_labels={"gpu": "yes"}), priority=9)
    behind = make_run()
    assert place() == 0
    assert places(behind) == [""]
    # Where no place is free, nobody looks a second time.
    Host.objects.filter(pk=host.pk).update(cpu_percent=99)
    monkeypatch.setattr(placing, "MOST_LOOKS", 99)
    with CaptureQueriesContext(connection) as asked:
        assert place() == 0
    assert sum("LIMIT 2" in each["sql"] for each in asked) == 1


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    "died", [{"beat_at": NOW - timedelta(seconds=20)}, {"problem": "x"}, {"mode": "draining"}]
)
def test_what_a_dead_host_did_not_pick_up_is_taken_back(died: dict[str, Any]) -> None:
    make_host("dying", capacity=9)
    run = make_run()
    place()
    assert places(run) == ["dying"]
    make_host("other", capacity=1)
    Host.objects.filter(name="dying").update(**died)
    assert place() == 1
    assert places(run) == ["other"]
    assert claim_runs(host="dying", limit=9, now=NOW) == []


def test_what_waits_on_a_busy_host_stays_there_and_counts() -> None:
    make_host("busy", capacity=1)
    first, second = make_run(), make_run()
    place()
    Host.objects.update(cpu_percent=99)
    place()
    assert places(first, second) == ["busy", ""]


def test_a_host_whose_row_is_gone_gives_back_what_it_had() -> None:
    make_host("gone")
    run = make_run()
    place()
    Host.objects.all().delete()
    place()
    assert places(run) == [""]


@pytest.mark.covers("S1.53", "S1.55")
def test_a_cancel_before_the_pick_up_simply_ends_the_queued_run() -> None:
    make_host("one")
    run = make_run()
    place()
    stop_run(run=run, now=NOW, actor=None)
    assert claim_runs(host="one", limit=9, now=NOW) == []
    run.refresh_from_db()
    assert (run.state, run.boot) == (RunState.CANCELLED, "")


@pytest.mark.covers("S1.53", "S1.55")
def test_a_draining_host_ends_what_it_has_and_gets_nothing_new() -> None:
    host = make_host("one", capacity=2)
    mine, placed = make_run(state=RunState.RUNNING, host="one"), make_run()
    place()
    switch_host(host=host, mode=HostMode.DRAINING, actor=None)
    # What it has not picked up goes elsewhere; what runs goes on, and it can leave after that.
    assert (place(), places(mine, placed)) == (0, ["one", ""])
    placed.refresh_from_db()
    assert "it is draining" in placed.waiting_reason
    assert claim_runs(host="one", limit=9, now=NOW) == []
    mine.refresh_from_db()
    assert mine.state == RunState.RUNNING
    make_host("two")
    assert (place(), places(placed)) == (1, ["two"])


def test_many_waiting_runs_cost_a_bounded_number_of_queries(
    django_assert_max_num_queries: Any,
) -> None:
    make_host("full", capacity=0)
    for _ in range(5):
        make_run()
    place()
    with django_assert_max_num_queries(10):
        place()


# --- the hosts' rows --------------------------------------------------------------------------


@pytest.mark.covers("S1.52")
def test_a_runner_registers_and_beats_and_what_people_decided_stays() -> None:
    about = HostDescription(
        kind="process", capacity=3, boot="b1", version="1", labels={"gpu": "yes"}
    )
    beat = HostVitals().read(running=0, engine="Python", problem="")
    host = register_host(name="one", about=about, beat=beat, now=NOW)
    assert (host.capacity, host.labels, host.mode) == (3, {"gpu": "yes"}, HostMode.ENABLED)
    assert host.cores >= 1
    assert 0 < host.memory_free_bytes <= host.memory_total_bytes
    assert host.system
    switch_host(host=host, mode=HostMode.DRAINING, actor=None)
    later = NOW + timedelta(seconds=5)
    beat = HostVitals().read(running=2, engine="Python", problem="no disk")
    beat_host(name="one", about=about, beat=beat, now=later)
    host.refresh_from_db()
    assert (host.running, host.problem, host.beat_at) == (2, "no disk", later)
    register_host(name="one", about=about, beat=beat, now=later)
    host.refresh_from_db()
    assert host.mode == HostMode.DRAINING
    host.delete()
    beat_host(name="one", about=about, beat=beat, now=later)
    assert Host.objects.get().capacity == 3


def test_switching_a_host_is_written_down_once() -> None:
    host = make_host("one")
    assert switch_host(host=host, mode=HostMode.DISABLED, actor=None)
    assert not switch_host(host=host, mode=HostMode.DISABLED, actor=None)
    record = AuditRecord.objects.get(action="jobs.disable_host")
    assert (record.before, record.after) == ({"mode": "enabled"}, {"mode": "disabled"})


@pytest.mark.covers("S1.54")
def test_only_a_host_that_is_offline_can_be_forgotten() -> None:
    host = make_host("one")
    with pytest.raises(HostOnline, match="one"):
        forget_host(host=host, actor=None, now=NOW + timedelta(seconds=59))
    forget_host(host=host, actor=None, now=NOW + timedelta(seconds=60))
    assert not Host.objects.exists()
    assert AuditRecord.objects.filter(action="jobs.delete_host").exists()
