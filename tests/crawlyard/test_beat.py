"""Beat in the test's own process, when the world around it fails."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from crawlyard.beat import LeaderScheduler
from crawlyard.celery import app

pytestmark = pytest.mark.django_db


@pytest.fixture
def scheduler() -> Iterator[LeaderScheduler]:
    # As the daemon does: who knows the tasks writes the rows of those that come with the product.
    app.loader.import_default_modules()
    app.finalize()
    scheduler = LeaderScheduler(app=app)
    yield scheduler
    scheduler.close()


@pytest.mark.fault
def test_a_connection_that_breaks_costs_no_wake_up(
    scheduler: LeaderScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = IntervalSchedule.objects.create(every=1, period="hours")
    last_run_at = timezone.now() - timedelta(days=1)
    PeriodicTask.objects.create(
        name="due", task="jobs.sweep_schedules", interval=every, last_run_at=last_run_at
    )
    sent: list[str] = []
    broken = [True]

    def send(entry: Any, producer: Any = None) -> None:
        if broken:
            broken.clear()
            raise OperationalError("server closed the connection unexpectedly")
        sent.append(entry.name)

    monkeypatch.setattr(scheduler, "apply_entry", send)
    with pytest.raises(OperationalError):
        scheduler.tick()
    while scheduler.tick() <= 0:
        pass
    assert sent == ["due"]
