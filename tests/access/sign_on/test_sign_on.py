"""Single sign-on against a certified OpenID Connect provider, and a directory."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.access.models import (
    ApiToken,
    AuditRecord,
    ExternalIdentity,
    LoginSession,
    Membership,
    User,
)
from apps.access.services.people import set_role
from apps.access.services.sign_on.checks import check_identities
from apps.access.states import Role
from tests.access.factories import PASSWORD, bearer, make_project, make_superuser, make_token
from tests.access.sign_on.peers import (
    BASE,
    READER,
    READER_PASSWORD,
    Directory,
    Peer,
    oidc_provider,
    slapd,
)

# ldap3 leaves the sockets of failed connections to the garbage collector.
LEAKS = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [pytest.mark.django_db, pytest.mark.covers("UX.9"), pytest.mark.slow("2 s"), LEAKS]

ANN = {"preferred_username": "ann", "email": "ann@example.com", "groups": ["news"]}
ROLES = {"root": ["superuser"], "audit": ["auditor"], "news": ["editor:shop"], "*": ["viewer:shop"]}


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what a test has left, so that no later test meets its sockets."""
    yield
    gc.collect()


@pytest.fixture
def provider(settings: Any) -> Iterator[Peer]:
    with oidc_provider() as peer:
        settings.OIDC_URL, settings.OIDC_CLIENT_ID = peer.issuer, "crawlyard"
        settings.OIDC_CLIENT_SECRET = "a-secret-of-the-client-of-some-length"
        settings.OIDC_SCOPES = "openid profile email groups"
        settings.PUBLIC_URL, settings.SSO_ROLES = "http://testserver", json.dumps(ROLES)
        peer.accounts(ann=ANN)
        yield peer


@pytest.fixture
def directory(settings: Any, tmp_path: Path) -> Iterator[Directory]:
    with slapd(tmp_path) as peer:
        settings.LDAP_URL, settings.LDAP_USERS = peer.url, f"ou=people,{BASE}"
        settings.LDAP_GROUPS = f"ou=groups,{BASE}"
        settings.LDAP_BIND_DN, settings.LDAP_BIND_PASSWORD = READER, READER_PASSWORD
        settings.SSO_ROLES = json.dumps(ROLES)
        settings.AUTHENTICATION_BACKENDS = [
            *settings.AUTHENTICATION_BACKENDS,
            "apps.access.services.sign_on.backend.DirectoryBackend",
        ]
        yield peer


def enter_by(peer: Peer, name: str = "ann", path: str = "/admin/sign-on/") -> tuple[Client, Any]:
    """Sign in at the provider; return the client and the last answer."""
    client = Client()
    start = client.get(path)
    assert start.status_code == 302, start.content
    return client, client.get(peer.log_in(start["Location"], name))


def by_password(name: str, password: str) -> tuple[Client, int]:
    client = Client()
    answer = client.post("/admin/login/", {"username": name, "password": password})
    return client, answer.status_code


def later(seconds: float = 400) -> Any:
    return timezone.now() + timedelta(seconds=seconds)


def roles_of(user: User) -> dict[str, str]:
    return dict(Membership.objects.filter(user=user).values_list("project__slug", "role"))


def test_a_person_is_made_at_the_first_sign_in_with_the_roles_of_the_groups(provider: Peer) -> None:
    make_project(slug="shop")
    client, answer = enter_by(provider, path="/admin/sign-on/?next=/admin/jobs/job/")
    assert answer["Location"] == "/admin/jobs/job/"
    user = User.objects.get(username="ann")
    assert (user.email, user.has_usable_password(), user.is_staff) == (
        "ann@example.com",
        False,
        True,
    )
    assert roles_of(user) == {"shop": Role.EDITOR}
    assert client.get("/admin/").status_code == 200
    actions = AuditRecord.objects.filter(object_label__contains="ann").values_list(
        "action", flat=True
    )
    assert {"access.create_user", "access.log_in"} <= set(actions)
    provider.accounts(ann=ANN | {"groups": ["root"]})
    enter_by(provider)
    user.refresh_from_db()
    assert user.is_superuser
    assert roles_of(user) == {"shop": Role.VIEWER}
    assert ExternalIdentity.objects.count() == 1


def test_somebody_removed_there_is_locked_out_here_and_let_in_again(provider: Peer) -> None:
    client, _answer = enter_by(provider)
    user = User.objects.get(username="ann")
    token = make_token(user=user)
    assert check_identities(now=timezone.now()) == 0, "checked a moment ago"
    assert check_identities(now=later()) == 0
    assert client.get("/admin/").status_code == 200
    provider.accounts()
    assert check_identities(now=later(900)) == 1
    assert client.get("/admin/").status_code == 302
    assert not LoginSession.objects.filter(user=user).exists()
    assert Client().get("/api/v1/jobs", headers=bearer(token)).status_code == 401
    assert AuditRecord.objects.filter(action="access.lock_out").count() == 1
    provider.accounts(ann=ANN)
    client, _answer = enter_by(provider)
    assert client.get("/admin/").status_code == 200


