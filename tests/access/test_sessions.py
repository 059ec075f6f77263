"""Sessions: when they end by themselves, what ends them, and the page of one's own account."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.access.models import ApiToken, AuditRecord, LoginSession, User
from apps.access.services.sessions import SessionStore, sessions_of
from apps.access.states import Role
from crawlyard.settings.login import session_limits, who_needs_a_code
from tests.access.factories import (
    PASSWORD,
    enter,
    make_project,
    make_superuser,
    make_token,
    make_user,
    page,
)
from tests.confirmation import confirm
from yardkit.env import Env, EnvError

pytestmark = pytest.mark.django_db

ACCOUNT = "/admin/account/"


def row_of(client: Client) -> LoginSession:
    return LoginSession.objects.get(session_key=client.session.session_key)


def is_in(client: Client) -> bool:
    return bool(client.get("/api/v1/me").status_code == 200)


def moved(client: Client, **ago: timedelta) -> None:
    """As if it had begun, or been seen, so long ago."""
    row, now = row_of(client), timezone.now()
    LoginSession.objects.filter(pk=row.pk).update(
        **{name: now - each for name, each in ago.items()}
    )


def logged_in(person: User, agent: str = "Firefox", address: str = "10.1.2.3") -> Client:
    client = Client(headers={"User-Agent": agent}, REMOTE_ADDR=address)
    body = {"username": person.username, "password": PASSWORD, "next": "/admin/"}
    assert client.post(reverse("admin:login"), body).status_code == 302
    return client


def test_a_session_knows_its_person_browser_and_address() -> None:
    person = make_user()
    client = logged_in(person, "Firefox 200", "10.9.8.7")
    row = row_of(client)
    assert (row.user_id, row.agent, row.address) == (person.pk, "Firefox 200", "10.9.8.7")
    assert timezone.now() - row.began_at < timedelta(minutes=1)


def test_one_with_which_nothing_is_done_ends(settings: Any) -> None:
    settings.SESSION_IDLE_MINUTES = 30
    client = enter(make_user())
    end = row_of(client).expire_date
    assert timedelta(minutes=29) < end - timezone.now() <= timedelta(minutes=30)
    # Something is done a while later: the end moves on.
    moved(client, seen_at=timedelta(minutes=20))
    LoginSession.objects.update(expire_date=timezone.now() + timedelta(minutes=10))
    assert is_in(client)
    assert row_of(client).expire_date - timezone.now() > timedelta(minutes=29)
    LoginSession.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    assert not is_in(client)


def test_a_page_that_refreshes_itself_keeps_no_session_alive() -> None:
    client = enter(make_user())
    moved(client, seen_at=timedelta(minutes=20))
    before = row_of(client).seen_at
    assert client.get("/admin/", headers={"X-Requested-With": "XMLHttpRequest"}).status_code == 200
    assert row_of(client).seen_at == before
    assert client.get("/admin/").status_code == 200
    assert row_of(client).seen_at > before


def test_it_is_noted_at_most_once_a_minute(django_assert_max_num_queries: Any) -> None:
    client = enter(make_user())
    noted = row_of(client).seen_at
    assert is_in(client)
    assert row_of(client).seen_at == noted


def test_no_session_lasts_longer_than_the_longest(settings: Any) -> None:
    settings.SESSION_HOURS, settings.SESSION_IDLE_MINUTES = 2, 60 * 24
    client = enter(make_user())
    assert row_of(client).expire_date - timezone.now() <= timedelta(hours=2)
    moved(client, began_at=timedelta(minutes=90), seen_at=timedelta(minutes=10))
    assert is_in(client)
    left = row_of(client).expire_date - timezone.now()
    assert timedelta(minutes=29) < left <= timedelta(minutes=30)
    cookie = logged_in(make_user()).cookies["sessionid"]
    assert int(cookie["max-age"]) <= 2 * 3600


def test_the_age_outlives_a_new_key(settings: Any) -> None:
    settings.SESSION_HOURS = 2
    store = SessionStore()
    began = timezone.now() - timedelta(minutes=100)
    store["began_at"] = began.isoformat()
    store.save()
    store.cycle_key()
    row = LoginSession.objects.get(session_key=store.session_key)
    assert row.began_at == began
    assert row.expire_date == began + timedelta(hours=2)


def test_ended_rows_are_deleted_with_the_next_login() -> None:
    client = enter(make_user())
    LoginSession.objects.update(expire_date=timezone.now() - timedelta(days=1))
    gone = client.session.session_key
    enter(make_user())
    assert not LoginSession.objects.filter(session_key=gone).exists()


def test_a_new_password_of_ones_own_ends_all_sessions_but_this() -> None:
    person = make_user()
    here, there = enter(person), enter(person)
    new = "quite another one"
    body = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    assert here.post(reverse("password_change"), body).status_code == 302
    assert is_in(here)
    assert not is_in(there)
    assert LoginSession.objects.filter(user=person).count() == 1


def test_a_password_that_a_superuser_sets_ends_all() -> None:
    person, root = make_user(), enter(make_superuser())
    client = enter(person)
    new = "quite another one"
    address = page(User, "change", person.pk).removesuffix("change/") + "password/"
    answer = root.post(address, {"password1": new, "password2": new, "usable_password": "true"})
    assert answer.status_code == 302
    assert not is_in(client)
    assert not LoginSession.objects.filter(user=person).exists()
    assert is_in(root)


def test_deactivating_ends_all() -> None:
    person, root = make_user(), enter(make_superuser())
    client = enter(person)
    User.objects.filter(pk=person.pk).update(is_active=False)
    assert not is_in(client)
    User.objects.filter(pk=person.pk).update(is_active=True)
    client = enter(person)
    form = {
        "username": person.username,
        "is_staff": "on",
        "memberships-TOTAL_FORMS": "0",
        "memberships-INITIAL_FORMS": "0",
    }
    assert root.post(page(User, "change", person.pk), form).status_code == 302
    assert not LoginSession.objects.filter(user=person).exists()
    assert AuditRecord.objects.get(action="access.end_sessions").before == {"count": 2}
    # Even back in service: the session is gone.
    User.objects.filter(pk=person.pk).update(is_active=True)
    assert not is_in(client)


def test_a_superuser_ends_all_of_somebody() -> None:
    person, root = make_user(), enter(make_superuser())
    client = enter(person)
    address = page(User, "change", person.pk).removesuffix("change/") + "log-out/"
    assert enter(make_user()).post(address).status_code == 403
    assert is_in(client)
    assert confirm(root, address).status_code == 302
    assert not is_in(client)


def test_the_account_page_shows_what_is_ones_own_and_no_key(
    django_assert_max_num_queries: Any,
) -> None:
    person, other = make_user(), make_user()
    here = logged_in(person, "Firefox", "10.0.0.1")
    there = logged_in(person, "Chromium", "10.0.0.2")
    logged_in(other, "Lynx", "10.0.0.3")
    mine, theirs = make_token(person).token, make_token(other).token
    ApiToken.objects.filter(pk=mine.pk).update(name="my reader")
    ApiToken.objects.filter(pk=theirs.pk).update(name="of somebody else")
    with django_assert_max_num_queries(12):
        shown = here.get(ACCOUNT)
    text = shown.content.decode()
    for each in ("Firefox", "Chromium", "10.0.0.1", "10.0.0.2", "my reader", "this session"):
        assert each in text
    for each in ("Lynx", "10.0.0.3", "of somebody else", str(there.session.session_key)):
        assert each not in text
    assert str(here.session.session_key) not in text
    assert "no-store" in shown["Cache-Control"]
    home = here.get("/admin/").content.decode()
    assert f'href="{ACCOUNT}"' in home
    assert f'href="{reverse("access:second-factor-add")}"' in home


def test_one_ends_ones_own_sessions_and_nobody_elses() -> None:
    person, other = make_user(), make_user()
    here, there, third = enter(person), enter(person), enter(person)
    stranger = enter(other)
    (theirs,) = sessions_of(other, this=None)
    end = reverse("access:session-end")
    assert here.get(end).status_code == 405
    here.post(end, {"session": theirs.handle})
    here.post(end, {"session": str(stranger.session.session_key)})
    assert is_in(stranger)
    one = next(each for each in sessions_of(person, this=there.session.session_key) if each.is_this)
    assert here.post(end, {"session": one.handle}).status_code == 302
    assert not is_in(there)
    assert is_in(third)
    assert AuditRecord.objects.filter(action="access.end_session", actor=person).count() == 1
    assert confirm(here, reverse("access:sessions-end")).status_code == 302
    assert not is_in(third)
    assert is_in(here)
    assert is_in(stranger)


def test_the_account_is_for_whoever_is_logged_in() -> None:
    for address in (ACCOUNT, reverse("access:session-end"), reverse("access:sessions-end")):
        assert Client().get(address).status_code == 302
        assert "/login/" in Client().post(address)["Location"]


# --- who needs a second factor --------------------------------------------------------------------


@pytest.mark.slow("2 s")
@pytest.mark.parametrize(
    ("said", "kind", "needed"),
    [
        ("", "superuser", False),
        ("", "admin", False),
        ("admins", "superuser", True),
        ("admins", "admin", True),
        ("admins", "editor", False),
        ("admins", "nobody", False),
        ("everyone", "editor", True),
        ("everyone", "nobody", True),
    ],
)
def test_admin_totp_says_who_must_have_one(
    said: str, kind: str, needed: bool, settings: Any
) -> None:
    settings.ADMIN_TOTP = said
    person = {
        "superuser": lambda: make_superuser(),
        "admin": lambda: make_user(roles={make_project(): Role.ADMIN, make_project(): Role.VIEWER}),
        "editor": lambda: make_user(roles={make_project(): Role.EDITOR}),
        "nobody": lambda: make_user(),
    }[kind]()
    client = enter(person)
    answer = client.get("/api/v1/me")
    assert (answer.status_code == 403) == needed
    assert (answer.json().get("code") == "second_factor_required") == needed
    shown = client.get("/admin/")
    add = reverse("access:second-factor-add")
    assert (shown.status_code == 302 and shown["Location"] == add) == needed


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({}, ""),
        ({"ADMIN_TOTP": "false"}, ""),
        ({"ADMIN_TOTP": "true"}, "admins"),
        ({"ADMIN_TOTP": "Admins"}, "admins"),
        ({"ADMIN_TOTP": "everyone"}, "everyone"),
    ],
)
def test_the_setting_is_read(given: dict[str, str], meant: str) -> None:
    assert who_needs_a_code(Env(given)) == meant
    assert session_limits(Env(given | {"SESSION_HOURS": "8"}))[0] == 8
    with pytest.raises(EnvError, match="ADMIN_TOTP"):
        who_needs_a_code(Env({"ADMIN_TOTP": "some"}))
