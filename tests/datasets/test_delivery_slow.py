"""Deliveries whose targets are slow: leases last, and nobody else takes them over."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.datasets.engine.targets.calls import HttpClient
from apps.datasets.models import Dataset
from apps.datasets.services import delivery as service
from tests.alerts.servers import serving
from tests.datasets.deliveries import balance, make_delivery
from tests.datasets.factories import make_items, store
from tests.jobs.factories import make_run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.covers("DS.10")]


@pytest.mark.slow("3 s")
def test_a_target_that_is_slow_and_refuses_much_keeps_its_delivery(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Looking for the refused items takes longer than a lease lasts."""
    settings.DELIVERY_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    store(make_run(), make_items(30))
    monkeypatch.setattr(service, "LEASE", timedelta(seconds=1.0))
    monkeypatch.setattr(service, "RENEW_SECONDS", 0.2)
    taken: list[bool] = []
    post = HttpClient.post

    def slow(client: HttpClient, url: str, body: bytes, headers: Any) -> Any:
        answer = post(client, url, body, headers)
        time.sleep(0.1)
        # Another process looks for work.
        taken.append(service.step(now=timezone.now()))
        return answer

    monkeypatch.setattr(HttpClient, "post", slow)
    with serving(lambda _asked: (422, {}, b"no")) as server:
        delivery = make_delivery(Dataset.objects.get(), kind="webhook", url=server.url, options={})
        assert service.step(now=timezone.now())
    # 30 items, halved until each is alone.
    assert taken == [False] * 59
    assert (balance(delivery).failed, balance(delivery).waiting) == (30, 0)
