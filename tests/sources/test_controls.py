"""Start, stop, marker, cron, auto-start, and settings changed during an import."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.sources.engine import harvester
from apps.sources.engine.progress import COMPLETE, EndReason
from apps.sources.errors import (
    BadCredential,
    BadMarker,
    CredentialInUse,
    NoSuchSource,
    SourceBusy,
    SourceDisabled,
)
from apps.sources.models import Credential, SourceState
from apps.sources.queries import status, statuses
from apps.sources.services import (
    CommandOutcome,
    delete_credential,
    save_credential,
    set_marker,
    start,
    stop,
)
from apps.sources.states import STATE_OF, HarvestState, Reason, SourceActivity
from tests.access.factories import make_user
from tests.sources.collector_setup import CollectorHarness
from tests.sources.octoparse_double import OctoparseDouble

MakeYard = Callable[..., CollectorHarness]


def test_states_say_what_the_engine_says() -> None:
    assert {each.value for each in EndReason} == {each.value for each in Reason}
    assert set(STATE_OF) == set(Reason)
    for why in COMPLETE:
        assert STATE_OF[Reason(why.value)] is HarvestState.COMPLETED


@pytest.mark.covers("S0.20")
def test_start_and_stop_say_what_became_of_each_source(harness: CollectorHarness) -> None:
    person = make_user()
    where: dict[str, Any] = {
        "project_id": harness.project.pk,
        "actor": person,
        "now": harness.clock.now(),
    }
    assert [each.became for each in start(**where)] == [CommandOutcome.QUEUED]
    assert harness.state.asked_by == person.username
    assert [each.became for each in start(**where)] == [CommandOutcome.ALREADY]
    assert [each.became for each in stop(**where)] == [CommandOutcome.STOPPED]
    assert (harness.state.activity, harness.state.stopped_by) == ("idle", person.username)
    start(**where)
    assert harness.state.stopped_at is None
    # A running import ends after its batch, unless a start withdraws the stop.
    SourceState.objects.update(activity=SourceActivity.RUNNING)
    assert [each.became for each in stop(**where)] == [CommandOutcome.STOPPING]
    assert [each.became for each in start(**where)] == [CommandOutcome.ALREADY]
    assert harness.state.activity == SourceActivity.RUNNING
    actions = AuditRecord.objects.filter(action__startswith="sources.st").values_list("action")
    assert len(actions) == 6
    with pytest.raises(NoSuchSource):
        start(names=["news", "olds"], **where)
    with pytest.raises(NoSuchSource):
        stop(names=["olds"], **where)
    harness.configure(enabled=False)
    assert start(**where) == []
    with pytest.raises(SourceDisabled):
        start(names=["news"], **where)


@pytest.mark.covers("S0.26", "S0.29")
def test_a_collector_begins_with_what_has_auto_start_and_is_enabled(
    make_yard: MakeYard, double: OctoparseDouble
) -> None:
    double.total = 10
    harness = make_yard()
    base = {**harness.fields, "auto_start": True}
    harness.apply(
        {
            "sources": {
                "news": base,
                "sport": base,
                "off": {**base, "enabled": False},
                "later": {**base, "auto_start": False},
                "held": base,
            }
        }
    )
    stop(project_id=harness.project.pk, names=["held"], actor=None, now=harness.clock.now())
    harness.collector().step()
    found = {each.name: each.harvest for each in statuses(harness.project.pk)}
    assert {name for name, harvest in found.items() if harvest is not None} == {"news", "sport"}
    assert {each.state for each in found.values() if each is not None} == {"completed"}
    # The same collector starts it only once.
    harness.collectors[-1].step()
    assert found == {each.name: each.harvest for each in statuses(harness.project.pk)}


def test_a_source_begins_when_it_is_added_or_switched_on(
    make_yard: MakeYard, double: OctoparseDouble
) -> None:
    double.total = 10
    harness = make_yard(enabled=False, auto_start=True)
    collector = harness.collector()
    collector.step()
    assert status(harness.project.pk, "news").harvest is None
    harness.configure(enabled=True)
    harness.clock.shift += timedelta(seconds=1)
    collector.step()
    assert harness.newest.published == 10
    harness.configure(filter_days=6)
    harness.clock.shift += timedelta(seconds=1)
    collector.step()
    assert harness.newest.config_version == 2


def test_cron_starts_a_source_once_for_all_collectors(
    make_yard: MakeYard, double: OctoparseDouble
) -> None:
    harness = make_yard(cron="0 20 * * *", time_zone="Asia/Shanghai")
    double.total = 10
    one, two = harness.collector("one"), harness.collector("two")
    one.step()
    two.step()
    # In Shanghai it is 20:00 on the 16th.
    assert harness.state.next_run_at is not None
    assert harness.state.next_run_at.isoformat() == "2026-01-17T12:00:00+00:00"
    assert status(harness.project.pk, "news").harvest is None
    harness.clock.shift += timedelta(days=2)
    one.step()
    two.step()
    assert (harness.newest.asked_by, harness.newest.published) == ("cron", 10)
    assert harness.state.next_run_at.isoformat() == "2026-01-19T12:00:00+00:00"
    first = harness.newest.pk
    harness.clock.shift += timedelta(hours=1)
    two.step()
    assert harness.newest.pk == first
    # A user's stop holds until a user's start.
    stop(project_id=harness.project.pk, actor=None, now=harness.clock.now())
    harness.clock.shift += timedelta(days=1)
    one.step()
    assert harness.newest.pk == first
    harness.configure(cron="")
    harness.clock.shift += timedelta(seconds=2)
    one.step()
    assert harness.state.next_run_at is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"enabled": False}, "switched_off"), ({"task_id": "another"}, "changed")],
)
def test_settings_that_change_end_a_harvest_at_its_batch(
    make_yard: MakeYard,
    double: OctoparseDouble,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, object],
    reason: str,
) -> None:
    harness = make_yard()
    double.total = 1000
    collector = harness.collector()

    def hit(name: str) -> None:
        if name == "sources.after_checkpoint" and harness.newest.batches == 2:
            harness.configure(**change)
            # The main thread does this while imports run in other threads.
            collector.rules.wake()
            collector.rules.poll()

    monkeypatch.setattr(harvester, "hit", hit)
    harvest = harness.harvest(collector)
    assert (harvest.state, harvest.reason, harvest.published) == ("stopped", reason, 200)


def test_a_source_that_was_taken_out_is_not_harvested(
    harness: CollectorHarness, double: OctoparseDouble
) -> None:
    harness.start()
    harness.apply({"sources": {}})
    harness.collector().step()
    assert harness.state.activity == SourceActivity.IDLE
    found = status(harness.project.pk, "news")
    assert (found.settings, found.harvest) == (None, None)
    with pytest.raises(NoSuchSource):
        status(harness.project.pk, "olds")


@pytest.mark.covers("S0.14")
def test_progress_of_another_program_can_be_taken_over(
    harness: CollectorHarness, double: OctoparseDouble
) -> None:
    person = make_user()
    where: dict[str, Any] = {"project_id": harness.project.pk, "name": "news", "actor": person}
    state = set_marker(marker=950, by_seed_rule=True, **where)
    assert state.gaps == [{"from": 0, "to": 49, "why": "seed_rule"}]
    double.total = 1200
    harvest = harness.harvest()
    # By the seed's rule the last batch began at 950; its content is unknown.
    assert (harvest.start_offset, harvest.end_offset, harvest.first) == (1100, 950, False)
    assert sorted(harness.numbers()) == list(range(1000, 1200))
    assert harness.state.gaps == [{"from": 0, "to": 49, "why": "seed_rule"}]
    assert set_marker(marker=None, **where).gaps == []
    assert harness.harvest().published == 1200
    with pytest.raises(BadMarker):
        set_marker(marker=-1, **where)
    harness.start()
    with pytest.raises(SourceBusy):
        set_marker(marker=0, **where)
    record = AuditRecord.objects.filter(action="sources.set_marker").earliest("pk")
    assert record.after == {"marker": 950, "by_seed_rule": True}


def test_credentials_are_sealed_and_kept_while_they_are_used(harness: CollectorHarness) -> None:
    row = Credential.objects.get()
    assert row.password not in str(Credential.objects.values())
    with pytest.raises(CredentialInUse):
        delete_credential(credential=row, actor=None)
    # Omitted secrets are kept.
    save_credential(project_id=harness.project.pk, name="vendor", values={"token": "t"}, actor=None)
    row = Credential.objects.get()
    assert (row.password != "", row.token) == (True, "t")
    for headers in ("[]", "{", '{"X": 1}', '{"X Y": "1"}', '{"X": "a\\nb"}'):
        with pytest.raises(BadCredential):
            save_credential(
                project_id=harness.project.pk, name="x", values={"headers": headers}, actor=None
            )
    with pytest.raises(BadCredential):
        save_credential(project_id=harness.project.pk, name="X", values={}, actor=None)
    harness.apply({"sources": {}})
    delete_credential(credential=row, actor=None)
    assert not Credential.objects.exists()
    told = [str(record.after) for record in AuditRecord.objects.filter(action__contains="credent")]
    assert all("pässword" not in text for text in told)
