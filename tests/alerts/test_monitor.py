"""Monitor daemon: leader election, rule updates, isolation of failing gauges."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from apps.alerts import daemon
from apps.alerts.models import Incident, RuleMute
from apps.alerts.services.retention import prune_incidents
from apps.alerts.states import IncidentState
from apps.queuestats.models import Sample
from apps.runtime.errors import LeaseLost
from apps.runtime.models import WorkerLease
from apps.runtime.services import hold_lease, lease_worker
from tests.alerts.factories import make_channel, make_incident
from tests.alerts.monitor_harness import Conditions, Rig, told, use_rules, with_source
from yardkit.broker import BrokerUnavailable

pytestmark = pytest.mark.django_db

RULE: dict[str, Any] = {"name": "so", "event": "test.condition", "tell": ["ops"]}


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Conditions:
    make_channel(name="ops")
    found: Conditions = with_source(monkeypatch, Conditions())
    return found


def expire() -> None:
    """Expire the lease of the leading monitor."""
    WorkerLease.objects.filter(purpose=daemon.PURPOSE).update(
        expires_at=timezone.now() - timedelta(seconds=1)
    )


def test_of_two_one_leads(source: Conditions) -> None:
    use_rules(RULE)
    one, two = Rig(name="one"), Rig(name="two")
    source.add("a", one.now())
    one.run(20)
    two.run(20)
    assert (one.monitor.leads, two.monitor.leads) == (True, False)
    assert two.monitor.detail()["leads"] is False
    assert told() == [("opened", "ops")]
    one.monitor.teardown()
    two.run(5)
    assert two.monitor.leads
    assert told() == [("opened", "ops")]


def test_one_that_slept_changes_nothing(source: Conditions) -> None:
    use_rules(RULE)
    one, two = Rig(name="one"), Rig(name="two")
    one.run(5)
    expire()
    two.run(5)
    assert two.monitor.leads
    source.add("a", one.now())
    # It still considers itself the leader and runs a pass.
    with pytest.raises(LeaseLost):
        one.monitor.run_pass()
    assert not Incident.objects.exists()
    one.run(5)
    assert not one.monitor.leads
    two.run(5)
    assert Incident.objects.count() == 1


def test_a_renewal_that_failed_is_repeated_at_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    rig.run(5)
    rig.clock.advance(daemon.RENEW_SECONDS)

    def away(**_: Any) -> None:
        raise OperationalError

    with monkeypatch.context() as patch:
        patch.setattr(daemon, "renew_lease", away)
        for _ in range(2):
            with pytest.raises(OperationalError):
                rig.monitor.step()
    rig.monitor.step()
    assert rig.monitor.leads


def test_a_lease_that_somebody_else_has_cannot_be_held() -> None:
    mine = lease_worker(purpose="x", owner="a", ttl=timedelta(seconds=5), numbers=1)
    hold_lease(lease=mine)
    WorkerLease.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    lease_worker(purpose="x", owner="b", ttl=timedelta(seconds=5), numbers=1)
    with pytest.raises(LeaseLost):
        hold_lease(lease=mine)


def test_a_new_version_is_followed_at_once(source: Conditions) -> None:
    use_rules(RULE | {"enabled": False})
    rig = Rig()
    source.add("a", rig.now())
    rig.run(10)
    assert not Incident.objects.exists()
    use_rules(RULE)
    rig.run(5)
    assert Incident.objects.get().version == 2


def test_what_cannot_be_measured_keeps_nothing_else_from_being_watched(
    source: Conditions, caplog: pytest.LogCaptureFixture
) -> None:
    use_rules(RULE)
    rig = Rig()

    def fails(now: datetime) -> None:
        raise RuntimeError("no disk")

    rig.monitor._sample = fails
    source.add("a", rig.now())
    with caplog.at_level(logging.ERROR):
        rig.run(20)
    assert Incident.objects.count() == 1
    errors = [each.message for each in caplog.records if each.levelno >= logging.ERROR]
    assert errors == ["defect in sampling: no disk"]
    assert any(record.exc_info for record in caplog.records)
    # A second without measurements must not be recorded as zeros.
    assert not Sample.objects.exists()


def test_an_outage_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    use_rules()
    rig = Rig()
    outages: list[Exception] = [BrokerUnavailable("refused"), OperationalError("gone")]

    def fails(now: datetime) -> None:
        raise outages[0]

    rig.monitor._sample = fails
    with caplog.at_level(logging.WARNING, logger="apps.alerts"):
        rig.run(20)
    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert (record.exc_info, "refused" in record.message) == (None, True)
    # An unreachable database concerns everything: the daemon's loop logs it and waits.
    outages.pop(0)
    with pytest.raises(OperationalError):
        rig.run(5)


def test_chores_are_done_by_who_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[datetime] = []
    monkeypatch.setattr(daemon, "_monitor_tasks", {})
    daemon.register_monitor_task("yields", done.append, every_seconds=20)
    use_rules()
    one, two = Rig(name="one"), Rig(name="two")
    one.run(60)
    two.run(60)
    assert len(done) == 3


def test_old_incidents_and_mutes_are_forgotten() -> None:
    rig = Rig()
    now = rig.now()
    old = make_incident(state=IncidentState.RECOVERED, ended_at=now - timedelta(days=366))
    kept = make_incident(state=IncidentState.RECOVERED, ended_at=now - timedelta(days=1))
    still = make_incident()
    RuleMute.objects.create(rule="a", until=now - timedelta(hours=1), by="ada")
    RuleMute.objects.create(rule="b", until=now + timedelta(hours=1), by="ada")
    assert prune_incidents(now=now) >= 1
    assert set(Incident.objects.values_list("pk", flat=True)) == {kept.pk, still.pk}
    assert old.pk not in {kept.pk, still.pk}
    assert list(RuleMute.objects.values_list("rule", flat=True)) == ["b"]
