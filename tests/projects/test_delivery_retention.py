"""Deliveries of long ago go; what was built of them stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.projects.models import Build, Delivery
from apps.projects.services import deliveries as service
from apps.projects.tasks import forget_old_deliveries
from tests.projects.factories import deliver, make_git_project
from tests.projects.webhooks import github, tag_push

pytestmark = pytest.mark.django_db


def test_old_deliveries_are_forgotten_and_their_builds_stay(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DELIVERY_DAYS = 10
    monkeypatch.setattr(service, "FORGOTTEN_AT_ONCE", 2)
    project = make_git_project()
    for number in range(6):
        deliver(project, github("push", tag_push(f"prod/news/1.{number}"), delivery=f"d{number}"))
    old = timezone.now() - timedelta(days=11)
    Delivery.objects.filter(delivery_id__lt="d5").update(received_at=old)
    forget_old_deliveries()
    assert [one.delivery_id for one in Delivery.objects.all()] == ["d5"]
    assert Build.objects.count() == 6
