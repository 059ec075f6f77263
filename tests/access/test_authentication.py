"""Tokens as callers meet them, and the limits of callers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from redis.exceptions import ConnectionError as RedisConnectionError

from apps.access.api.throttles import PerUserThrottle
from apps.access.models import ApiToken
from apps.access.services import revoke_token
from apps.access.states import Role
from tests.access.factories import Api, make_project, make_superuser, make_token, make_user

pytestmark = pytest.mark.django_db


def call(authorization: str) -> Any:
    return Client().get("/api/v1/me", headers={"Authorization": authorization})


def assert_refused(response: Any, code: str) -> None:
    assert response.status_code == 401
    assert response["WWW-Authenticate"] == 'Bearer realm="crawlyard"'
    assert response.json()["code"] == code


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "Token"])
def test_a_token_logs_in(scheme: str) -> None:
    user = make_user()
    made = make_token(user)
    response = call(f"{scheme} {made.secret}")
    assert response.status_code == 200
    assert response.json()["username"] == user.username
    assert ApiToken.objects.get().last_used_at is not None


def test_bad_tokens() -> None:
    user = make_user()
    made = make_token(user)
    assert_refused(Client().get("/api/v1/me"), "not_authenticated")
    assert_refused(call("Basic dXNlcjpwYXNz"), "not_authenticated")
    for wrong in ("Bearer", "Bearer ", f"Bearer {made.secret} x", "Bearer x", "Bearer cy_a_b"):
        assert_refused(call(wrong), "invalid_token")
    assert_refused(call(f"Bearer {made.secret}x"), "invalid_token")
    assert_refused(call("Bearer \xff\xfe"), "invalid_token")


def test_a_revoked_token() -> None:
    user = make_user()
    made = make_token(user)
    revoke_token(actor=user, token=made.token)
    assert_refused(call(f"Bearer {made.secret}"), "token_revoked")
    # Not told to who does not know the secret.
    assert_refused(call(f"Bearer cy_{made.token.prefix}_guess"), "invalid_token")


def test_an_expired_token() -> None:
    now = timezone.now()
    made = make_token(make_user(), expires_at=now - timedelta(seconds=1))
    assert_refused(call(f"Bearer {made.secret}"), "token_expired")
    assert_refused(call(f"Bearer cy_{made.token.prefix}_guess"), "invalid_token")


def test_a_token_of_somebody_who_left() -> None:
    user = make_user()
    made = make_token(user)
    user.is_active = False
    user.save()
    assert_refused(call(f"Bearer {made.secret}"), "invalid_token")


def test_scopes_limit_what_a_token_may_do() -> None:
    project = make_project()
    user = make_user(roles={project: Role.ADMIN})
    reader = Api(user, scopes=("projects:read",))
    assert reader.get("projects").status_code == 200
    refused = reader.patch(f"projects/{project.pk}", {"description": "new"})
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
    assert reader.get("me").json()["code"] == "scope_missing"
    writer = Api(user, scopes=("projects:write",))
    assert writer.patch(f"projects/{project.pk}", {"description": "new"}).status_code == 200


def test_a_project_token_sees_that_project_only() -> None:
    mine, other = make_project(), make_project()
    for user in (make_user(roles={mine: Role.ADMIN, other: Role.ADMIN}), make_superuser()):
        api = Api(user, project=mine)
        assert [each["id"] for each in api.get("projects").json()["results"]] == [mine.pk]
        assert api.get(f"projects/{other.pk}").status_code == 404
        assert api.post("projects", {"name": "New", "slug": "new"}).status_code == 403
        assert api.get("me").json()["is_superuser"] is False


def test_a_session_works_too() -> None:
    user = make_user()
    client = Client()
    client.force_login(user)
    assert client.get("/api/v1/me").json()["token"] is None


def test_requests_are_limited(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000_000.0]
    monkeypatch.setattr(PerUserThrottle, "clock", lambda _throttle: now[0])
    settings.REST_FRAMEWORK = settings.REST_FRAMEWORK | {
        "DEFAULT_THROTTLE_RATES": {"user": "2/minute"}
    }
    user = make_user()
    api, second_token = Api(user), Api(user)
    assert api.get("me").status_code == 200
    assert second_token.get("me").status_code == 200
    refused = api.get("me")
    assert (refused.status_code, refused.json()["code"]) == (429, "throttled")
    assert 1 <= int(refused["Retry-After"]) <= 60
    assert Api(make_user()).get("me").status_code == 200
    now[0] += int(refused["Retry-After"]) + 1
    assert api.get("me").status_code == 200


def limited(settings: Any, **rates: str) -> None:
    settings.REST_FRAMEWORK = settings.REST_FRAMEWORK | {"DEFAULT_THROTTLE_RATES": rates}


def statuses(api: Api, number: int) -> list[int]:
    return [api.get("me").status_code for _each in range(number)]


@pytest.mark.slow("3 s")
@pytest.mark.parametrize("rates", [{"user": "4/minute"}, {"user": "4/minute", "token": "2/hour"}])
def test_a_token_that_runs_wild_leaves_the_others_their_share(
    settings: Any, monkeypatch: pytest.MonkeyPatch, rates: dict[str, str]
) -> None:
    monkeypatch.setattr(PerUserThrottle, "clock", lambda _throttle: 1_000_000_000.0)
    limited(settings, **rates)
    user = make_user()
    wild, other = Api(user), Api(user)
    assert statuses(wild, 50) == [200, 200, *[429] * 48]
    assert int(wild.get("me")["Retry-After"]) >= 1
    assert statuses(other, 2) == [200, 200]
    # All together are the person's, who has used it up by now.
    session = Client()
    session.force_login(user)
    assert session.get("/api/v1/me").status_code == 429


def test_a_session_is_held_to_the_limit_of_its_person_alone(settings: Any) -> None:
    limited(settings, user="4/day", token="1/day")
    session = Client()
    session.force_login(make_user())
    assert [session.get("/api/v1/me").status_code for _each in range(5)] == [*[200] * 4, 429]


def test_tokens_may_have_a_limit_where_people_have_none(settings: Any) -> None:
    limited(settings, user="none", token="1/day")
    assert statuses(Api(make_user()), 2) == [200, 429]
    limited(settings, user="none", token="")
    assert statuses(Api(make_user()), 5) == [200] * 5


def test_without_the_cache_there_is_no_limit(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> int:
        raise RedisConnectionError("refused")

    settings.REST_FRAMEWORK = settings.REST_FRAMEWORK | {
        "DEFAULT_THROTTLE_RATES": {"user": "1/minute"}
    }
    monkeypatch.setattr(PerUserThrottle, "_count", refuse)
    api = Api(make_user())
    assert [api.get("me").status_code for _each in range(3)] == [200] * 3


def test_no_limit(settings: Any) -> None:
    settings.REST_FRAMEWORK = settings.REST_FRAMEWORK | {"DEFAULT_THROTTLE_RATES": {"user": "none"}}
    api = Api(make_user())
    assert all(api.get("me").status_code == 200 for _each in range(5))


def test_a_bad_rate_is_found_at_the_start(settings: Any) -> None:
    from apps.access.checks import check_rest_rate

    assert check_rest_rate() == []
    settings.REST_FRAMEWORK = settings.REST_FRAMEWORK | {"DEFAULT_THROTTLE_RATES": {"user": "fast"}}
    assert [each.id for each in check_rest_rate()] == ["access.E001"]
