"""Who guesses passwords or tokens waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.core.management import call_command
from django.test import Client

from apps.access.api.throttles import GuessThrottle
from apps.access.models import AuditRecord, User
from tests.access.factories import (
    PASSWORD,
    bearer,
    enter,
    make_auditor,
    make_superuser,
    make_token,
    make_user,
    page,
)

pytestmark = pytest.mark.django_db
HERE, THERE = "192.0.2.7", "192.0.2.8"


@pytest.fixture(autouse=True)
def three_attempts(settings: Any) -> None:
    settings.AXES_FAILURE_LIMIT = 3


def log_in(user: User, password: str = PASSWORD, *, address: str = HERE, **headers: str) -> Any:
    client = Client(REMOTE_ADDR=address, headers=headers)
    return client.post("/admin/login/", {"username": user.username, "password": password})


def guess(user: User, times: int = 3) -> Any:
    answers = [log_in(user, "wrong") for _each in range(times)]
    return answers[-1]


def test_after_so_many_wrong_passwords_even_the_right_one_waits() -> None:
    user = make_user()
    assert guess(user, 2).status_code == 200
    assert log_in(user).status_code == 302
    refused = guess(user)
    assert refused.status_code == 429
    assert refused["Retry-After"] == "900"
    assert log_in(user).status_code == 429
    # What a client says of itself counts only from a trusted proxy.
    assert log_in(user, X_Forwarded_For=THERE).status_code == 429
    # From elsewhere the person gets in: a stranger keeps nobody out.
    assert log_in(user, address=THERE).status_code == 302
    assert log_in(make_user()).status_code == 302


@pytest.mark.slow("1 s")
def test_it_is_told_in_the_readers_language() -> None:
    user = make_user()
    guess(user)
    assert "Wait 15 minutes" in log_in(user).content.decode()
    assert log_in(user, Accept_Language="zh-hans").status_code == 429


def test_it_ends_by_itself(settings: Any) -> None:
    user = make_user()
    guess(user)
    late = AccessAttempt.objects.get().attempt_time - settings.AXES_COOLOFF_TIME
    AccessAttempt.objects.update(attempt_time=late - timedelta(seconds=1))
    assert log_in(user).status_code == 302


def test_the_password_is_kept_nowhere() -> None:
    user = make_user()
    log_in(user, "correct horse battery stable")
    row = AccessAttempt.objects.get()
    assert "stable" not in str([getattr(row, each.attname) for each in row._meta.fields])


@pytest.mark.slow("1 s")
def test_a_superuser_lets_somebody_try_again() -> None:
    user, root = make_user(), make_superuser()
    guess(user)
    row = AccessAttempt.objects.get()
    chosen = {"action": "unlock_selected", "_selected_action": [row.pk]}
    address = page(AccessAttempt, "changelist")
    auditor = enter(make_auditor())
    assert "locked" in auditor.get(address).content.decode()
    auditor.post(address, chosen)
    assert log_in(user).status_code == 429
    assert enter(make_user()).get(address).status_code == 403
    enter(root).post(address, chosen)
    assert log_in(user).status_code == 302
    entry = AuditRecord.objects.get(action="access.unlock")
    assert (entry.actor, entry.after) == (root, {"username": user.username, "address": HERE})


def test_the_console_does_too(capsys: pytest.CaptureFixture[str]) -> None:
    user = make_user()
    guess(user)
    call_command("unlock_login", user.username, "--address", THERE)
    assert log_in(user).status_code == 429
    call_command("unlock_login", user.username)
    assert "from 1 addresses" in capsys.readouterr().out
    assert log_in(user).status_code == 302
    assert AuditRecord.objects.get(action="access.unlock").actor_label == "manage.py"


def test_guessing_at_tokens_has_its_own_limit(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000_000_000.0]
    monkeypatch.setattr(GuessThrottle, "clock", lambda _throttle: now[0])
    rates = settings.REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"] | {"guess": "2/minute"}
    settings.REST_FRAMEWORK = settings.REST_FRAMEWORK | {"DEFAULT_THROTTLE_RATES": rates}
    made, other = make_token(make_user()), make_token(make_user())

    def ask(secret: str, address: str = HERE) -> Any:
        return Client(REMOTE_ADDR=address).get("/api/v1/me", headers=bearer(secret))

    wrong = f"cy_{made.token.prefix}_guess"
    assert [ask(made.secret).status_code for _each in range(5)] == [200] * 5
    assert [ask(wrong).status_code for _each in range(3)] == [401, 401, 429]
    assert ask(made.secret).status_code == 429
    assert int(ask(wrong)["Retry-After"]) <= 60
    # Other tokens, and this one from elsewhere, are not held up by it.
    assert ask(other.secret).status_code == 200
    assert ask(made.secret, THERE).status_code == 200
    now[0] += 61
    assert ask(made.secret).status_code == 200
