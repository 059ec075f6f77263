"""Page of deliveries: added with clear errors, paused, delivered again; only by editors."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from apps.access.states import Role
from apps.datasets.models import Dataset, Delivery, DeliveryFailure
from apps.datasets.pages.deliveries import FIELDS, TITLES
from tests.access.factories import make_user
from tests.datasets.deliveries import deliver
from tests.datasets.factories import make_items, store
from tests.jobs.factories import make_run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.covers("DS.10")]


@pytest.fixture
def dataset(settings: Any, tmp_path: Any) -> Dataset:
    settings.RECORDS_URL = f"sqlite:///{tmp_path}/records.sqlite3"
    store(make_run(), make_items(5))
    return Dataset.objects.get()


def client_of(dataset: Dataset, role: Role) -> Client:
    client = Client()
    client.force_login(make_user(roles={dataset.project: role}))
    return client


def test_each_kind_has_a_form(dataset: Dataset) -> None:
    client = client_of(dataset, Role.EDITOR)
    assert set(FIELDS) == set(TITLES)
    for kind in FIELDS:
        page = client.get(f"/data/{dataset.pk}/deliveries", {"add": kind})
        assert page.status_code == 200
        for name in FIELDS[kind]:
            assert f'name="{name}"' in page.content.decode()


def test_one_is_added_moved_and_deleted(dataset: Dataset) -> None:
    client = client_of(dataset, Role.EDITOR)
    place = f"/data/{dataset.pk}/deliveries"
    values = {"name": "copy", "mode": "continuous", "table": "a b", "upsert": "id"}
    page = client.post(f"{place}?add=table", values)
    assert page.status_code == 200
    assert "in the name, at most 63" in page.content.decode()
    assert client.post(f"{place}?add=table", values | {"table": "items"}).status_code == 302
    deliver()
    delivery = Delivery.objects.get()
    assert delivery.delivered == 5
    DeliveryFailure.objects.create(
        delivery=delivery,
        run_number=1,
        boot="b",
        seq=1,
        batch=1,
        item='{"t": "<script>"}',
        reason="too <b>old",
    )
    Delivery.objects.update(delivered=4, failed=1)
    text = client.get(place).content.decode()
    assert "too &lt;b&gt;old" in text
    assert "<script>" not in text.split("deliveries-title")[1].split("</table>")[0]
    for what in ("pause", "again", "resume", "retry"):
        assert client.post(f"{place}/{delivery.pk}/{what}", {"run": ""}).status_code == 302
    deliver()
    delivery.refresh_from_db()
    assert (delivery.delivered, delivery.failed, delivery.state) == (5, 0, "active")
    assert client.post(f"{place}/{delivery.pk}/delete").status_code == 302
    assert not Delivery.objects.exists()


def test_others_only_look(dataset: Dataset) -> None:
    place = f"/data/{dataset.pk}/deliveries"
    editor = client_of(dataset, Role.EDITOR)
    values = {"name": "copy", "mode": "continuous", "table": "items", "upsert": "id"}
    editor.post(f"{place}?add=table", values)
    delivery = Delivery.objects.get()
    operator = client_of(dataset, Role.OPERATOR)
    page = operator.get(place, {"add": "table"})
    assert page.status_code == 200
    assert "<form" not in page.content.decode().split("deliveries-title")[1]
    assert operator.post(f"{place}?add=table", values).status_code == 403
    assert operator.post(f"{place}/{delivery.pk}/pause").status_code == 403
    stranger = Client()
    stranger.force_login(make_user())
    assert stranger.get(place).status_code == 404
    assert stranger.post(f"{place}/{delivery.pk}/pause").status_code == 404
