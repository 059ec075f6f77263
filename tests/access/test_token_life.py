"""Where tokens work from, how they are renewed, and what is known of their use."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.access.errors import (
    InvalidNetworks,
    RoleRequired,
    ScopeTooWide,
    TokenExpired,
    TokenRevoked,
)
from apps.access.models import ApiToken, AuditRecord, User
from apps.access.services import find_token, revoke_token, rotate_token, touch_token
from tests.access.factories import (
    Api,
    bearer,
    enter,
    make_project,
    make_superuser,
    make_token,
    make_user,
    page,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def now() -> datetime:
    return timezone.now()


@pytest.fixture
def user() -> User:
    return make_user()


def ask(secret: str, address: str, **headers: str) -> Any:
    return Client(REMOTE_ADDR=address).get("/api/v1/me", headers=bearer(secret) | headers)


# --- networks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["10.20.0.7", "::ffff:10.20.0.7", "fd00::1%eth0", "192.0.2.9"])
def test_it_works_from_its_networks(user: User, address: str) -> None:
    made = make_token(user, allowed_networks=("10.20.0.0/16", "fd00::/8", "192.0.2.9"))
    assert ask(made.secret, address).status_code == 200


@pytest.mark.parametrize("address", ["10.21.0.7", "::1", "unix:"])
def test_elsewhere_it_is_refused_with_the_address(user: User, address: str) -> None:
    made = make_token(user, allowed_networks=("10.20.0.0/16",))
    refused = ask(made.secret, address, X_Forwarded_For="10.20.0.7")
    assert refused.status_code == 403
    assert refused.json()["code"] == "network_not_allowed"
    assert address in refused.json()["detail"]
    made.token.refresh_from_db()
    assert made.token.last_used_at is None


@pytest.mark.parametrize("wrong", ["10.20.0.5/16", "example.com", "10.20.0.0/33", ""])
def test_what_is_no_network_is_refused(user: User, wrong: str) -> None:
    with pytest.raises(InvalidNetworks) as refused:
        make_token(user, allowed_networks=("10.20.0.0/16", wrong))
    assert "10.20.0.0/16." in refused.value.text
    api = Api(user)
    body = {"name": "ci", "scopes": ["jobs:read"], "allowed_networks": ["10.0.0.1/8"]}
    answer = api.post("tokens", body)
    assert answer.status_code == 422
    assert "10.0.0.1/8" in answer.json()["fields"]["allowed_networks"][0]


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (["10.20.7.0/24"], True),
        (["10.20.0.0/16", "fd00:1::/32"], True),
        ([], False),
        (["10.0.0.0/8"], False),
        (["10.20.7.0/24", "192.0.2.0/24"], False),
        (["::/0"], False),
    ],
)
def test_a_token_makes_none_for_more_networks(user: User, asked: list[str], allowed: bool) -> None:
    made = make_token(user, allowed_networks=("10.20.0.0/16", "fd00::/8"))
    client = Client(REMOTE_ADDR="10.20.0.1")
    body = {"name": "ci", "scopes": ["jobs:read"], "allowed_networks": asked}
    answer = client.post("/api/v1/tokens", body, "application/json", headers=bearer(made))
    assert answer.status_code == (201 if allowed else 403), answer.content


# --- use --------------------------------------------------------------------------------------


def test_use_is_noted_once_a_minute(
    user: User, now: datetime, django_assert_num_queries: Any
) -> None:
    token = make_token(user).token
    touch_token(token, now=now, address="10.20.0.7")
    token.refresh_from_db()
    assert (token.last_used_at, token.last_used_from) == (now, "10.20.0.7")
    with django_assert_num_queries(0):
        touch_token(token, now=now + timedelta(seconds=59), address="10.20.0.8")
    touch_token(token, now=now + timedelta(seconds=61), address="10.20.0.9")
    token.refresh_from_db()
    assert token.last_used_from == "10.20.0.9"
    assert Api(user).get(f"tokens/{token.pk}").json()["last_used_from"] == "10.20.0.9"


# --- a new secret -----------------------------------------------------------------------------


def test_a_new_secret_ends_the_old_one_at_once(user: User, now: datetime) -> None:
    old = make_token(user)
    new = rotate_token(actor=user, token=old.token, now=now)
    assert new.token.prefix == old.token.prefix
    assert find_token(new.secret, now=now) == old.token
    assert find_token(old.secret, now=now) is None
    entry = AuditRecord.objects.get(action="access.rotate_token")
    assert new.secret.split("_", 2)[2] not in str(entry.after)


def test_the_old_secret_works_for_the_overlap(user: User, now: datetime) -> None:
    first = make_token(user)
    second = rotate_token(actor=user, token=first.token, overlap=timedelta(hours=1), now=now)
    before, after = now + timedelta(minutes=59), now + timedelta(minutes=60)
    for secret in (first.secret, second.secret):
        assert find_token(secret, now=before) == first.token
    assert find_token(first.secret, now=after) is None
    assert find_token(second.secret, now=after) == first.token
    third = rotate_token(actor=user, token=first.token, overlap=timedelta(hours=1), now=now)
    # Of two rotations at once only the last secret lives on.
    assert find_token(first.secret, now=before) is None
    assert find_token(second.secret, now=before) == first.token
    revoke_token(actor=user, token=third.token)
    found = find_token(second.secret, now=before)
    assert found is not None
    assert not found.usable(before)


def test_what_has_ended_gets_no_new_secret(user: User, now: datetime) -> None:
    expired = make_token(user, expires_at=now - timedelta(seconds=1)).token
    with pytest.raises(TokenExpired):
        rotate_token(actor=user, token=expired)
    revoked = make_token(user).token
    revoke_token(actor=user, token=revoked)
    with pytest.raises(TokenRevoked):
        rotate_token(actor=user, token=revoked)


def test_nobody_gets_the_secret_of_somebody_else(user: User) -> None:
    token = make_token(user).token
    root = make_superuser()
    with pytest.raises(RoleRequired):
        rotate_token(actor=root, token=token)
    assert Api(root).post(f"tokens/{token.pk}/rotate").status_code == 404
    address = page(ApiToken, "change", token.pk).removesuffix("change/") + "rotate/"
    assert enter(root).post(address, {"overlap": "0"}).status_code == 403


def test_a_token_gets_no_secret_that_may_do_more(user: User) -> None:
    wide = make_token(user).token
    narrow = make_token(user, scopes=("access:write",))
    user.acting_token = narrow.token
    with pytest.raises(ScopeTooWide):
        rotate_token(actor=user, token=wide)
    api = Api(user, scopes=("access:write",))
    assert api.post(f"tokens/{wide.pk}/rotate").json()["code"] == "scope_too_wide"
    assert api.token is not None
    assert api.post(f"tokens/{api.token.pk}/rotate").status_code == 200


def test_rest_gives_a_new_secret_once(user: User) -> None:
    old = make_token(user)
    api = Api(user)
    answer = api.post(
        f"tokens/{old.token.pk}/rotate", {"overlap_seconds": 3600}, Idempotency_Key="rotate-1"
    )
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    body = answer.json()
    assert body["previous_until"] is not None
    for secret in (old.secret, body["secret"]):
        assert ask(secret, "127.0.0.1").status_code == 200
    again = api.post(
        f"tokens/{old.token.pk}/rotate", {"overlap_seconds": 3600}, Idempotency_Key="rotate-1"
    )
    assert again.json()["secret"] is None
    assert ask(body["secret"], "127.0.0.1").status_code == 200
    wrong = api.post(f"tokens/{old.token.pk}/rotate", {"overlap_seconds": 99_999_999})
    assert (wrong.status_code, list(wrong.json()["fields"])) == (400, ["overlap_seconds"])


def test_the_page_asks_and_shows_the_new_secret_once(user: User) -> None:
    old = make_token(user)
    client = enter(user)
    address = page(ApiToken, "change", old.token.pk).removesuffix("change/") + "rotate/"
    assert "overlap" in client.get(address).content.decode()
    assert find_token(old.secret) is not None
    assert client.post(address, {"overlap": "17"}).status_code == 200
    assert find_token(old.secret) is not None
    shown = client.post(address, {"overlap": "0"})
    assert "no-store" in shown["Cache-Control"]
    text = shown.content.decode()
    start = text.index(f"cy_{old.token.prefix}_")
    assert find_token(text[start : text.index("<", start)].strip()) == old.token
    assert find_token(old.secret) is None


# --- the end ----------------------------------------------------------------------------------


def test_the_end_by_a_span(user: User, now: datetime) -> None:
    api = Api(user)
    body = {"name": "ci", "scopes": ["jobs:read"], "expires_in_days": 30}
    made = api.post("tokens", body).json()
    token = ApiToken.objects.get(pk=made["id"])
    assert token.expires_at is not None
    assert abs(token.expires_at - now - timedelta(days=30)) < timedelta(minutes=1)
    both = api.post("tokens", body | {"expires_at": (now + timedelta(days=1)).isoformat()})
    assert list(both.json()["fields"]) == ["expires_in_days"]


def test_the_form_offers_spans_and_networks(user: User, now: datetime) -> None:
    client = enter(user)
    form = {"name": "ci", "scopes": ["jobs:read"], "lifetime": "7"}
    lines = {"allowed_networks": "10.20.0.0/16\n 192.0.2.9"}
    assert client.post(page(ApiToken, "add"), form | lines).status_code == 200
    token = ApiToken.objects.get()
    assert token.allowed_networks == ["10.20.0.0/16", "192.0.2.9/32"]
    assert token.expires_at is not None
    assert abs(token.expires_at - now - timedelta(days=7)) < timedelta(minutes=1)
    text = client.get(page(ApiToken, "change", token.pk)).content.decode()
    assert "192.0.2.9/32" in text
    refused = client.post(page(ApiToken, "add"), form | {"allowed_networks": "nowhere"})
    assert "nowhere" in refused.content.decode()
    assert ApiToken.objects.count() == 1


def test_a_project_token_makes_none_beyond_its_project(user: User) -> None:
    mine, other = make_project(), make_project()
    root = make_superuser()
    api = Api(root, project=mine)
    for project in (None, other.pk):
        body = {"name": "ci", "scopes": ["jobs:read"], "project": project}
        assert api.post("tokens", body).status_code == (400 if project else 403)
    body = {"name": "ci", "scopes": ["jobs:read"], "project": mine.pk}
    assert api.post("tokens", body).status_code == 201
