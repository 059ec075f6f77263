"""Links by which people set their name and password: good once, for a while, for one purpose."""

from __future__ import annotations

import re
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.access.errors import LinkNotValid
from apps.access.models import AuditRecord, LoginSession, SetupLink, User
from apps.access.services import password_was_set
from apps.access.services.links import NewLink, first_link, invite, open_link, use_link
from tests.access.factories import PASSWORD, enter, make_superuser, make_user

pytestmark = pytest.mark.django_db

WHERE = "/admin/welcome/"


def made() -> NewLink:
    link = first_link()
    assert link is not None
    return link


def answered(key: str, **given: Any) -> Any:
    body = {"key": key, "username": "root", "password": PASSWORD, "again": PASSWORD}
    return Client().post(WHERE, body | given)


def said(*words: str, **options: Any) -> str:
    out = StringIO()
    call_command(*words, stdout=out, **options)
    return out.getvalue()


def test_the_first_administrator_sets_name_and_password_by_a_link_of_the_command() -> None:
    assert not User.objects.exists()
    text = said("create_admin")
    found = re.search(r"(http\S+/admin/welcome/)#(\S{40,})", text)
    assert found is not None
    key = found[2]
    # At rest it is a hash, and the page itself never has the key in its address.
    link = SetupLink.objects.get()
    assert key not in str(list(SetupLink.objects.values()))
    assert len(link.digest) == 64
    client = Client()
    assert client.get(WHERE).status_code == 200
    page = client.post(WHERE, {"key": f"{found[1]}#{key}"})
    assert page.status_code == 200
    assert 'name="password"' in page.content.decode()
    assert "no-store" in page["Cache-Control"]
    body = {"key": key, "username": "root", "password": PASSWORD, "again": PASSWORD}
    assert client.post(WHERE, body)["Location"] == reverse("admin:index")
    person = User.objects.get()
    assert (person.username, person.is_superuser, person.is_staff) == ("root", True, True)
    assert person.check_password(PASSWORD)
    assert not person.must_change_password
    assert client.get("/api/v1/me").json()["username"] == "root"
    actions = list(AuditRecord.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["access.make_link", "access.accept_link", "access.log_in"]
    assert key not in str(list(AuditRecord.objects.values()))
    assert "welcome" not in said("create_admin")


def test_a_link_is_good_once() -> None:
    key = made().key
    assert answered(key).status_code == 302
    User.objects.all().update(is_superuser=False)
    again = answered(key, username="second")
    assert again.status_code == 410
    assert "This link is not valid" in again.content.decode()
    assert User.objects.count() == 1


def test_one_that_is_too_old_is_refused(settings: Any) -> None:
    settings.LINK_HOURS = 2
    now = timezone.now()
    link = first_link(now=now - timedelta(hours=2, seconds=1))
    assert link is not None
    assert answered(link.key).status_code == 410
    assert not User.objects.exists()
    fresh = first_link(now=now - timedelta(hours=2) + timedelta(minutes=1))
    assert fresh is not None
    assert answered(fresh.key).status_code == 302


@pytest.mark.parametrize("change", ["cut", "swapped", "empty", "long", "digest", "zero"])
def test_one_that_was_tampered_with_is_refused(change: str) -> None:
    link = made()
    key = {
        "cut": link.key[:-1],
        "swapped": link.key.swapcase(),
        "empty": "",
        "long": link.key * 50,
        # Who reads the database gets no key from it.
        "digest": link.link.digest,
        "zero": link.key + "\x00",
    }[change]
    if change == "zero":
        # Django drops nothing from it; it is another key.
        key = "\x00" + link.key
    assert answered(key).status_code == 410
    assert not User.objects.exists()
    assert SetupLink.objects.get().used_at is None


def test_a_new_one_ends_the_one_before() -> None:
    lost, found = made(), made()
    assert answered(lost.key).status_code == 410
    assert answered(found.key).status_code == 302


def test_where_a_superuser_exists_no_first_link_is_made_and_none_is_good() -> None:
    early = made()
    make_superuser()
    assert first_link() is None
    assert "There is a superuser already" in said("create_admin")
    assert answered(early.key).status_code == 410
    assert User.objects.count() == 1


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"password": "12345", "again": "12345"}, "too short"),
        ({"again": "another one entirely"}, "not the same"),
        ({"username": "no such name"}, "valid username"),
        ({"username": ""}, "cannot be blank"),
        ({"username": "TAKEN"}, ""),
    ],
)
def test_what_will_not_do_leaves_the_link_good(given: dict[str, str], why: str) -> None:
    make_user(username="taken")
    key = made().key
    if given.get("username") == "TAKEN":
        given = {"username": "taken"}
        why = "already exists"
    refused = answered(key, **given)
    assert refused.status_code == 422
    assert why in refused.content.decode()
    assert not User.objects.filter(is_superuser=True).exists()
    assert answered(key).status_code == 302


