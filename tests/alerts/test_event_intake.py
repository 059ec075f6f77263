"""Events are processed exactly once despite kills, delays and duplicates."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.alerts.models import Incident, ProcessedEvent, SourceMark
from apps.alerts.services import event_intake
from apps.alerts.services.event_intake import KEEP_SEEN, prune_seen
from apps.alerts.states import RecoveryReason
from tests.access.factories import make_project
from tests.alerts.factories import make_channel
from tests.alerts.monitor_harness import Events, Rig, story, told, use_rules, with_source
from yardkit import failpoints
from yardkit.failpoints import FailpointError

pytestmark = pytest.mark.django_db

RULE: dict[str, Any] = {"name": "it", "event": "test.event", "tell": ["ops"]}


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Events:
    make_channel(name="ops")
    found: Events = with_source(monkeypatch, Events())
    return found


@pytest.fixture
def rig(source: Events) -> Rig:
    use_rules(RULE)
    rig = Rig()
    rig.run(5)
    return rig


def incident(**fields: Any) -> Incident:
    return Incident.objects.get(**fields)


def test_the_second_joins_the_incident_of_the_first(source: Events, rig: Rig) -> None:
    source.add(1, rig.now())
    rig.run(30)
    assert (incident().count, told()) == (1, [("opened", "ops")])
    source.add(2, rig.now())
    source.add(3, rig.now())
    rig.run(30)
    assert (incident().count, len(told())) == (3, 1)
    source.add(4, rig.now(), key="other")
    rig.run(5)
    assert Incident.objects.count() == 2


def test_what_happened_before_anybody_watched_is_no_alarm(source: Events, rig: Rig) -> None:
    source.add(1, rig.now() - timedelta(seconds=30))
    rig.run(30)
    assert not Incident.objects.exists()


def test_a_burst_that_was_over_long_before_the_last_event_is_seen(source: Events, rig: Rig) -> None:
    use_rules(RULE | {"when": {"times": 3, "in_seconds": 60}})
    began = rig.now()
    for number, seconds in enumerate((10, 20, 30, 500)):
        source.add(number, began + timedelta(seconds=seconds))
    # No monitor was running.
    rig.clock.advance(600)
    rig.run(10)
    assert incident().count == 4


def test_a_project_in_trouble_silences_no_other(
    source: Events, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_intake, "MOST_OPEN", 2)
    one, two = make_project(), make_project()
    for number in range(5):
        source.add(number, rig.now(), key=f"a{number}", project=one.pk)
    source.add(9, rig.now(), key="b", project=two.pk)
    rig.run(5)
    assert Incident.objects.filter(project=one).count() == 2
    assert Incident.objects.filter(project=two).count() == 1


@pytest.mark.slow("5 s")
def test_what_is_committed_late_is_not_missed(source: Events, rig: Rig) -> None:
    rig.run(900)
    source.add(2, rig.now())
    rig.run(30)
    # Its transaction began nine minutes ago and has just committed.
    source.add(1, rig.now() - timedelta(minutes=9))
    rig.run(5)
    assert incident().count == 2


def test_a_monitor_that_was_away_reads_what_it_missed(source: Events, rig: Rig) -> None:
    source.add(1, rig.now() + timedelta(minutes=30))
    rig.clock.advance(7200)
    rig.run(5)
    assert incident().count == 1


def test_it_is_over_when_the_source_says_so_or_after_a_quiet_time(source: Events) -> None:
    use_rules(RULE | {"recover": {"quiet_seconds": 60}})
    rig = Rig()
    rig.run(5)
    source.add(1, rig.now(), key="a")
    source.add(2, rig.now(), key="b")
    rig.run(10)
    source.well.add("a")
    rig.run(15)
    ended = incident(key="a")
    assert ended.notes.get(what="recovered").detail == {"why": RecoveryReason.WELL}
    assert incident(key="b").is_open
    rig.run(60)
    assert incident(key="b").notes.get(what="recovered").detail == {"why": RecoveryReason.QUIET}


def test_so_many_times_in_so_many_seconds(source: Events) -> None:
    use_rules(RULE | {"when": {"times": 3, "in_seconds": 60}})
    rig = Rig()
    rig.run(5)
    source.add(1, rig.now())
    rig.run(50)
    source.add(2, rig.now())
    rig.run(20)
    source.add(3, rig.now())
    rig.run(5)
    # The first is 70 s old by then.
    assert not Incident.objects.exists()
    source.add(4, rig.now())
    rig.run(5)
    assert incident().count == 1
    source.add(5, rig.now())
    rig.run(5)
    assert incident().count == 2


def test_rules_match_facts_and_projects(source: Events) -> None:
    one, two = make_project(), make_project()
    use_rules(RULE | {"match": {"who": "n*"}}, project=one.pk)
    use_rules()
    rig = Rig()
    rig.run(5)
    for number, (key, project) in enumerate([("news", one.pk), ("x", one.pk), ("news", two.pk)]):
        source.add(number, rig.now(), key=key, project=project)
    rig.run(5)
    assert incident().project == one


def test_half_done_is_not_done(source: Events, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    source.add(1, rig.now())
    hits = iter([FailpointError("first time")])

    def hit(name: str) -> None:
        error = next(hits, None) if name == "alerts.events_before_commit" else None
        if error is not None:
            raise error

    monkeypatch.setattr(failpoints, "hit", hit)
    rig.clock.advance(5)
    with pytest.raises(FailpointError):
        rig.monitor.step()
    assert not ProcessedEvent.objects.exists()
    assert not Incident.objects.exists()
    rig.run(10)
    assert (incident().count, told(), story(incident())) == (1, [("opened", "ops")], ["opened"])


def test_what_was_seen_is_forgotten_when_nobody_tells_of_it(source: Events, rig: Rig) -> None:
    source.add(1, rig.now())
    rig.run(5)
    assert prune_seen(now=rig.now()) == 0
    assert prune_seen(now=rig.now() + KEEP_SEEN + timedelta(seconds=1)) == 1
    assert SourceMark.objects.get(source="test.event").began_at < rig.now()
