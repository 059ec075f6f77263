"""The audit trail, tokens, the first admin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.utils import timezone

from apps.access.errors import (
    AuditIsAppendOnly,
    InvalidScopes,
    LastAdmin,
    ScopeTooWide,
    TokenRevoked,
)
from apps.access.models import ApiToken, AuditRecord, Membership
from apps.access.services import (
    changes,
    create_token,
    find_token,
    keep_one_admin,
    known_areas,
    mask,
    project_ids,
    projects_by_role,
    record,
    request_id_scope,
    revoke_token,
    set_role,
    snapshot,
    touch_token,
    usable_request_id,
)
from apps.access.states import Role
from apps.runtime.fields import SealedText
from tests.access.factories import make_project, make_superuser, make_token, make_user

pytestmark = pytest.mark.django_db


# --- audit -----------------------------------------------------------------------------------


def test_a_record_says_who_what_and_where() -> None:
    project = make_project()
    user = make_user()
    with request_id_scope("request-0001"):
        entry = record(actor=user, action="projects.test", obj=project, after={"a": 1}, note="n")
    entry = AuditRecord.objects.get(pk=entry.pk)
    assert (entry.actor, entry.actor_label) == (user, user.username)
    assert (entry.object_type, entry.object_id) == ("projects.project", str(project.pk))
    assert (entry.object_label, entry.project) == (project.name, project)
    assert (entry.before, entry.after, entry.note) == (None, {"a": 1}, "n")
    assert entry.request_id == "request-0001"
    assert entry.token is None


def test_a_record_names_the_token() -> None:
    user = make_superuser()
    user.acting_token = make_token(user).token
    assert record(actor=user, action="x.y", obj=user).token == user.acting_token


def test_the_platform_acts_under_its_name() -> None:
    project = make_project()
    assert record(actor=None, action="x.y", obj=project).actor_label == "system"
    entry = record(actor=None, action="x.y", obj=project, actor_label="runner host-1")
    assert entry.actor_label == "runner host-1"


def test_records_cannot_be_changed() -> None:
    entry = record(actor=None, action="x.y", obj=make_project())
    entry.note = "changed"
    with pytest.raises(AuditIsAppendOnly):
        entry.save()
    with pytest.raises(AuditIsAppendOnly):
        entry.delete()
    with pytest.raises(AuditIsAppendOnly):
        AuditRecord.objects.all().delete()
    with pytest.raises(AuditIsAppendOnly):
        AuditRecord.objects.filter(pk=entry.pk).update(note="changed")
    with pytest.raises(AuditIsAppendOnly):
        AuditRecord.objects.bulk_update([entry], ["note"])
    assert AuditRecord.objects.get(pk=entry.pk).note == ""


def test_records_outlive_what_they_are_about() -> None:
    project = make_project(name="Gone")
    user = make_user()
    entry = record(actor=user, action="x.y", obj=project)
    user.delete()
    project.delete()
    entry = AuditRecord.objects.get(pk=entry.pk)
    assert (entry.actor, entry.project) == (None, None)
    assert entry.object_label == "Gone"


@pytest.mark.parametrize(
    "name", ["X-Api-Key", "private-key", "apikey", "Private_Key", "access-key", "ssh_key", "pwd"]
)
def test_names_of_headers_sound_secret_too(name: str) -> None:
    assert mask({name: "hush", "key": "plain"}) == {name: "•••", "key": "plain"}


def test_secrets_are_masked() -> None:
    values = {
        "password": "x",
        "api_key": "x",
        "token": "x",
        "headers": {"Authorization": "x", "Accept": "text/html"},
        "list": [{"client_secret": "x"}],
        "empty_password": "",
        "token_id": 7,
        "name": "plain",
        "sealed": SealedText("gAAAA"),
    }
    masked = mask(values)
    assert "x" not in str(masked).replace("text/html", "").replace("api_key", "")
    assert masked["headers"]["Accept"] == "text/html"
    assert (masked["empty_password"], masked["token_id"], masked["name"]) == ("", 7, "plain")
    assert "gAAAA" not in str(masked)


def test_a_changed_secret_shows_as_a_change_without_its_value() -> None:
    user = make_user()
    before = snapshot(user)
    user.set_password("another one")
    old, new = changes(before, snapshot(user))
    assert set(new) == {"password"}
    entry = record(actor=None, action="x.y", obj=user, before=old, after=new)
    assert entry.before == entry.after == {"password": "•••"}


def test_snapshots_cut_long_texts() -> None:
    project = make_project(description="x" * 5_000)
    assert len(snapshot(project)["description"]) < 2_100


@pytest.mark.parametrize(
    "bad", ["", "short", "a b c d e f g h", "x" * 65, "naïve-id-1", "a\nb\ncdefg"]
)
def test_a_bad_request_id_is_replaced(bad: str) -> None:
    assert usable_request_id(bad) != bad
    assert usable_request_id("trace-id.0001_A") == "trace-id.0001_A"


# --- tokens ----------------------------------------------------------------------------------


def test_a_token_is_found_by_its_secret_only() -> None:
    user = make_user()
    made = make_token(user)
    assert find_token(made.secret) == made.token
    prefix = made.token.prefix
    for wrong in (
        "",
        "cy_",
        f"cy_{prefix}_",
        f"cy_{prefix}",
        f"cy_{prefix}_wrong",
        f"cx_{prefix}_{made.secret.split('_', 2)[2]}",
        made.secret[:-1],
        made.secret + "x",
        made.token.digest,
        f"cy_{prefix}_{made.token.digest}",
        "\udcff" * 10,
        "cy_" + "x" * 100_000,
    ):
        assert find_token(wrong) is None, wrong[:50]


def test_only_the_hash_of_a_secret_is_stored() -> None:
    made = make_token(make_user())
    secret = made.secret.split("_", 2)[2]
    row = ApiToken.objects.filter(pk=made.token.pk).values().get()
    assert secret not in str(row)
    assert secret not in str(list(AuditRecord.objects.values()))


def test_unknown_prefixes_take_the_same_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    # Constant time cannot be timed reliably; that the one safe comparison always runs can be seen.
    from apps.access.services import tokens

    made = make_token(make_user())
    seen: list[tuple[int, int]] = []
    compare = tokens.hmac.compare_digest

    def watch(one: str, two: str) -> bool:
        seen.append((len(one), len(two)))
        return compare(one, two)

    monkeypatch.setattr(tokens.hmac, "compare_digest", watch)
    find_token(made.secret)
    find_token("cy_unknown234_secret")
    find_token(f"cy_{made.token.prefix}_secret")
    # With the secret of now and with the one before it.
    assert seen == [(64, 64)] * 6


@pytest.mark.parametrize(
    "scopes", [[], ["jobs"], ["nothing:read"], ["jobs:delete"], ["*:*"], ["x" * 500]]
)
def test_bad_scopes_are_refused(scopes: list[str]) -> None:
    user = make_user()
    with pytest.raises(InvalidScopes) as refusal:
        create_token(actor=user, user=user, name="n", scopes=scopes)
    assert "scopes" in refusal.value.fields


def test_areas_are_the_apps() -> None:
    assert {"*", "jobs", "agents", "projects", "access"} <= set(known_areas())


def test_a_token_makes_no_wider_token() -> None:
    project = make_project()
    user = make_user(roles={project: Role.ADMIN})
    soon = timezone.now() + timedelta(hours=1)
    user.acting_token = make_token(
        user, scopes=("access:write", "jobs:read"), project=project, expires_at=soon
    ).token

    def make(**changed: Any) -> None:
        values = {"scopes": ["jobs:read"], "project": project, "expires_at": soon} | changed
        create_token(actor=user, user=user, name="n", **values)

    make()
    for wider in (
        {"scopes": ["jobs:write"]},
        {"scopes": ["*:read"]},
        {"project": None},
        {"project": make_project()},
        {"expires_at": None},
        {"expires_at": soon + timedelta(seconds=1)},
    ):
        with pytest.raises(ScopeTooWide):
            make(**wider)


def test_a_token_is_revoked_once() -> None:
    user = make_user()
    token = make_token(user).token
    revoke_token(actor=user, token=token)
    assert not token.usable(timezone.now())
    with pytest.raises(TokenRevoked):
        revoke_token(actor=user, token=token)
    assert AuditRecord.objects.filter(action="access.revoke_token").count() == 1


def test_use_is_noted_to_the_minute(django_assert_num_queries: Any) -> None:
    token = make_token(make_user()).token
    now = timezone.now()
    touch_token(token, now=now)
    token.refresh_from_db()
    assert token.last_used_at == now
    with django_assert_num_queries(0):
        touch_token(token, now=now + timedelta(seconds=59))
    touch_token(token, now=now + timedelta(seconds=61))
    token.refresh_from_db()
    assert token.last_used_at == now + timedelta(seconds=61)


# --- people ----------------------------------------------------------------------------------


def test_set_role_is_idempotent_and_recorded() -> None:
    project = make_project()
    user, admin = make_user(), make_superuser()
    set_role(actor=admin, user=user, project=project, role=Role.VIEWER)
    set_role(actor=admin, user=user, project=project, role=Role.VIEWER)
    set_role(actor=admin, user=user, project=project, role=Role.EDITOR)
    assert Membership.objects.get(user=user).role == Role.EDITOR
    set_role(actor=admin, user=user, project=project, role=None)
    set_role(actor=admin, user=user, project=project, role=None)
    trail = AuditRecord.objects.filter(object_type="access.membership").order_by("id")
    assert [entry.action for entry in trail] == [
        "access.set_role",
        "access.set_role",
        "access.remove_member",
    ]
    assert trail[1].before == {"user_id": user.pk, "role": "viewer"}
    assert trail[1].after == {"user_id": user.pk, "role": "editor"}
    assert all(entry.project_id == project.pk for entry in trail)


def test_one_superuser_stays() -> None:
    only = make_superuser()
    with pytest.raises(LastAdmin):
        keep_one_admin(only, stays=False)
    keep_one_admin(only, stays=True)
    keep_one_admin(make_user(), stays=False)
    make_superuser()
    keep_one_admin(only, stays=False)


def test_the_projects_by_role_are_those_of_each_role_asked_one_by_one() -> None:
    first, second = make_project(), make_project()
    member = make_user(roles={first: Role.EDITOR, second: Role.VIEWER})
    others = (make_superuser(), make_user(is_active=False), make_user(), AnonymousUser())
    for user in (member, *others):
        expected = {role: project_ids(user, at_least=role) for role in Role}
        assert projects_by_role(user) == expected
