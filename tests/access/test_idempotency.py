"""A repeated POST has one effect and one answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from apps.access.api import idempotency
from apps.access.models import ApiToken, User
from apps.projects.api import views
from apps.projects.models import Project
from apps.runtime.models import IdempotencyKey
from tests.access.factories import Api, make_superuser

pytestmark = pytest.mark.django_db

BODY = {"name": "New", "slug": "new"}


@pytest.fixture
def user() -> User:
    return make_superuser()


@pytest.fixture
def api(user: User) -> Api:
    return Api(user)


def reserve(user: User, api: Api, **age: float) -> IdempotencyKey:
    """A first call that is still at work, or died ``age`` ago."""
    api.post("projects", BODY, Idempotency_Key="k1")
    Project.objects.get(slug="new").delete()
    IdempotencyKey.objects.update(
        status=None, body=None, created_at=timezone.now() - timedelta(**age)
    )
    return IdempotencyKey.objects.get()


def test_without_a_key_each_call_counts(api: Api) -> None:
    assert api.post("projects", BODY).status_code == 201
    assert api.post("projects", BODY).status_code == 400
    assert not IdempotencyKey.objects.exists()


def test_a_repeat_gets_the_first_answer(api: Api) -> None:
    first = api.post("projects", BODY, Idempotency_Key="k1")
    again = api.post("projects/", {"slug": "new", "name": "New"}, Idempotency_Key="k1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert "Idempotent-Replayed" not in first
    assert again["Idempotent-Replayed"] == "true"
    assert Project.objects.filter(slug="new").count() == 1


def test_a_project_s_token_sees_no_answer_from_elsewhere(user: User, api: Api) -> None:
    api.post("projects", BODY, Idempotency_Key="k1")
    limited = Api(user, project=Project.objects.get(slug="new"))
    refused = limited.post("projects", BODY, Idempotency_Key="k1")
    assert refused.status_code == 422
    assert refused.json()["code"] == "idempotency_key_reused"


def test_the_same_key_for_something_else_is_refused(api: Api) -> None:
    api.post("projects", BODY, Idempotency_Key="k1")
    refused = api.post("projects", {"name": "B", "slug": "b"}, Idempotency_Key="k1")
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    assert not Project.objects.filter(slug="b").exists()


def test_keys_belong_to_a_person_and_an_address(api: Api) -> None:
    api.post("projects", BODY, Idempotency_Key="k1")
    other = Api(make_superuser())
    assert other.post("projects", BODY, Idempotency_Key="k1").status_code == 400
    body = {"name": "t", "scopes": ["*:read"]}
    assert api.post("tokens", body, Idempotency_Key="k1").status_code == 201


def test_a_refused_call_frees_the_key(api: Api) -> None:
    assert api.post("projects", {"name": "B"}, Idempotency_Key="k1").status_code == 400
    assert not IdempotencyKey.objects.exists()
    assert api.post("projects", BODY, Idempotency_Key="k1").status_code == 201


def test_a_crash_leaves_neither_effect_nor_key(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    create = views.create_project

    def crash(**values: Any) -> Project:
        create(**values)
        raise ZeroDivisionError

    monkeypatch.setattr(views, "create_project", crash)
    assert api.post("projects", BODY, Idempotency_Key="k1").status_code == 500
    assert not IdempotencyKey.objects.exists()
    assert not Project.objects.filter(slug="new").exists()


@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
@pytest.mark.parametrize("by", ["repeat", "worker"])
def test_an_outage_occupies_no_key_beyond_its_end(
    api: Api, monkeypatch: pytest.MonkeyPatch, error: type[Exception], by: str
) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise error("the server closed the connection")

    with monkeypatch.context() as outage:
        outage.setattr(views, "create_project", fail)
        outage.setattr(idempotency, "_release", fail)
        assert api.post("projects", BODY, Idempotency_Key="k1").status_code == 503
        assert idempotency._free_later() is not None
    assert IdempotencyKey.objects.filter(status=None).exists()
    if by == "worker":
        assert idempotency._free_later() is None
        assert not IdempotencyKey.objects.exists()
    assert api.post("projects", BODY, Idempotency_Key="k1").status_code == 201
    assert idempotency._free_later() is None
    assert api.post("projects", BODY, Idempotency_Key="k1")["Idempotent-Replayed"] == "true"


def test_while_the_first_is_at_work_the_second_is_told_so(user: User, api: Api) -> None:
    reserve(user, api, seconds=1)
    refused = api.post("projects", BODY, Idempotency_Key="k1")
    assert (refused.status_code, refused.json()["code"]) == (409, "idempotency_key_in_use")
    assert not Project.objects.filter(slug="new").exists()


def test_the_key_of_a_dead_process_is_taken_over(user: User, api: Api) -> None:
    reserve(user, api, minutes=3)
    assert api.post("projects", BODY, Idempotency_Key="k1").status_code == 201
    assert Project.objects.filter(slug="new").count() == 1
    assert IdempotencyKey.objects.get().status == 201


def test_who_was_taken_over_has_no_effect(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    create = views.create_project

    def too_slow(**values: Any) -> Project:
        made = create(**values)
        IdempotencyKey.objects.update(created_at=timezone.now() + timedelta(seconds=1))
        return made

    monkeypatch.setattr(views, "create_project", too_slow)
    refused = api.post("projects", BODY, Idempotency_Key="k1")
    assert refused.status_code == 409
    assert not Project.objects.filter(slug="new").exists()


@pytest.mark.parametrize("key", ["", " ", "with space", "x" * 256, "ключ"])
def test_bad_keys(api: Api, key: str) -> None:
    refused = api.post("projects", BODY, Idempotency_Key=key)
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_idempotency_key")


def test_a_secret_is_not_kept_for_repeats(api: Api) -> None:
    body = {"name": "t", "scopes": ["*:read"]}
    first = api.post("tokens", body, Idempotency_Key="k1").json()
    again = api.post("tokens", body, Idempotency_Key="k1").json()
    assert first["secret"].startswith("cy_")
    assert again == {**first, "secret": None}
    assert ApiToken.objects.filter(name="t").count() == 1
    assert first["secret"].split("_", 2)[2] not in str(list(IdempotencyKey.objects.values()))
