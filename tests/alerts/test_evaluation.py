"""Incidents of series and conditions: opening, notifications, recovery."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.alerts.engine.events import Occurrence, StateUnknown
from apps.alerts.errors import IncidentEnded, SnoozeOutOfRange
from apps.alerts.models import Incident, Notice, OngoingCondition
from apps.alerts.services import evaluation
from apps.alerts.services.condition_starts import prune_starts
from apps.alerts.services.incidents import acknowledge, close, snooze
from apps.alerts.services.mutes import mute_rule, unmute_rule
from apps.alerts.states import IncidentState, NoticeState, RecoveryReason
from apps.runtime.models import WorkerLease
from tests.access.factories import make_project, make_user
from tests.alerts.factories import make_channel
from tests.alerts.monitor_harness import Conditions, Rig, story, told, use_rules, with_source

pytestmark = pytest.mark.django_db

DEPTH: dict[str, Any] = {
    "name": "depth",
    "series": "queue.ready",
    "label": "logs*",
    "when": {"above": 10, "for_seconds": 30},
    "recover": {"below": 8, "for_seconds": 10},
    "tell": ["ops"],
}
LOGS = ("queue.ready", None, "logs")


@pytest.fixture(autouse=True)
def channels() -> None:
    make_channel(name="ops")
    make_channel(name="boss")


def incident(**fields: Any) -> Incident:
    return Incident.objects.get(**fields)


@pytest.mark.slow("4 s")
@pytest.mark.covers("S4.27")
def test_it_opens_once_is_told_once_and_recovers() -> None:
    use_rules(DEPTH)
    rig = Rig(gauges={LOGS: 5, ("queue.ready", None, "other"): 99})
    rig.run(60)
    assert not Incident.objects.exists()
    rig.gauges[LOGS] = 11
    rig.run(30)
    assert not Incident.objects.exists()
    rig.run(5)
    opened = incident()
    assert (opened.rule, opened.key, opened.value) == ("depth", "logs", 11)
    assert (opened.version, opened.by_platform, opened.project) == (1, True, None)
    assert opened.condition == {"above": 10, "for_seconds": 30}
    rig.run(300)
    assert (incident().count, told()) == (1, [("opened", "ops")])
    # Between alert and recovery threshold the incident stays open.
    rig.gauges[LOGS] = 9
    rig.run(60)
    assert incident().is_open
    rig.gauges[LOGS] = 7
    rig.run(15)
    ended = incident()
    assert (ended.state, ended.value) == (IncidentState.RECOVERED, 7)
    assert story(ended) == ["opened", "recovered"]
    assert ended.notes.get(what="recovered").detail == {"why": RecoveryReason.WELL}
    assert told() == [("opened", "ops"), ("recovered", "ops")]


@pytest.mark.slow("5 s")
def test_what_comes_back_soon_is_the_same_story() -> None:
    use_rules(DEPTH)
    rig = Rig(gauges={LOGS: 11})
    rig.run(40)
    rig.gauges[LOGS] = 1
    rig.run(20)
    rig.gauges[LOGS] = 12
    rig.run(40)
    again = incident()
    assert (again.is_open, again.reopened, again.count) == (True, 1, 2)
    assert story(again) == ["opened", "recovered", "reopened"]
    rig.gauges[LOGS] = 1
    rig.run(20)
    rig.run(700)
    rig.gauges[LOGS] = 12
    rig.run(40)
    assert Incident.objects.count() == 2


def test_a_monitor_that_was_away_knows_nothing_of_the_time_between() -> None:
    use_rules(DEPTH)
    rig = Rig(gauges={LOGS: 11})
    rig.run(40)
    rig.clock.advance(600)
    rig.run(5)
    assert incident().is_open
    fresh = Rig(clock=rig.clock, gauges={LOGS: 11})
    Incident.objects.update(state=IncidentState.RECOVERED, ended_at=rig.now() - timedelta(hours=1))
    fresh.clock.advance(120)
    fresh.run(25)
    # The value must be above the threshold for 30 s of observed time.
    assert not Incident.objects.open().exists()


@pytest.mark.slow("6 s")
def test_what_is_gone_recovers_when_others_are_measured() -> None:
    use_rules(DEPTH)
    rig = Rig(gauges={LOGS: 11})
    rig.run(40)
    del rig.gauges[LOGS]
    rig.run(300)
    assert incident().is_open
    rig.run(400)
    assert incident().notes.get(what="recovered").detail == {"why": RecoveryReason.GONE}


@pytest.mark.slow("6 s")
def test_it_escalates_and_repeats_until_somebody_takes_it() -> None:
    use_rules(
        DEPTH
        | {
            "escalate": [{"after_seconds": 60, "tell": ["boss"], "severity": "critical"}],
            "repeat_seconds": 120,
        }
    )
    rig = Rig(gauges={LOGS: 11})
    rig.run(35)
    rig.run(70)
    assert told() == [("opened", "ops"), ("escalated", "boss")]
    assert incident().severity == "critical"
    rig.run(130)
    assert told()[2:] == [("repeated", "ops"), ("repeated", "boss")]
    person = make_user(username="ada")
    acknowledge(incident=incident(), actor=person, now=rig.now(), note="on it")
    rig.run(600)
    assert len(told()) == 4
    rig.gauges[LOGS] = 1
    rig.run(20)
    assert sorted(told()[4:]) == [("recovered", "boss"), ("recovered", "ops")]
    assert AuditRecord.objects.get(action="alerts.acknowledge").note == "on it"
    with pytest.raises(IncidentEnded):
        acknowledge(incident=incident(), actor=person, now=rig.now())


@pytest.mark.slow("2 s")
def test_snoozed_nobody_is_told_until_then() -> None:
    use_rules(DEPTH | {"repeat_seconds": 60})
    rig = Rig(gauges={LOGS: 11})
    rig.run(40)
    person = make_user(username="ada")
    with pytest.raises(SnoozeOutOfRange):
        snooze(incident=incident(), until=rig.now(), actor=person, now=rig.now())
    until = rig.now() + timedelta(seconds=300)
    snooze(incident=incident(), until=until, actor=person, now=rig.now())
    rig.run(290)
    assert told() == [("opened", "ops")]
    rig.run(15)
    assert told() == [("opened", "ops"), ("repeated", "ops")]
    assert incident().snoozed_until is None


@pytest.mark.slow("9 s")
def test_closed_by_a_person_it_opens_again_only_after_it_was_well() -> None:
    use_rules(DEPTH)
    rig = Rig(gauges={LOGS: 11})
    rig.run(40)
    close(incident=incident(), actor=make_user(username="ada"), now=rig.now())
    rig.run(900)
    assert (Incident.objects.count(), incident().state) == (1, IncidentState.CLOSED)
    assert told() == [("opened", "ops")]
    rig.gauges[LOGS] = 1
    rig.run(320)
    rig.gauges[LOGS] = 11
    rig.run(40)
    assert Incident.objects.open().count() == 1
    assert Incident.objects.count() == 2


@pytest.mark.slow("2 s")
def test_in_quiet_hours_notices_wait() -> None:
    # The current time is noon.
    hours = {"noon": {"from": "11:00", "to": "13:00", "except": ["critical"]}}
    use_rules(DEPTH | {"quiet": "noon", "repeat_seconds": 60}, quiet_hours=hours)
    rig = Rig(gauges={LOGS: 11})
    rig.run(300)
    (notice,) = Notice.objects.all()
    assert notice.state == NoticeState.WAITING
    assert notice.next_try_at is not None
    assert notice.next_try_at.hour == 13
    rig.gauges[LOGS] = 1
    rig.run(20)
    notice.refresh_from_db()
    assert (notice.state, Notice.objects.count()) == (NoticeState.DROPPED, 1)


@pytest.mark.slow("1 s")
def test_of_a_muted_rule_nobody_is_told() -> None:
    use_rules(DEPTH)
    person = make_user(username="ada")
    rig = Rig(gauges={LOGS: 11})
    until = rig.now() + timedelta(hours=1)
    mute_rule(rule="depth", project_id=None, until=until, actor=person, now=rig.now())
    rig.run(40)
    assert incident().is_open
    assert told() == []
    use_rules(DEPTH | {"repeat_seconds": 60})
    rig.run(70)
    assert told() == []
    assert unmute_rule(rule="depth", project_id=None, actor=person)
    assert not unmute_rule(rule="depth", project_id=None, actor=person)
    rig.run(5)
    assert told() == [("opened", "ops")]
    rig.run(70)
    assert told()[1:] == [("repeated", "ops")]


@pytest.mark.slow("15 s")
def test_who_snoozes_into_quiet_hours_is_told_after_them() -> None:
    hours = {"noon": {"from": "12:05", "to": "12:30"}}
    use_rules(DEPTH | {"quiet": "noon"}, quiet_hours=hours)
    rig = Rig(gauges={LOGS: 11})
    rig.run(40)
    until = rig.now() + timedelta(minutes=10)
    snooze(incident=incident(), until=until, actor=make_user(username="ada"), now=rig.now())
    rig.run(15 * 60)
    assert told() == [("opened", "ops")]
    rig.run(15 * 60)
    assert told() == [("opened", "ops"), ("repeated", "ops")]
    rig.run(600)
    assert len(told()) == 2


@pytest.mark.slow("1 s")
def test_that_it_is_over_is_told_to_who_heard_that_it_had_come_back() -> None:
    use_rules(DEPTH)
    rig = Rig(gauges={LOGS: 11})
    rig.run(40)
    rig.gauges[LOGS] = 1
    rig.run(20)
    assert [kind for kind, _channel in told()] == ["opened", "recovered"]
    person = make_user(username="ada")
    until = rig.now() + timedelta(hours=1)
    mute_rule(rule="depth", project_id=None, until=until, actor=person, now=rig.now())
    rig.gauges[LOGS] = 12
    rig.run(40)
    assert incident().reopened == 1
    rig.gauges[LOGS] = 1
    rig.run(20)
    assert not incident().is_open
    # No channel was notified of the reopening.
    assert [kind for kind, _channel in told()] == ["opened", "recovered"]


def test_rules_of_projects_see_their_own_and_go_first() -> None:
    one, two = make_project(), make_project()
    use_rules(DEPTH)
    use_rules(DEPTH | {"when": {"above": 100}}, project=one.pk)
    rig = Rig(gauges={("queue.ready", one.pk, "logs"): 50, ("queue.ready", two.pk, "logs"): 50})
    rig.run(60)
    found = incident()
    assert (found.project, found.by_platform) == (two, True)
    rig.gauges["queue.ready", one.pk, "logs"] = 101
    rig.run(5)
    mine = incident(project=one)
    assert (mine.by_platform, mine.version) == (False, 1)


def test_without_its_rule_an_incident_is_over() -> None:
    use_rules(DEPTH)
    rig = Rig(gauges={LOGS: 11})
    rig.run(40)
    use_rules()
    rig.run(5)
    assert incident().notes.get(what="recovered").detail == {"why": RecoveryReason.RULE_GONE}


def test_one_rule_opens_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MOST_OPEN", 3)
    use_rules(DEPTH)
    rig = Rig(gauges={("queue.ready", None, f"logs{n}"): 11 for n in range(9)})
    rig.run(60)
    assert Incident.objects.open().count() == 3


# --- conditions --------------------------------------------------------------------------------

SO: dict[str, Any] = {
    "name": "so",
    "event": "test.condition",
    "when": {"for_seconds": 30},
    "tell": ["ops"],
}


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Conditions:
    found: Conditions = with_source(monkeypatch, Conditions())
    return found


def test_a_condition_is_open_while_it_is_listed(source: Conditions) -> None:
    use_rules(SO)
    rig = Rig()
    source.add("a", rig.now())
    rig.run(25)
    assert not Incident.objects.exists()
    rig.run(10)
    assert (incident().key, incident().facts) == ("a", {"who": "a"})
    rig.run(60)
    source.so.clear()
    rig.run(15)
    assert incident().is_open
    rig.run(20)
    assert incident().state == IncidentState.RECOVERED


@pytest.mark.slow("1 s")
def test_a_source_that_knows_no_beginning_fires_after_for_seconds(source: Conditions) -> None:
    use_rules(SO)
    rig = Rig()
    for _look in range(6):
        source.so.clear()
        source.add("a", rig.now() + timedelta(seconds=5))
        rig.run(5)
    assert not Incident.objects.exists()
    # Another monitor continues the count.
    WorkerLease.objects.all().delete()
    second = Rig(clock=rig.clock, name="two")
    for _look in range(20):
        source.so.clear()
        source.add("a", rig.now() + timedelta(seconds=5))
        second.run(5)
    assert incident().is_open
    assert second.now() - incident().seen_at <= timedelta(seconds=15)
    source.so.clear()
    second.run(40)
    assert not incident().is_open
    assert not OngoingCondition.objects.exists()


def test_the_time_in_which_nobody_looked_does_not_count(source: Conditions) -> None:
    use_rules(SO)
    rig = Rig()
    source.add("a", rig.now() + timedelta(seconds=5))
    rig.run(10)
    rig.clock.advance(600)
    source.so.clear()
    source.add("a", rig.now() + timedelta(seconds=5))
    rig.run(5)
    assert not Incident.objects.exists()
    OngoingCondition.objects.update(seen_at=rig.now() - timedelta(days=2))
    assert prune_starts(now=rig.now()) == 1


def test_what_is_told_of_an_open_condition_is_what_is_so_now(source: Conditions) -> None:
    use_rules(SO)
    rig = Rig()
    source.so.append(Occurrence("a", None, "a", rig.now(), {"who": "one"}))
    rig.run(40)
    source.so[:] = [Occurrence("a", None, "a", rig.now(), {"who": "two"})]
    rig.run(20)
    assert incident().facts == {"who": "two"}


def test_a_project_in_trouble_silences_no_other(
    source: Conditions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "MOST_OPEN", 2)
    use_rules(SO | {"when": {"for_seconds": 0}})
    one, two = make_project(), make_project()
    rig = Rig()
    for number in range(5):
        source.add(f"a{number}", rig.now(), project=one.pk)
    source.add("b", rig.now(), project=two.pk)
    rig.run(5)
    assert Incident.objects.filter(project=one).count() == 2
    assert Incident.objects.filter(project=two).count() == 1


@pytest.mark.slow("7 s")
def test_looks_cost_no_more_with_many_open_incidents(
    source: Conditions, django_assert_max_num_queries: Any
) -> None:
    use_rules(SO | {"when": {"for_seconds": 10}}, DEPTH)
    rig = Rig(gauges={("queue.ready", None, f"logs{n}"): 11.0 for n in range(60)})
    for number in range(60):
        source.add(f"a{number}", rig.now())
    rig.run(60)
    assert Incident.objects.open().count() == 120
    rig.gauges.clear()
    with django_assert_max_num_queries(60):
        rig.run(5)
    with django_assert_max_num_queries(60):
        rig.run(5)


@pytest.mark.slow("5 s")
@pytest.mark.parametrize("error", [StateUnknown(), RuntimeError("no answer")])
def test_a_source_that_cannot_tell_changes_nothing(source: Conditions, error: Exception) -> None:
    use_rules(SO, DEPTH)
    rig = Rig(gauges={LOGS: 11})
    source.add("a", rig.now() - timedelta(minutes=1))
    rig.run(40)
    assert Incident.objects.open().count() == 2
    source.error = error
    rig.run(300)
    assert Incident.objects.open().count() == 2
    assert rig.monitor.detail()["unasked"] == (
        [] if isinstance(error, StateUnknown) else ["test.condition"]
    )