@pytest.mark.parametrize("right", ["", "superuser", "auditor"])
def test_a_person_is_invited_by_name(right: str) -> None:
    make_superuser()
    text = said("invite", "anna", **({right: True} if right else {}))
    key = text.strip().rpartition("#")[2]
    # The name is that of the invitation, whatever is sent.
    assert answered(key, username="other").status_code == 302
    anna = User.objects.get(username="anna")
    assert anna.is_superuser == (right == "superuser")
    assert anna.is_auditor == (right == "auditor")
    assert not User.objects.filter(username="other").exists()


def test_a_lost_password_is_set_anew_and_every_session_ends() -> None:
    person = make_user(username="anna")
    elsewhere = enter(person)
    assert elsewhere.get("/api/v1/me").status_code == 200
    link = invite(actor=None, username="anna", actor_label="manage.py")
    new = {"password": "quite another one", "again": "quite another one"}
    assert answered(link.key, **new).status_code == 302
    person.refresh_from_db()
    assert person.check_password("quite another one")
    assert elsewhere.get("/api/v1/me").status_code == 401
    # The one that has just begun.
    assert LoginSession.objects.filter(user=person).count() == 1
    assert AuditRecord.objects.filter(action="access.set_password", actor=person).count() == 1


def test_rights_are_not_given_by_a_link_for_somebody_who_is_here() -> None:
    make_user(username="anna")
    make_user(username="gone", is_active=False)
    for words, options in ((("invite", "anna"), {"superuser": True}), (("invite", "gone"), {})):
        with pytest.raises(CommandError) as refusal:
            said(*words, **options)
        assert refusal.value.returncode == 2
    with pytest.raises(CommandError):
        said("invite", "no such name")
    assert not SetupLink.objects.exists()


def test_a_link_of_somebody_who_was_deactivated_is_not_good() -> None:
    person = make_user(username="anna")
    link = invite(actor=None, username="anna")
    User.objects.filter(pk=person.pk).update(is_active=False)
    with pytest.raises(LinkNotValid):
        open_link(link.key)
    with pytest.raises(LinkNotValid):
        use_link(key=link.key, username="anna", password="quite another one")


def test_without_a_token_of_the_form_nothing_happens() -> None:
    key = made().key
    strict = Client(enforce_csrf_checks=True)
    body = {"key": key, "username": "root", "password": PASSWORD, "again": PASSWORD}
    assert strict.post(WHERE, body).status_code == 403
    assert not User.objects.exists()


def test_a_link_for_a_lost_password_ends_with_the_next_password_or_link() -> None:
    user = make_user(username="ann")
    found = invite(actor=None, username="ann")
    password_was_set(actor=user, user=user)
    with pytest.raises(LinkNotValid):
        open_link(found.key)
    before = invite(actor=None, username="ann")
    User.objects.update(username="anna")
    after = invite(actor=None, username="anna")
    with pytest.raises(LinkNotValid):
        open_link(before.key)
    assert open_link(after.key).user == user
