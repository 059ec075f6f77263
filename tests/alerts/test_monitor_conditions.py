"""Unreadable and truncated sources open incidents like other problems."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.alerts.engine.events import Occurrence, Truncated, truncated_to
from apps.alerts.models import Incident
from apps.alerts.services import evaluation
from apps.alerts.services.monitor_absence import open_if_no_monitor
from apps.alerts.sources import accounting, monitors
from apps.runtime.models import Daemon
from tests.access.factories import make_project
from tests.alerts.factories import make_channel, make_incident
from tests.alerts.monitor_harness import Conditions, Rig, told, use_rules, with_source
from tests.jobs.factories import make_job
from yardkit.clock import ManualClock

pytestmark = pytest.mark.django_db
RULE: dict[str, Any] = {"name": "so", "event": "test.condition"}


class Cut(Conditions):
    """Condition source that returns at most two conditions."""

    def now(self, at: datetime) -> Iterator[Occurrence]:
        yield from truncated_to(list(super().now(at)), 2)


def keys(rule: str) -> list[str]:
    return sorted(Incident.objects.open().filter(rule=rule).values_list("key", flat=True))


@pytest.mark.slow("1 s")
def test_what_a_source_leaves_out_neither_opens_nor_recovers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source: Cut = with_source(monkeypatch, Cut())
    use_rules(RULE)
    rig = Rig()
    source.add("b", rig.now())
    source.add("c", rig.now())
    rig.run(5)
    assert keys("so") == ["b", "c"]
    assert rig.monitor.detail()["cut"] == []
    source.so.insert(0, Occurrence("a", None, "a", rig.now(), {"who": "a"}))
    rig.run(120)
    assert keys("so") == ["a", "b", "c"], "c is so all the time, and is not told"
    assert rig.monitor.detail()["cut"] == ["test.condition"]
    del source.so[0]
    rig.run(60)
    assert keys("so") == ["b", "c"]
    assert rig.monitor.detail()["cut"] == []


def test_at_most_says_that_there_is_more() -> None:
    assert list(truncated_to([1, 2], 2)) == [1, 2]
    told = truncated_to([1, 2, 3], 2)
    assert (next(told), next(told)) == (1, 2)
    with pytest.raises(Truncated):
        next(told)


def test_books_of_one_kind_leave_room_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def many(kind: str, number: int) -> Any:
        def found(at: datetime) -> Iterator[Occurrence]:
            for each in range(number):
                yield accounting._unbalanced(kind, f"{kind}:{each}", 1, 1, 2, at, "")

        return found

    for name, number in (("_runs", 5), ("_seeds", 2), ("_routing", 0), ("_requests", 3)):
        monkeypatch.setattr(accounting, name, many(name.strip("_"), number))
    monkeypatch.setattr(accounting, "MOST", 3)
    found: list[Any] = []
    with pytest.raises(Truncated):
        found.extend(
            each.facts["kind"] for each in accounting.AccountingMismatch().now(timezone.now())
        )
    assert found == ["runs"] * 3 + ["seeds"] * 2 + ["requests"] * 3


@pytest.mark.slow("4 s")
def test_what_the_monitor_cannot_ask_is_an_incident() -> None:
    use_rules(builtin=True)
    now = timezone.now()
    rig = Rig(clock=ManualClock(now))
    detail = {"leads": True, "unasked": ["queue.unread"], "cut": ["run.waiting"]}
    Daemon.objects.create(
        kind="monitor", name="one", boot="1", host="h", pid=1, detail=detail, beat_at=now
    )
    # A standby's report is ignored.
    Daemon.objects.create(
        kind="monitor",
        name="two",
        boot="2",
        host="h",
        pid=2,
        detail={"leads": False, "unasked": ["sampling"]},
        beat_at=now,
    )
    rig.run(45)
    assert (keys("monitor blind"), keys("too much to watch")) == ([], ["run.waiting"])
    rig.run(30)
    assert keys("monitor blind") == ["queue.unread"]


def test_a_rule_that_opens_no_more_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MOST_OPEN", 3)
    monkeypatch.setattr(monitors, "MOST_OPEN", 3)
    source: Conditions = with_source(monkeypatch, Conditions())
    use_rules(RULE, {"name": "rule full", "event": "alerts.full"})
    project, rig = make_project(), Rig()
    make_incident(rule="else", project=project)
    for number in range(5):
        source.add(f"k{number}", rig.now(), project=project.pk)
    rig.run(10)
    full = Incident.objects.get(rule="rule full")
    assert (full.project, full.key, full.facts) == (project, "so", {"rule": "so", "count": 3})
    source.so = source.so[:1]
    rig.run(120)
    full.refresh_from_db()
    assert not full.is_open


def test_more_runs_wait_than_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.alerts.sources import runs
    from apps.jobs.models import Run

    monkeypatch.setattr(runs, "MOST", 2)
    now = timezone.now()
    for _number in range(3):
        Run.objects.create(job=make_job(), state="queued", created_at=now - timedelta(hours=1))
    found: list[str] = []
    with pytest.raises(Truncated):
        found.extend(each.id for each in runs.RunWaiting().now(now))
    assert len(found) == 2


@pytest.mark.slow("3 s")
def test_that_nobody_watches_is_found_by_a_worker_and_over_with_the_next_monitor() -> None:
    make_channel(name="ops")
    use_rules(builtin=True, defaults={"tell": ["ops"]})
    now = timezone.now()
    assert open_if_no_monitor(now=now) == 0
    assert open_if_no_monitor(now=now + timedelta(seconds=55)) == 0
    assert open_if_no_monitor(now=now + timedelta(seconds=65)) == 0, "there never was a monitor"
    row = Daemon.objects.create(
        kind="monitor", name="one", boot="1", host="h", pid=1, beat_at=now - timedelta(seconds=5)
    )
    assert open_if_no_monitor(now=now + timedelta(seconds=70)) == 0, "it lives"
    Daemon.objects.update(beat_at=now - timedelta(seconds=30))
    assert open_if_no_monitor(now=now + timedelta(seconds=25)) == 0, "not for a minute"
    for later in (75, 80):
        open_if_no_monitor(now=now + timedelta(seconds=later))
    assert keys("nobody watches") == ["monitor"]
    assert told() == [("opened", "ops")]
    Daemon.objects.filter(pk=row.pk).update(beat_at=timezone.now())
    rig = Rig(clock=ManualClock(now + timedelta(seconds=120)))
    rig.run(60)
    assert keys("nobody watches") == []
    assert told() == [("opened", "ops"), ("recovered", "ops")]


def test_after_an_outage_a_worker_waits_before_it_calls_monitors_dead() -> None:
    use_rules(builtin=True)
    now = timezone.now()
    Daemon.objects.create(
        kind="monitor", name="one", boot="1", host="h", pid=1, beat_at=now - timedelta(hours=1)
    )
    for later in (0, 30, 55):
        assert open_if_no_monitor(now=now + timedelta(seconds=later)) == 0
    assert open_if_no_monitor(now=now + timedelta(seconds=60)) == 1
