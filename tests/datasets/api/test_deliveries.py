"""Deliveries over REST: roles, write-only credentials, actions."""

from __future__ import annotations

from typing import Any

import pytest

from apps.access.states import Role
from apps.datasets.models import Dataset, Delivery, DeliveryFailure
from apps.projects.models import Project
from tests.access.factories import make_user
from tests.datasets.api.test_items import client_of, member
from tests.datasets.deliveries import deliver
from tests.datasets.factories import make_items, store
from tests.jobs.factories import make_run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.covers("DS.10")]
HOOK = {
    "name": "hook",
    "kind": "webhook",
    "url": "https://shop.example/hook",
    "credentials": {"key": "a-long-secret-key"},
}


@pytest.fixture
def dataset(settings: Any, tmp_path: Any) -> Dataset:
    settings.RECORDS_URL = f"sqlite:///{tmp_path}/records.sqlite3"
    run = make_run()
    store(run, make_items(12))
    return Dataset.objects.get()


@pytest.fixture
def place(dataset: Dataset) -> str:
    return f"/api/v1/datasets/{dataset.pk}/deliveries"


def editor(dataset: Dataset) -> Any:
    return client_of(member(dataset.project, Role.EDITOR))


def test_credentials_never_leave(dataset: Dataset, place: str) -> None:
    client = editor(dataset)
    made = client.post(place, HOOK, format="json")
    assert made.status_code == 201, made.json()
    assert made.json()["has_credentials"] == ["key"]
    assert made.json()["accounting"]["waiting"] == 12
    one = f"{place}/{made.json()['id']}"
    for answer in (made, client.get(one), client.get(place)):
        assert b"secret" not in answer.content
    changed = client.patch(one, {"credentials": {"key": ""}}, format="json")
    assert changed.json()["has_credentials"] == []
    refused = client.patch(one, {"url": "https://u:pass-word@h/"}, format="json")
    assert refused.status_code == 422
    assert "url" in refused.json()["fields"]
    assert b"pass-word" not in refused.content


def test_a_table_is_filled_paused_and_filled_again(dataset: Dataset, place: str) -> None:
    client = editor(dataset)
    body = {"name": "copy", "kind": "table", "options": {"table": "items"}}
    one = f"{place}/{client.post(place, body, format='json').json()['id']}"
    deliver()
    assert client.get(one).json()["accounting"] == {
        "stored": 12,
        "delivered": 12,
        "waiting": 0,
        "failed": 0,
        "missed": 0,
        "skipped": 0,
    }
    assert client.post(f"{one}/pause").json()["state"] == "paused"
    again = client.post(f"{one}/deliver-again", {}, format="json").json()
    assert again["accounting"]["waiting"] == 12
    assert client.post(f"{one}/deliver-again", {}, format="json").status_code == 409
    both = {"run": 1, "since": "2026-01-01T00:00:00Z"}
    assert client.post(f"{one}/deliver-again", both, format="json").status_code == 400
    assert deliver() == 0
    assert client.post(f"{one}/resume").json()["state"] == "active"
    deliver()
    assert client.get(one).json()["accounting"]["delivered"] == 12
    assert client.delete(one).status_code == 204
    assert not Delivery.objects.exists()


def test_dead_letters_are_listed_and_retried(dataset: Dataset, place: str) -> None:
    client = editor(dataset)
    body = {"name": "copy", "kind": "table", "options": {"table": "items"}}
    number = client.post(place, body, format="json").json()["id"]
    deliver()
    for seq in range(1, 4):
        DeliveryFailure.objects.create(
            delivery_id=number, run_number=1, boot="b1", seq=seq, item="{}", reason="too old"
        )
    Delivery.objects.update(delivered=9, failed=3)
    listed = client.get(f"{place}/{number}/dead-letters", {"limit": 2}).json()
    assert [row["seq"] for row in listed["results"]] == [3, 2]
    assert listed["results"][0]["reason"] == "too old"
    assert client.post(f"{place}/{number}/retry-failures").json() == {"items": 3}
    deliver()
    assert client.get(f"{place}/{number}").json()["accounting"]["failed"] == 0


def test_roles_and_other_projects(dataset: Dataset, place: str) -> None:
    one = f"{place}/{editor(dataset).post(place, HOOK, format='json').json()['id']}"
    operator = client_of(member(dataset.project, Role.OPERATOR))
    assert operator.get(one).status_code == 200
    assert operator.get(f"{one}/dead-letters").status_code == 200
    for action in ("pause", "resume", "deliver-again", "retry-failures"):
        assert operator.post(f"{one}/{action}").status_code == 403
    assert operator.post(place, HOOK, format="json").status_code == 403
    assert operator.patch(one, {"url": ""}, format="json").status_code == 403
    assert operator.delete(one).status_code == 403
    other = Project.objects.create(name="other", slug="other-one")
    stranger = client_of(make_user(roles={other: Role.ADMIN}))
    assert stranger.get(place).status_code == 404
    assert stranger.post(place, HOOK, format="json").status_code == 404
    assert stranger.get(f"{one}/dead-letters").status_code == 404
