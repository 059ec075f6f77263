"""Deliveries: positions, accounting, faults of targets, moves, dead letters."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.datasets.engine.targets import factory
from apps.datasets.engine.targets.base import Chunk, TargetUnavailable
from apps.datasets.errors import BadDelivery, DeliveryExists, NothingToDeliver
from apps.datasets.models import DataFile, Dataset, DatasetRun, Delivery
from apps.datasets.services import deliveries, settling
from apps.datasets.services import delivery as service
from apps.datasets.states import DeliveryMode, DeliveryState
from apps.jobs.models import Job, Run
from apps.jobs.states import RunState
from tests.datasets.deliveries import balance, deliver, make_delivery, rows_in
from tests.datasets.factories import make_items, store
from tests.datasets.test_pipeline import compact_all
from tests.jobs.factories import make_run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.covers("DS.10")]


@pytest.fixture(autouse=True)
def records(settings: Any, tmp_path: Path) -> Path:
    """The database of records."""
    settings.RECORDS_URL = f"sqlite:///{tmp_path}/records.sqlite3"
    settings.RECORDS_DIR = tmp_path / "records"
    settings.DELIVERY_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    return tmp_path / "records.sqlite3"


@pytest.fixture
def run() -> Run:
    return make_run()


@pytest.fixture
def dataset(run: Run) -> Dataset:
    store(run, make_items(30))
    return Dataset.objects.get()


def arrived(records: Path, dataset: Dataset) -> list[str]:
    return sorted(row["_id"] for row in rows_in(records, f"records_p{dataset.project_id}_items"))


def ids(run: Run, numbers: Any, boot: str = "b1") -> list[str]:
    return sorted(f"{run.pk}-{boot}-{number}" for number in numbers)


def end(run: Run) -> None:
    now = timezone.now()
    Run.objects.filter(pk=run.pk).update(state=RunState.EXITED, ended_at=now - timedelta(hours=1))
    compact_all()
    while settling.step(now=now):
        pass


def again_run(job: Job, count: int) -> Run:
    run = make_run(job=job)
    store(run, make_items(count))
    return run


def test_items_are_delivered_once_and_accounted(records: Path, dataset: Dataset, run: Run) -> None:
    delivery = make_delivery(dataset)
    assert balance(delivery).waiting == 30
    deliver()
    assert arrived(records, dataset) == ids(run, range(1, 31))
    assert (balance(delivery).delivered, balance(delivery).waiting) == (30, 0)
    store(run, make_items(5, start=31), first=31)
    assert balance(delivery).waiting == 5
    compact_all()
    store(run, make_items(5, start=36), first=36)
    deliver()
    assert balance(delivery).delivered == 40
    assert arrived(records, dataset) == ids(run, range(1, 41))


def test_without_work_a_step_is_one_query(dataset: Dataset) -> None:
    for name in ("a", "b", "c"):
        make_delivery(dataset, name=name)
    deliver()
    with CaptureQueriesContext(connection) as queries:
        assert service.step(now=timezone.now() + timedelta(hours=1)) is False
    assert len(queries) == 1


def test_at_the_end_of_a_run_its_items_are_delivered(
    records: Path, dataset: Dataset, run: Run
) -> None:
    delivery = make_delivery(dataset, mode=DeliveryMode.AT_END)
    other = again_run(run.job, 4)
    deliver()
    assert arrived(records, dataset) == []
    assert (balance(delivery).waiting, balance(delivery).due) == (34, 0)
    end(run)
    assert balance(delivery).due == 30
    deliver()
    assert arrived(records, dataset) == ids(run, range(1, 31))
    # What comes after the end of a run is delivered when it comes, and once.
    store(run, make_items(2, start=31), first=31)
    deliver()
    assert (balance(delivery).delivered, balance(delivery).waiting) == (32, 4)
    end(run)
    end(other)
    deliver()
    assert (balance(delivery).delivered, balance(delivery).waiting) == (36, 0)
    assert arrived(records, dataset) == sorted(ids(run, range(1, 33)) + ids(other, range(1, 5)))


def test_only_jobs_have_runs_that_end(dataset: Dataset) -> None:
    Dataset.objects.update(origin="source")
    dataset.refresh_from_db()
    with pytest.raises(BadDelivery) as caught:
        make_delivery(dataset, mode=DeliveryMode.AT_END)
    assert list(caught.value.fields) == ["mode"]


class Away:
    """Targets that fail, in place of one."""

    most_items = 7
    by_place = False

    def __init__(self, target: Any, fails: Any) -> None:
        self._target, self._fails = target, fails

    def write(self, chunk: Chunk) -> Any:
        found = self._fails(chunk)
        refused = self._target.write(chunk)
        return refused | (found or {})

    def close(self) -> None:
        self._target.close()


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Holds the function that a target calls before it writes."""
    held: list[Any] = [lambda _chunk: None]
    made = factory.open_target
    monkeypatch.setattr(
        service,
        "open_target",
        lambda settings, context: Away(made(settings, context), lambda chunk: held[0](chunk)),
    )
    return held


