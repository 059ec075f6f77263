"""Acknowledged incidents send nothing more; incidents of deleted projects are kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.alerts.models import Channel, Incident, Notice
from apps.alerts.services.incidents import acknowledge, close, snooze
from apps.alerts.services.retention import prune_incidents
from apps.alerts.services.texts import message_of, where_text
from apps.alerts.states import IncidentState, NoticeKind, NoticeState, RecoveryReason
from apps.projects.services import delete_project, purge_projects
from tests.access.factories import make_project, make_superuser, make_user
from tests.alerts.factories import NOW, make_channel, make_incident, make_notice
from tests.alerts.monitor_harness import Conditions, Rig, story, use_rules, with_source
from yardkit.clock import ManualClock

pytestmark = pytest.mark.django_db
# Quiet hours are 22:00 to 07:00; the time is 23:00.
NIGHT = datetime(2026, 3, 1, 23, 0, tzinfo=UTC)
RULE: dict[str, Any] = {
    "name": "so",
    "event": "test.condition",
    "tell": ["ops"],
    "quiet": "night",
    "escalate": [{"after_seconds": 60, "tell": ["boss"]}],
}
QUIET = {"night": {"from": "22:00", "to": "07:00"}}


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Conditions:
    make_channel(name="ops")
    make_channel(name="boss")
    found: Conditions = with_source(monkeypatch, Conditions())
    return found


def at_night(source: Conditions) -> Rig:
    """Open and escalate an incident in quiet hours; both notifications are deferred."""
    use_rules(RULE, quiet_hours=QUIET)
    rig = Rig(clock=ManualClock(NIGHT))
    source.add("a", rig.now())
    rig.run(120)
    assert states() == {"opened": NoticeState.WAITING, "escalated": NoticeState.WAITING}
    return rig


def states() -> dict[str, str]:
    return dict(Notice.objects.values_list("kind", "state"))


def test_who_has_acknowledged_it_at_night_escalates_no_more(source: Conditions) -> None:
    rig = at_night(source)
    acknowledge(incident=Incident.objects.get(), actor=make_user(), now=rig.now())
    assert states() == {"opened": NoticeState.WAITING, "escalated": NoticeState.DROPPED}


def test_closed_at_night_nobody_hears_of_it_in_the_morning(source: Conditions) -> None:
    rig = at_night(source)
    close(incident=Incident.objects.get(), actor=make_user(), now=rig.now())
    assert set(states().values()) == {NoticeState.DROPPED}


def test_snoozed_at_night_everybody_hears_of_it_when_that_is_over(source: Conditions) -> None:
    rig = at_night(source)
    until = NIGHT.replace(day=2, hour=9)
    snooze(incident=Incident.objects.get(), until=until, actor=make_user(), now=rig.now())
    assert set(states().values()) == {NoticeState.DROPPED}
    rig.clock.advance((until - rig.now()).total_seconds() - 5)
    rig.run(5)
    assert {row.channel_name for row in Notice.objects.filter(kind="repeated")} == {"ops", "boss"}


def test_what_a_person_sends_again_goes_out_all_the_same() -> None:
    incident, channel = make_incident(), make_channel()
    first = make_notice(incident=incident, channel=channel, state=NoticeState.FAILED)
    again = make_notice(incident=incident, channel=channel, resent_of=first)
    close(incident=incident, actor=make_user(), now=NOW)
    again.refresh_from_db()
    assert again.state == NoticeState.WAITING


def test_since_when_is_when_it_began_and_not_when_the_rule_had_waited(source: Conditions) -> None:
    late = {"when": {"for_seconds": 60}, "escalate": [], "description": "Call\nAda."}
    use_rules(RULE | late, quiet_hours=QUIET)
    rig = Rig(clock=ManualClock(NIGHT))
    source.add("a", NIGHT - timedelta(minutes=10))
    rig.run(5)
    found = Incident.objects.get()
    assert (found.began_at, found.opened_at) == (NIGHT - timedelta(minutes=10), rig.now())
    lines = message_of(Notice.objects.get(), Channel.objects.get(name="ops")).lines
    assert "Since: 2026-03-01 22:50:00 UTC" in lines
    assert "What to do: Call Ada." in lines


def test_a_project_that_is_deleted_leaves_its_history(source: Conditions) -> None:
    project, actor = make_project(name="shop"), make_superuser()
    mine = make_channel(name="mine", project=project)
    over = make_incident(project=project, state=IncidentState.CLOSED, ended_at=NOW)
    still = make_incident(project=project, rule="same", key="router")
    # Without their projects, both open incidents would have the same unique key.
    of_platform = make_incident(rule="same", key="router")
    waiting = make_notice(incident=still, channel=mine)
    delete_project(actor=actor, project=project)
    for row in (still, waiting):
        row.refresh_from_db()
    assert (still.state, waiting.state) == (IncidentState.RECOVERED, NoticeState.DROPPED)
    purge_projects(now=timezone.now() + timedelta(days=40))
    for row in (over, still, of_platform, waiting):
        row.refresh_from_db()
    assert (over.project, where_text(over), over.state) == (None, "shop", IncidentState.CLOSED)
    assert (still.state, where_text(still)) == (IncidentState.RECOVERED, "shop")
    assert still.notes.get().detail == {"why": RecoveryReason.PROJECT_GONE}
    assert (waiting.state, waiting.channel) == (NoticeState.DROPPED, None)
    assert (of_platform.is_open, where_text(of_platform)) == (True, "the platform")
    assert not Channel.objects.filter(name="mine").exists()
    assert AuditRecord.objects.get(action="projects.delete_project")


def test_the_setting_says_how_long_incidents_are_kept(settings: Any) -> None:
    settings.ALERT_DAYS = 7
    old = make_incident(state=IncidentState.RECOVERED, ended_at=NOW - timedelta(days=8))
    make_notice(incident=old, kind=NoticeKind.RECOVERED, state=NoticeState.SENT)
    kept = make_incident(state=IncidentState.RECOVERED, ended_at=NOW - timedelta(days=6))
    prune_incidents(now=NOW)
    assert list(Incident.objects.all()) == [kept]
    assert not Notice.objects.exists()
    assert story(kept) == []
