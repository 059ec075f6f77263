"""Celery tasks of the router."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from apps.routing.models import CounterChange, RoutedItem, RouterReport
from apps.routing.services import report_router
from apps.routing.services.maintenance import FEWEST_CHANGES
from apps.routing.states import ItemState
from apps.routing.tasks import sweep
from tests.access.factories import make_project
from tests.routing.factories import arrive, moved

pytestmark = pytest.mark.django_db


def test_the_sweep_has_a_stable_name_and_is_housekeeping() -> None:
    assert sweep.name == "routing.sweep_ledger"
    assert "housekeeping: routing.sweep_ledger" in settings.CELERY_BEAT_SCHEDULE


def test_the_sweep_folds_counts_and_forgets_what_is_old() -> None:
    project = make_project()
    old = timezone.now() - timedelta(days=settings.ROUTING_LEDGER_DAYS, minutes=1)
    for entry in arrive(project, FEWEST_CHANGES):
        moved(entry, ItemState.SUCCEEDED)
    RoutedItem.objects.update(ended_at=old)
    report_router(router="gone", reports={project.pk: (1, {})}, now=old)
    report_router(router="here", reports={project.pk: (1, {})}, now=timezone.now())
    sweep.run(new_option=1)
    assert not RoutedItem.objects.exists()
    assert CounterChange.objects.count() < 10
    assert [each.router for each in RouterReport.objects.all()] == ["here"]