def test_a_target_that_is_away_is_tried_again(
    records: Path, dataset: Dataset, run: Run, fails: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    delivery = make_delivery(dataset, credentials={"password": "geheim-1", "key": "schluessel"})
    calls = []

    def away(chunk: Chunk) -> None:
        calls.append(chunk)
        if len(calls) > 2:
            raise TargetUnavailable("login geheim-1 refused, schluessel")

    fails[0] = away
    now = timezone.now()
    with caplog.at_level(logging.INFO):
        assert service.step(now=now)
    delivery.refresh_from_db()
    assert (delivery.state, delivery.failures) == (DeliveryState.FAILING, 1)
    assert delivery.error == "login ••• refused, •••"
    assert "geheim" not in caplog.text
    assert "schluessel" not in caplog.text
    assert (balance(delivery).delivered, balance(delivery).waiting) == (14, 16)
    # Not before its pause is over.
    assert not service.step(now=timezone.now())
    assert delivery.next_try_at > now
    fails[0] = lambda _chunk: None
    deliver()
    delivery.refresh_from_db()
    assert (delivery.state, delivery.error, delivery.failures) == (DeliveryState.ACTIVE, "", 0)
    assert delivery.behind_since is None
    assert arrived(records, dataset) == ids(run, range(1, 31))


def test_an_unexpected_error_of_a_library_is_shown_and_repeated(
    dataset: Dataset, fails: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    delivery = make_delivery(dataset)

    def bug(_chunk: Chunk) -> None:
        raise ZeroDivisionError("in a library")

    fails[0] = bug
    assert service.step(now=timezone.now())
    delivery.refresh_from_db()
    assert delivery.error == "ZeroDivisionError: in a library"
    assert "ZeroDivisionError" in caplog.text


def test_refused_items_are_dead_letters_and_can_be_retried(
    records: Path, dataset: Dataset, run: Run, fails: list[Any]
) -> None:
    delivery = make_delivery(dataset)
    bad = {3, 9, 20}

    def refuse(chunk: Chunk) -> dict[int, str]:
        return {n: f"no {item.seq}" for n, item in enumerate(chunk.items) if item.seq in bad}

    fails[0] = refuse
    deliver()
    assert (balance(delivery).delivered, balance(delivery).failed) == (27, 3)
    letter = delivery.dead_letters.get(seq=9)
    assert (letter.reason, letter.run_number, letter.boot) == ("no 9", run.pk, "b1")
    assert letter.url == "https://shop.example/list"
    bad.discard(9)
    assert deliveries.retry_failures(delivery=delivery, actor=None) == 3
    deliver()
    assert (balance(delivery).delivered, balance(delivery).failed) == (28, 2)
    assert set(delivery.dead_letters.values_list("seq", flat=True)) == {3, 20}
    # From the beginning again: the dead letters come again, and are counted once.
    deliveries.deliver_again(delivery=delivery, actor=None)
    assert balance(delivery).waiting == 30
    deliver()
    assert (balance(delivery).delivered, balance(delivery).failed) == (28, 2)
    bad.clear()
    deliveries.retry_failures(delivery=delivery, actor=None)
    deliver()
    assert balance(delivery).delivered == 30
    assert {"datasets.retry_undelivered", "datasets.deliver_again"} <= set(
        AuditRecord.objects.values_list("action", flat=True)
    )


def test_a_target_that_refuses_everything_does_not_fill_the_database(
    dataset: Dataset, fails: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_DEAD_LETTERS", 10)
    delivery = make_delivery(dataset)
    fails[0] = lambda chunk: dict.fromkeys(range(len(chunk.items)), "no")
    service.step(now=timezone.now())
    delivery.refresh_from_db()
    assert (delivery.failed, delivery.state) == (14, DeliveryState.FAILING)
    assert "14 items were refused" in delivery.error
    assert balance(delivery).waiting == 16


def test_items_deleted_before_their_delivery_are_missed(
    records: Path, dataset: Dataset, run: Run, fails: list[Any]
) -> None:
    delivery = make_delivery(dataset)
    calls = []

    def away(chunk: Chunk) -> None:
        calls.append(chunk)
        if len(calls) > 1:
            raise TargetUnavailable("away")

    fails[0] = away
    service.step(now=timezone.now())
    assert balance(delivery).delivered == 7
    second = again_run(run.job, 10)
    # Retention deletes the run in whose first batch the delivery is.
    DataFile.objects.filter(run_number=run.pk).delete()
    fails[0] = lambda _chunk: None
    deliver()
    assert (balance(delivery).delivered, balance(delivery).missed) == (17, 23)
    assert arrived(records, dataset) == sorted(ids(run, range(1, 8)) + ids(second, range(1, 11)))


def test_again_from_a_run_a_time_or_the_beginning(
    records: Path, dataset: Dataset, run: Run
) -> None:
    delivery = make_delivery(dataset)
    with pytest.raises(NothingToDeliver):
        deliveries.deliver_again(delivery=delivery, actor=None)
    second = again_run(run.job, 10)
    deliver()
    records.unlink()
    deliveries.deliver_again(delivery=delivery, actor=None, run=second.pk)
    assert (balance(delivery).delivered, balance(delivery).waiting) == (30, 10)
    deliver()
    assert arrived(records, dataset) == ids(second, range(1, 11))
    with pytest.raises(NothingToDeliver):
        deliveries.deliver_again(delivery=delivery, actor=None, run=second.pk + 1)
    later = timezone.now()
    third = make_run(job=run.job)
    store(third, make_items(3), at=timezone.now(), now=timezone.now())
    compact_all(later + timedelta(hours=1))
    deliver()
    records.unlink()
    deliveries.deliver_again(delivery=delivery, actor=None, since=later)
    deliver()
    assert arrived(records, dataset) == ids(third, range(1, 4))
    deliveries.deliver_again(delivery=delivery, actor=None)
    deliver()
    assert balance(delivery).delivered == 43
    assert len(arrived(records, dataset)) == 43


def test_one_can_begin_with_what_comes_next(records: Path, dataset: Dataset, run: Run) -> None:
    delivery = make_delivery(dataset, from_now=True)
    assert (balance(delivery).skipped, balance(delivery).waiting) == (30, 0)
    store(run, make_items(5, start=31), first=31)
    deliver()
    assert arrived(records, dataset) == ids(run, range(31, 36))
    deliveries.deliver_again(delivery=delivery, actor=None)
    deliver()
    assert (balance(delivery).delivered, balance(delivery).skipped) == (35, 0)


def test_a_pause_stops_and_a_move_interrupts_who_works(dataset: Dataset, fails: list[Any]) -> None:
    delivery = make_delivery(dataset)
    calls = []

    def pause(chunk: Chunk) -> None:
        calls.append(chunk)
        deliveries.pause_delivery(delivery=delivery, actor=None)

    fails[0] = pause
    assert service.step(now=timezone.now())
    assert len(calls) == 1
    # It was written, but another one has the position: it is repeated.
    assert (balance(delivery).delivered, balance(delivery).waiting) == (0, 30)
    assert deliver() == 0
    fails[0] = lambda _chunk: None
    deliveries.resume_delivery(delivery=delivery, actor=None)
    deliver()
    assert balance(delivery).delivered == 30


def test_two_processes_deliver_one_after_the_other(
    records: Path, dataset: Dataset, fails: list[Any]
) -> None:
    delivery = make_delivery(dataset)
    took: list[bool] = []

    def other(_chunk: Chunk) -> None:
        # Another process looks for work meanwhile, and then after the lease has ended.
        if not took:
            took.append(service.step(now=timezone.now()))
            took.append(service.step(now=timezone.now() + 2 * service.LEASE))

    fails[0] = other
    assert service.step(now=timezone.now())
    assert took == [False, True]
    deliver()
    assert balance(delivery).delivered == 30
    assert len(arrived(records, dataset)) == 30


def test_settings_that_never_work_are_refused_by_field(dataset: Dataset) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "kind": {"kind": "fax"},
        "url": {
            "kind": "postgresql",
            "url": "postgresql://u:secret@h/db",
            "options": {"table": "t"},
        },
        "options": {"options": {"table": "a b"}},
        "name": {"name": ""},
        "credentials": {
            "kind": "webhook",
            "url": "https://h",
            "options": {},
            "credentials": {"key": "x"},
        },
    }
    for field, values in wrong.items():
        with pytest.raises(BadDelivery) as caught:
            make_delivery(dataset, **values)
        assert list(caught.value.fields) == [field], values
        assert "secret" not in str(caught.value.fields)
    with pytest.raises(BadDelivery):
        make_delivery(dataset, options={"table": "t", "layout": "records"})
    make_delivery(dataset)
    with pytest.raises(DeliveryExists):
        make_delivery(dataset)


def test_credentials_are_sealed_and_not_audited(dataset: Dataset) -> None:
    delivery = make_delivery(
        dataset,
        kind="webhook",
        url="https://shop.example/hook",
        options={},
        credentials={"key": "a-long-secret-key"},
    )
    with connection.cursor() as cursor:
        cursor.execute("SELECT credentials FROM datasets_delivery")
        assert "a-long-secret-key" not in str(cursor.fetchone())
    deliveries.change_delivery(
        delivery=delivery, actor=None, credentials={"key": "another-secret-key"}
    )
    delivery.refresh_from_db()
    assert "another-secret-key" in delivery.credentials
    audited = list(AuditRecord.objects.values("before", "after"))
    assert "secret-key" not in str(audited)
    assert len(audited) == 2


def test_what_a_request_group_needs_is_made_paused_and_resumed(dataset: Dataset) -> None:
    options = {"table": "news"}
    made = deliveries.ensure(dataset=dataset, name="records", kind="table", options=options)
    deliveries.unneeded(dataset=dataset, name="records")
    made.refresh_from_db()
    assert made.state == DeliveryState.PAUSED
    deliveries.ensure(dataset=dataset, name="records", kind="table", options=options)
    made.refresh_from_db()
    assert made.state == DeliveryState.ACTIVE
    deliveries.pause_delivery(delivery=made, actor=None)
    deliveries.ensure(dataset=dataset, name="records", kind="table", options={"table": "n2"})
    made.refresh_from_db()
    # A person has paused it.
    assert (made.state, made.options) == (DeliveryState.PAUSED, {"table": "n2"})


def test_a_deleted_run_does_not_wait_for_its_end(dataset: Dataset, run: Run) -> None:
    delivery = make_delivery(dataset, mode=DeliveryMode.AT_END)
    DataFile.objects.filter(run_number=run.pk).delete()
    DatasetRun.objects.update(deleted_at=timezone.now(), deleted_items=30)
    other = again_run(run.job, 3)
    end(other)
    deliver()
    assert (balance(delivery).missed, balance(delivery).delivered) == (30, 3)
    assert Delivery.objects.get().behind_since is None
