"""API tokens in the admin: shown once, revoked by a question."""

from __future__ import annotations

import pytest

from apps.access.models import ApiToken, AuditRecord, User
from apps.access.services import find_token
from apps.access.states import Role
from apps.projects.models import Project
from tests.access.factories import enter, make_project, make_superuser, make_token, make_user, page
from tests.confirmation import confirm

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project(name="Mine")


@pytest.fixture
def root() -> User:
    return make_superuser()


@pytest.mark.slow("1 s")
def test_a_token_is_shown_once(project: Project) -> None:
    user = make_user(roles={project: Role.VIEWER})
    client = enter(user)
    form = {"name": "ci", "project": project.pk, "scopes": ["jobs:read", "projects:write"]}
    response = client.post(page(ApiToken, "add"), form)
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    token = ApiToken.objects.get()
    text = response.content.decode()
    start = text.index(f"cy_{token.prefix}_")
    secret = text[start : text.index("<", start)].strip()
    assert find_token(secret) == token
    assert (token.user, token.project) == (user, project)
    assert token.scopes == ["jobs:read", "projects:write"]
    assert secret.split("_", 2)[2] not in str(dict(client.session))
    assert "messages" not in response.cookies
    again = client.get(page(ApiToken, "change", token.pk)).content.decode()
    assert secret not in again
    assert token.digest not in again


@pytest.mark.slow("1 s")
def test_a_token_form_refuses(project: Project) -> None:
    client = enter(make_user())
    for changed in (
        {"scopes": []},
        {"scopes": ["nothing:read"]},
        {"project": project.pk},
        {"expires_at_0": "2001-01-01", "expires_at_1": "00:00"},
    ):
        form = {"name": "ci", "scopes": ["jobs:read"]} | changed
        assert client.post(page(ApiToken, "add"), form).status_code == 200
    assert not ApiToken.objects.exists()


def test_revoking_asks_first(root: User) -> None:
    user = make_user()
    one, two, three = (make_token(user).token for _each in range(3))
    client = enter(user)
    address = f"{page(ApiToken, 'change', one.pk).removesuffix('change/')}revoke/"
    question = client.get(address)
    assert question.status_code == 200
    assert "csrfmiddlewaretoken" in question.content.decode()
    one.refresh_from_db()
    assert one.revoked_at is None
    assert confirm(client, address).status_code == 302
    one.refresh_from_db()
    assert one.revoked_at is not None
    assert client.post(address).status_code == 403
    selected = {"action": "revoke_selected", "_selected_action": [one.pk, two.pk]}
    response = confirm(client, page(ApiToken, "changelist"), selected, follow=True)
    assert "1 token revoked" in response.content.decode()
    assert ApiToken.objects.get(pk=three.pk).revoked_at is None
    assert AuditRecord.objects.filter(action="access.revoke_token").count() == 2


def test_tokens_of_others_are_hidden(root: User) -> None:
    token = make_token(make_user()).token
    client = enter(make_user())
    assert token.prefix not in client.get(page(ApiToken, "changelist")).content.decode()
    assert client.get(page(ApiToken, "change", token.pk)).status_code == 302
    address = f"{page(ApiToken, 'change', token.pk).removesuffix('change/')}revoke/"
    assert client.post(address).status_code == 403
    assert token.prefix in enter(root).get(page(ApiToken, "changelist")).content.decode()
