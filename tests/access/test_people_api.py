"""People and passwords over REST."""

from __future__ import annotations

from typing import Any

import pytest

from apps.access.models import AuditRecord, SecondFactor, User
from apps.access.states import Role
from tests.access.factories import PASSWORD, Api, enter, make_project, make_superuser, make_user

pytestmark = pytest.mark.django_db

NEXT = "battery staple correct"


@pytest.fixture
def root() -> Api:
    return Api(make_superuser(username="root"))


def test_somebody_new_gets_a_password_for_once(root: Api) -> None:
    made = root.post("people", {"username": "ann", "email": "ann@example.com"})
    assert made.status_code == 201, made.content
    told = made.json()
    assert (told["is_staff"], told["must_change_password"]) == (True, True)
    assert made["Cache-Control"] == "no-store"
    assert User.objects.get(username="ann").check_password(told["password"])
    assert told["password"] not in str(list(AuditRecord.objects.values()))
    assert AuditRecord.objects.filter(action="access.create_user").count() == 1
    shown = root.get(f"people/{told['id']}").json()
    assert "password" not in shown
    taken = root.post("people", {"username": "ann"})
    assert (taken.status_code, [*taken.json()["fields"]]) == (400, ["username"])
    both = root.post("people", {"username": "bob", "is_auditor": True, "is_superuser": True})
    assert both.status_code == 400


def test_who_is_deactivated_is_out(root: Api) -> None:
    user = make_user()
    theirs = Api(user)
    assert theirs.get("me").status_code == 200
    changed = root.patch(f"people/{user.pk}", {"is_active": False})
    assert (changed.status_code, changed.json()["is_active"]) == (200, False)
    assert theirs.get("me").status_code == 401
    row = AuditRecord.objects.get(action="access.change_user")
    assert (row.before, row.after) == ({"is_active": True}, {"is_active": False})
    listed = root.get("people?is_active=false").json()["results"]
    assert [each["id"] for each in listed] == [user.pk]


def test_who_comes_back_has_to_log_in(root: Api) -> None:
    user = make_user()
    browser = enter(user)
    assert browser.get("/api/v1/me").status_code == 200
    for active in (False, True):
        assert root.patch(f"people/{user.pk}", {"is_active": active}).status_code == 200
    assert browser.get("/api/v1/me").status_code == 401
    assert AuditRecord.objects.filter(action="access.end_sessions").count() == 1


def test_the_last_superuser_stays(root: Api) -> None:
    me = User.objects.get(username="root")
    for values in ({"is_active": False}, {"is_superuser": False}):
        refused = root.patch(f"people/{me.pk}", values)
        assert (refused.status_code, refused.json()["code"]) == (409, "last_admin")
    assert root.delete(f"people/{me.pk}").json()["code"] == "last_admin"
    other = make_superuser()
    assert root.delete(f"people/{other.pk}").status_code == 204
    assert not User.objects.filter(pk=other.pk).exists()
    assert AuditRecord.objects.filter(action="access.delete_user").count() == 1


def test_nobody_overwrites_what_another_has_changed(root: Api) -> None:
    user = make_user()
    etag = root.get(f"people/{user.pk}")["ETag"]
    assert root.patch(f"people/{user.pk}", {"first_name": "Ann"}, If_Match=etag).status_code == 200
    late = root.patch(f"people/{user.pk}", {"first_name": "Bob"}, If_Match=etag)
    assert late.status_code == 412


def test_a_password_that_was_forgotten(root: Api) -> None:
    user = make_user()
    browser = enter(user)
    assert browser.get("/api/v1/me").status_code == 200
    told = root.post(f"people/{user.pk}/reset-password").json()
    assert told["must_change_password"] is True
    assert browser.get("/api/v1/me").status_code == 401
    user.refresh_from_db()
    assert user.check_password(told["password"])
    assert not user.check_password(PASSWORD)


def test_a_laptop_that_was_lost(root: Api) -> None:
    user = make_user()
    browser = enter(user)
    assert browser.get("/api/v1/me").status_code == 200
    assert root.post(f"people/{user.pk}/log-out").json() == {"ended": 1}
    assert browser.get("/api/v1/me").status_code == 401


def test_a_phone_that_was_lost(root: Api) -> None:
    user = make_user()
    path = f"people/{user.pk}/reset-factor"
    assert root.post(path).json()["code"] == "no_second_factor"
    SecondFactor.objects.create(user=user, secret="JBSWY3DPEHPK3PXP")
    assert root.get(f"people/{user.pk}").json()["has_second_factor"] is True
    assert root.post(path).json()["has_second_factor"] is False


def test_people_are_for_superusers() -> None:
    project = make_project()
    admin = Api(make_user(roles={project: Role.ADMIN}))
    assert admin.get("people").status_code == 403
    refused = admin.post("people", {"username": "ann"})
    assert (refused.status_code, refused.json()["code"]) == (403, "role_required")


def test_a_token_for_a_part_makes_nobody(root: Api) -> None:
    user = make_superuser()
    part = Api(user, scopes=("access:write",))
    assert part.get("people").status_code == 200
    for refused in (
        part.post("people", {"username": "ann", "is_superuser": True}),
        part.post(f"people/{user.pk}/reset-password"),
        part.patch(f"people/{user.pk}", {"is_superuser": True}),
    ):
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")


def choose(api: Api, old: str, new: str = NEXT) -> Any:
    return api.post("me/password", {"old_password": old, "new_password": new})


def test_everybody_changes_their_own_password() -> None:
    user = make_user(must_change_password=True)
    api = Api(user)
    assert choose(api, PASSWORD).status_code == 204
    user.refresh_from_db()
    assert user.check_password(NEXT)
    assert user.must_change_password is False
    assert AuditRecord.objects.filter(action="access.set_password", actor=user).count() == 1
    assert choose(api, PASSWORD).json()["code"] == "wrong_password"


def test_an_easy_password_is_refused() -> None:
    refused = choose(Api(make_user()), PASSWORD, "12345")
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_password")
    assert refused.json()["fields"]["new_password"]


def test_a_stolen_token_guesses_no_password(settings: Any) -> None:
    rates = settings.REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"] | {"guess": "2/day"}
    settings.REST_FRAMEWORK = settings.REST_FRAMEWORK | {"DEFAULT_THROTTLE_RATES": rates}
    api = Api(make_user())
    assert [choose(api, "guess").status_code for _ in range(3)] == [422, 422, 429]
    held = choose(api, PASSWORD)
    assert (held.status_code, int(held["Retry-After"]) >= 1) == (429, True)


def test_a_token_of_one_project_is_not_for_that() -> None:
    project = make_project()
    narrow = Api(make_user(roles={project: Role.ADMIN}), project=project)
    assert choose(narrow, PASSWORD).status_code == 403
