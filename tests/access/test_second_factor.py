"""Codes of a phone between the password and everything else."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.access.errors import FactorExists, TooManyCodes, WrongCode
from apps.access.models import AuditRecord, SecondFactor, User
from apps.access.services.second_factor import (
    begin_factor,
    confirm_factor,
    factor_of,
    verify_factor,
)
from tests.access.factories import PASSWORD, Api, code_at, enter, make_superuser, make_user, page
from tests.confirmation import confirm

pytestmark = pytest.mark.django_db
STEP = timedelta(seconds=30)


def with_factor(user: User) -> tuple[SecondFactor, list[str]]:
    """A confirmed factor, whose newest used code is of a step ago."""
    factor = begin_factor(user=user)
    before = timezone.now() - STEP
    codes = confirm_factor(user=user, code=code_at(factor, before.timestamp()), now=before)
    factor.refresh_from_db()
    return factor, codes


@pytest.mark.slow("2 s")
def test_it_is_set_up_on_a_page_and_asked_for_at_login() -> None:
    user = make_user()
    client = Client()
    login = {"username": user.username, "password": PASSWORD}
    client.post("/admin/login/", login)
    address = reverse("access:second-factor-add")
    shown = client.get(address).content.decode()
    factor = SecondFactor.objects.get()
    assert "<svg" in shown
    assert str(factor.secret) in shown
    # Not yet: begun is not confirmed.
    assert client.get("/admin/").status_code == 200
    client.post(address, {"code": "000000"})
    assert factor_of(user) is None
    key = client.session.session_key
    codes = client.post(address, {"code": code_at(factor)}).content.decode()
    assert codes.count("<li>") == 10
    assert client.session.session_key != key
    assert client.get("/admin/").status_code == 200
    other = Client()
    other.post("/admin/login/", login)
    asked = other.get("/admin/")
    assert (asked.status_code, asked["Location"]) == (302, reverse("access:second-factor"))
    refused = other.get("/api/v1/me")
    assert (refused.status_code, refused.json()["code"]) == (403, "second_factor_required")
    # The code that confirmed it is used up.
    again = other.post(asked["Location"], {"code": code_at(factor)})
    assert again.status_code == 422
    later = code_at(factor, time.time() + 30)
    assert other.post(asked["Location"], {"code": later}).status_code == 302
    assert other.get("/admin/").status_code == 200
    assert other.get("/api/v1/me").status_code == 200


def test_nothing_is_readable_in_the_database() -> None:
    factor, codes = with_factor(make_user())
    with connection.cursor() as cursor:
        cursor.execute("SELECT secret, recovery_digests FROM access_secondfactor")
        row = str(cursor.fetchone())
    assert str(factor.secret) not in row
    assert not [code for code in codes if code in row]
    with pytest.raises(FactorExists):
        begin_factor(user=factor.user)


def test_a_code_is_good_once_and_now() -> None:
    user = make_user()
    factor, _codes = with_factor(user)
    now = timezone.now()
    for wrong in ("", "12345", "abcdef", "１２３４５６", code_at(factor, now.timestamp() + 90)):
        with pytest.raises(WrongCode):
            verify_factor(user=user, code=wrong, now=now - timedelta(hours=1))
        SecondFactor.objects.update(failures=0)
    code = code_at(factor, now.timestamp())
    verify_factor(user=user, code=f"{code[:3]} {code[3:]}", now=now)
    with pytest.raises(WrongCode):
        verify_factor(user=user, code=code, now=now)


def test_a_code_for_emergencies_is_good_once() -> None:
    user = make_user()
    factor, codes = with_factor(user)
    verify_factor(user=user, code=codes[3].upper())
    with pytest.raises(WrongCode):
        verify_factor(user=user, code=codes[3])
    factor.refresh_from_db()
    assert len(factor.recovery_digests) == 9
    assert AuditRecord.objects.filter(action="access.use_recovery_code").count() == 1


def test_after_five_wrong_codes_even_the_right_one_waits() -> None:
    user = make_user()
    factor, codes = with_factor(user)
    now = timezone.now()
    for _each in range(5):
        with pytest.raises(WrongCode):
            verify_factor(user=user, code="not one", now=now)
    for code in (code_at(factor, now.timestamp()), codes[0]):
        with pytest.raises(TooManyCodes):
            verify_factor(user=user, code=code, now=now)
    client = enter(user)
    assert client.post(reverse("access:second-factor"), {"code": codes[0]}).status_code == 429
    verify_factor(user=user, code=codes[0], now=now + timedelta(minutes=5))


@pytest.mark.slow("1 s")
def test_superusers_may_be_made_to_have_one(settings: Any) -> None:
    settings.ADMIN_TOTP = "admins"
    root, other = make_superuser(), make_user()
    client = enter(root)
    answer = client.get("/admin/")
    assert answer["Location"] == reverse("access:second-factor-add")
    assert client.get("/api/v1/me").status_code == 403
    assert enter(other).get("/admin/").status_code == 200
    # A token is proof enough of itself.
    assert Api(root).get("me").status_code == 200
    client.get(answer["Location"])
    client.post(answer["Location"], {"code": code_at(SecondFactor.objects.get())})
    assert client.get("/admin/").status_code == 200


def test_it_is_removed_with_a_code_or_by_a_superuser() -> None:
    user, root = make_user(), make_superuser()
    _factor, codes = with_factor(user)
    client = enter(user)
    remove = reverse("access:second-factor-remove")
    # Without its code there is no way around it.
    client.post(remove, {"code": codes[0]})
    assert factor_of(user) is not None
    client.post(reverse("access:second-factor"), {"code": codes[1]})
    client.post(remove, {"code": "wrong"})
    assert factor_of(user) is not None
    client.post(remove, {"code": codes[2]})
    assert factor_of(user) is None
    with_factor(user)
    address = page(User, "change", user.pk).removesuffix("change/") + "reset/"
    assert enter(make_user()).post(address).status_code == 403
    assert confirm(enter(root), address).status_code == 302
    assert factor_of(user) is None
    removed = AuditRecord.objects.filter(action="access.remove_second_factor").order_by("id")
    assert [each.actor for each in removed] == [user, root]


def test_a_stolen_password_without_a_code_changes_no_password() -> None:
    user = make_user()
    _factor, codes = with_factor(user)
    thief = enter(user)
    new = "another-long-enough-1"
    fields = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    for address in (reverse("password_change"), reverse("admin:password_change")):
        answer = thief.post(address, fields)
        assert answer["Location"] == reverse("access:second-factor")
    user.refresh_from_db()
    assert user.check_password(PASSWORD)
    # Whose password was reset gives the code first, and then chooses another one.
    User.objects.filter(pk=user.pk).update(must_change_password=True)
    owner = enter(user)
    assert owner.get("/admin/")["Location"] == reverse("admin:password_change")
    asked = owner.get(reverse("admin:password_change"))["Location"]
    owner.post(asked, {"code": codes[0]})
    assert owner.post(reverse("admin:password_change"), fields).status_code == 302
    user.refresh_from_db()
    assert user.check_password(new)