def test_roles_follow_the_groups_while_somebody_is_signed_in(provider: Peer) -> None:
    shop, other = make_project(slug="shop"), make_project(slug="other")
    enter_by(provider)
    user = User.objects.get(username="ann")
    set_role(actor=None, user=user, project=other, role=Role.ADMIN)
    provider.accounts(ann=ANN | {"groups": []})
    check_identities(now=later())
    assert roles_of(user) == {"shop": Role.VIEWER, "other": Role.ADMIN}, "no group decides of other"
    assert shop.slug == "shop"


def test_a_provider_that_is_unreachable_locks_out_nobody(provider: Peer) -> None:
    make_superuser(username="local")
    client, _answer = enter_by(provider)
    provider.stop()
    assert check_identities(now=later()) == 0
    assert client.get("/admin/").status_code == 200
    refused = Client()
    answer = refused.get("/admin/sign-on/", follow=True)
    assert "cannot be reached" in answer.content.decode()
    assert by_password("local", PASSWORD)[1] == 302


def test_without_a_refresh_token_userinfo_is_asked(settings: Any) -> None:
    with oidc_provider(REFRESH="no") as peer:
        settings.OIDC_URL, settings.OIDC_CLIENT_ID = peer.issuer, "crawlyard"
        settings.OIDC_CLIENT_SECRET = "a-secret-of-the-client-of-some-length"
        settings.PUBLIC_URL = "http://testserver"
        peer.accounts(ann=ANN)
        enter_by(peer)
        assert check_identities(now=later()) == 0
        peer.accounts()
        assert check_identities(now=later(900)) == 1


def test_an_answer_counts_once_and_only_in_the_browser_that_asked(provider: Peer) -> None:
    client = Client()
    answer = provider.log_in(client.get("/admin/sign-on/")["Location"], "ann")
    assert "expired" in Client().get(answer, follow=True).content.decode()
    assert (
        "expired" in client.get(answer.replace("state=", "state=x"), follow=True).content.decode()
    )
    assert "expired" in client.get(answer, follow=True).content.decode(), "used up"
    assert not User.objects.filter(username="ann").exists()


def test_a_local_account_keeps_its_name_and_a_deactivated_one_stays_out(provider: Peer) -> None:
    local = make_superuser(username="ann")
    client, _answer = enter_by(provider)
    assert client.get("/admin/").status_code == 302
    assert not ExternalIdentity.objects.exists()
    User.objects.filter(pk=local.pk).update(username="other")
    enter_by(provider)
    User.objects.filter(username="ann").update(is_active=False)
    client, _answer = enter_by(provider)
    assert client.get("/admin/").status_code == 302, "an administrator decided that here"


def test_the_login_page_offers_the_provider(provider: Peer, settings: Any) -> None:
    settings.OIDC_NAME = "Example ID"
    assert "Example ID" in Client().get("/admin/login/").content.decode()
    settings.OIDC_URL = ""
    assert "/admin/sign-on/" not in Client().get("/admin/login/").content.decode()
    assert Client().get("/admin/sign-on/").status_code == 404


def test_a_directory_checks_names_and_gives_roles(directory: Directory) -> None:
    make_project(slug="shop")
    assert by_password("ann", "wrong")[1] == 200
    assert by_password("ann", "")[1] == 200
    assert by_password("*", "anns-password")[1] == 200
    client, status = by_password("ann", "anns-password")
    assert (status, client.get("/admin/").status_code) == (302, 200)
    ann = User.objects.get(username="ann")
    assert (ann.email, ann.last_name, roles_of(ann)) == (
        "ann@example.com",
        "Ann",
        {"shop": Role.EDITOR},
    )
    by_password("bob", "bobs-password")
    assert roles_of(User.objects.get(username="bob")) == {"shop": Role.VIEWER}


def test_somebody_removed_from_the_directory_is_locked_out(directory: Directory) -> None:
    client, _status = by_password("ann", "anns-password")
    make_token(user=User.objects.get(username="ann"))
    assert check_identities(now=later()) == 0
    with directory.connection() as connection:
        connection.delete(f"uid=ann,ou=people,{BASE}")
    assert check_identities(now=later(900)) == 1
    assert client.get("/admin/").status_code == 302
    assert ApiToken.objects.filter(user__is_active=True).count() == 0
    assert by_password("ann", "anns-password")[1] == 200


def test_a_directory_that_is_unreachable_locks_out_nobody(directory: Directory) -> None:
    make_superuser(username="local")
    client, _status = by_password("ann", "anns-password")
    directory.stop()
    assert check_identities(now=later()) == 0
    assert client.get("/admin/").status_code == 200
    assert by_password("ann", "anns-password")[1] == 200
    assert by_password("local", PASSWORD)[1] == 302
