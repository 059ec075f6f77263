"""yielded = stored + rejected + dropped + in flight, whatever became of the run's processes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.datasets.models import DatasetRun
from apps.datasets.queries.items import NEVER_SENT, ItemAccounting, run_accounting
from apps.datasets.services import settling
from apps.jobs.models import Run
from apps.jobs.states import RunState
from apps.queuestats.models import RunCounter
from tests.datasets.factories import make_items, store
from tests.datasets.test_pipeline import compact_all
from tests.jobs.factories import make_run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.covers("DS.2")]


def report(run: Run, items: int, boot: str = "b1", **fields: Any) -> None:
    RunCounter.objects.update_or_create(
        owner=run.stream,
        boot=boot,
        defaults={
            "project": run.job.project,
            "items": items,
            "updated_at": timezone.now(),
            **fields,
        },
    )


def end(run: Run) -> None:
    """The run has ended, longer ago than anything of it may be on its way."""
    now = timezone.now()
    at = now - 2 * settling.PATIENCE
    Run.objects.filter(pk=run.pk).update(state=RunState.FAILED, started_at=at, ended_at=at)
    compact_all()
    while settling.step(now=now):
        pass


def accounting(run: Run) -> ItemAccounting:
    found = run_accounting(run.pk)
    assert found.balanced
    assert found.yielded == found.stored + found.rejected + found.dropped + found.in_flight
    assert found.rejected + found.dropped == sum((found.reasons or {}).values())
    return found


def test_what_a_killed_spider_had_not_sent_is_dropped_when_its_run_has_ended() -> None:
    run = make_run()
    report(run, 12, dropped={"larger than the limit": 2})
    store(run, make_items(7))
    assert (accounting(run).in_flight, accounting(run).dropped) == (3, 2)
    end(run)
    found = accounting(run)
    assert (found.yielded, found.stored, found.dropped, found.in_flight) == (12, 7, 5, 0)
    assert found.reasons == {"larger than the limit": 2, NEVER_SENT: 3}
    # Something was on its way after all.
    store(run, make_items(2, start=8), first=8)
    assert (accounting(run).stored, accounting(run).in_flight) == (9, 1)
    end(run)
    assert (accounting(run).dropped, accounting(run).in_flight) == (3, 0)


def test_a_run_of_which_nothing_has_arrived_is_settled_too() -> None:
    run, quiet = make_run(), make_run()
    report(run, 4)
    report(quiet, 0)
    assert accounting(run).in_flight == 4
    end(quiet)
    end(run)
    found = accounting(run)
    assert (found.dropped, found.in_flight, found.reasons) == (4, 0, {NEVER_SENT: 4})
    # One that has yielded nothing has no data.
    assert not DatasetRun.objects.filter(run_number=quiet.pk).exists()


def test_executions_of_a_restarted_run_are_added_up() -> None:
    run = make_run()
    # Killed after it had sent more than it had reported.
    report(run, 5)
    store(run, make_items(8))
    assert (accounting(run).yielded, accounting(run).in_flight) == (8, 0)
    report(run, 3, "b2")
    store(run, make_items(1), boot="b2")
    assert accounting(run).yielded == 9
    report(run, 6, "b2")
    assert (accounting(run).stored, accounting(run).in_flight) == (9, 2)
    store(
        run, make_items(5, start=2), boot="b2", first=2, now=timezone.now() + timedelta(seconds=1)
    )
    assert (accounting(run).yielded, accounting(run).in_flight) == (14, 0)
    end(run)
    assert (accounting(run).stored, accounting(run).dropped) == (14, 0)
