"""Creation of notifications: which channel gets which kind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.alerts.errors import NoticePending
from apps.alerts.models import Notice
from apps.alerts.queries import count_open_incidents, open_incidents
from apps.alerts.services.notices import (
    notified_channels,
    notify,
    prune_notices,
    resend,
    send_test,
    wake_delivery_workers,
)
from apps.alerts.states import IncidentState, NoticeKind, NoticeProblem, NoticeState, Severity
from tests.access.factories import make_superuser, make_user
from tests.alerts.factories import NOW, make_channel, make_incident, make_notice
from tests.jobs.factories import make_project

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(hours=8)


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect the channels whose delivery was started."""
    found: list[Any] = []

    def defer(_name: str, *, queue: str, channel: int | None) -> None:
        assert queue == "celery.tasks"
        found.append(channel)

    monkeypatch.setattr("apps.alerts.services.notices.defer", defer)
    return found


def test_a_projects_own_channel_goes_before_the_platforms(woken: list[Any]) -> None:
    project, other = make_project(), make_project()
    platform = make_channel(name="ops")
    own = make_channel(name="ops", project=project)
    make_channel(name="ops", project=other)
    shared = make_channel(name="oncall")
    told = notify(
        incident=make_incident(project=project),
        kind=NoticeKind.OPENED,
        channels=["ops", "oncall", "ops"],
        now=NOW,
    )
    assert [each.channel for each in told] == [own, shared]
    assert {each.project for each in told} == {project}
    assert woken == [own.pk, shared.pk]
    told = notify(incident=make_incident(), kind=NoticeKind.OPENED, channels=["ops"], now=NOW)
    assert [each.channel for each in told] == [platform]


def test_a_channel_that_is_gone_or_off_is_no_secret(woken: list[Any]) -> None:
    make_channel(name="off", enabled=False)
    told = notify(
        incident=make_incident(), kind=NoticeKind.OPENED, channels=["gone", "off"], now=NOW
    )
    assert [(each.state, each.problem) for each in told] == [
        (NoticeState.FAILED, NoticeProblem.NO_CHANNEL),
        (NoticeState.FAILED, NoticeProblem.OFF),
    ]
    assert woken == []


def test_quiet_hours_hold_it_and_what_is_over_by_then_is_told_to_nobody(woken: list[Any]) -> None:
    channel, incident = make_channel(name="ops"), make_incident()
    (held,) = notify(
        incident=incident, kind=NoticeKind.OPENED, channels=["ops"], now=NOW, not_before=LATER
    )
    assert (held.state, held.next_try_at, held.not_before) == (NoticeState.WAITING, LATER, LATER)
    assert woken == []
    assert wake_delivery_workers(now=NOW) == 0
    told = notify(incident=incident, kind=NoticeKind.RECOVERED, channels=["ops"], now=NOW)
    held.refresh_from_db()
    assert (told, held.state) == ([], NoticeState.DROPPED)
    # Without a recovery it is sent when the quiet hours end.
    notify(
        incident=make_incident(),
        kind=NoticeKind.OPENED,
        channels=["ops"],
        now=NOW,
        not_before=LATER,
    )
    assert wake_delivery_workers(now=LATER) == 1
    assert woken == [channel.pk]


def test_recovery_is_told_to_those_who_heard(woken: list[Any]) -> None:
    incident = make_incident()
    for name in ("ops", "oncall", "never"):
        make_channel(name=name)
    notify(incident=incident, kind=NoticeKind.OPENED, channels=["ops"], now=NOW)
    notify(incident=incident, kind=NoticeKind.ESCALATED, channels=["oncall"], now=NOW)
    Notice.objects.update(state=NoticeState.SENT)
    assert notified_channels(incident) == ["oncall", "ops"]
    told = notify(
        incident=incident, kind=NoticeKind.RECOVERED, channels=["ops", "oncall", "never"], now=NOW
    )
    assert [each.channel_name for each in told] == ["ops", "oncall"]


def test_a_person_sends_it_again(woken: list[Any]) -> None:
    person, notice = make_superuser(), make_notice()
    with pytest.raises(NoticePending):
        resend(notice=notice, actor=person, now=NOW)
    Notice.objects.update(state=NoticeState.FAILED)
    notice.refresh_from_db()
    again = resend(notice=notice, actor=person, now=LATER)
    assert (again.resent_of, again.state) == (notice, NoticeState.WAITING)
    assert (again.channel, again.incident) == (notice.channel, notice.incident)
    assert AuditRecord.objects.get().action == "alerts.resend_notice"
    assert woken == [notice.channel_id]


def test_tests_are_sent_also_by_channels_that_are_off_and_forgotten(woken: list[Any]) -> None:
    channel = make_channel(enabled=False)
    notice = send_test(channel=channel, actor=make_superuser(), now=NOW)
    assert (notice.incident, notice.state) == (None, NoticeState.WAITING)
    assert woken == [channel.pk]
    assert prune_notices(now=NOW + timedelta(days=40)) == 0, "it has not ended"
    Notice.objects.update(state=NoticeState.SENT)
    assert prune_notices(now=NOW + timedelta(days=40)) == 1


def test_open_incidents_the_worst_first(django_assert_num_queries: Any) -> None:
    project = make_project()
    person = make_user(roles={})
    warning = make_incident(project=project)
    critical = make_incident(severity=Severity.CRITICAL, opened_at=NOW - timedelta(hours=1))
    make_incident(state=IncidentState.RECOVERED)
    acknowledged = make_incident(severity=Severity.INFO, acknowledged_at=NOW)
    root = make_superuser()
    with django_assert_num_queries(1):
        found = open_incidents(root)
        assert [each.project for each in found] == [None, project, None]
    assert found == [critical, warning, acknowledged]
    assert open_incidents(person) == []
    assert count_open_incidents(root) == {"info": 0, "warning": 1, "critical": 1}
