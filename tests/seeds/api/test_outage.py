"""The seed service is away, or the frontier does not work now: what callers are told."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.test import override_settings

from apps.runtime.models import IdempotencyKey
from apps.runtime.services import close_shared_broker
from apps.seeds.api import imports, service_calls
from apps.seeds.api.service_calls import status_of
from apps.seeds.models import Frontier
from apps.seeds.services import clients
from tests.seeds.api.conftest import Caller, Service
from yardkit.tokens import sign_scope

pytestmark = pytest.mark.django_db

CALLS: dict[str, Any] = {
    "add": "x",
    "lease": {},
    "finish": {"finishes": [], "found": ["x"]},
    "extend": {"generation": 1},
    "give-back": {"generation": 1},
    "look-up": "x",
    "grab": {"data": "x", "timeout_seconds": 0.1},
    "reopen": {"key": "x"},
    "forget": {"key": "x"},
    "granularity": {"keys": "page"},
}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "TIMEOUT_SECONDS", 0.2)


def is_away(answer: Any, code: str = "seed_service_away") -> bool:
    told = answer.json()
    return (answer.status_code, told["code"]) == (503, code) and int(answer["Retry-After"]) > 0


@pytest.mark.slow("3 s")
@pytest.mark.parametrize("path", CALLS)
def test_without_the_service_callers_shall_come_again(
    caller: Caller, impatient: None, path: str
) -> None:
    assert is_away(caller.call("post", f"{caller.base}/{path}", _json(CALLS[path])))


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("path", ["stats?live=1", "export", "look-up?data=x", "granularity?keys=x"])
def test_questions_too(caller: Caller, impatient: None, path: str) -> None:
    path = path.replace("keys=x", "keys=page")
    assert is_away(caller.get(f"{caller.base}/{path}"))


def test_a_frontier_stays_while_nobody_can_tell_whether_it_is_empty(
    caller: Caller, impatient: None, frontier: Frontier
) -> None:
    assert is_away(caller.delete(caller.base))
    assert Frontier.objects.filter(is_frozen=False).exists()


def test_an_import_that_nobody_takes(
    caller: Caller, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "PATIENCE_SECONDS", 0.0)
    assert is_away(caller.raw("import", b'"x"\n', "application/x-ndjson"))


@pytest.mark.slow("3 s")
def test_without_a_broker_too(caller: Caller, impatient: None) -> None:
    close_shared_broker()
    with override_settings(BROKER_URL="amqp://nobody:nothing@127.0.0.1:1/"):
        answer = caller.post(f"{caller.base}/add", ["x"])
        close_shared_broker()
    assert is_away(answer, "unavailable")


def test_a_key_is_free_again_after_an_outage(caller: Caller, impatient: None) -> None:
    assert is_away(caller.post(f"{caller.base}/add", ["x"], Idempotency_Key="k"))
    assert not IdempotencyKey.objects.exists()


def test_a_frozen_frontier_says_so_at_once(
    service: Service, caller: Caller, frontier: Frontier
) -> None:
    Frontier.objects.filter(pk=frontier.pk).update(is_frozen=True)
    service.look()
    for path, body in (("add", ["x"]), ("lease", {}), ("grab", {"data": "x"})):
        answer = caller.post(f"{caller.base}/{path}", body)
        assert (answer.status_code, answer.json()["code"]) == (409, "frozen")
        assert int(answer["Retry-After"]) >= 1


def test_a_foreign_secret_is_no_fault_of_the_caller(
    service: Service, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "sign_scope", lambda secret, scope: sign_scope("other", scope))
    assert is_away(caller.post(f"{caller.base}/add", ["x"]), "wrong_token")


def test_only_so_many_wait(
    service: Service, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_calls, "_waiting", threading.BoundedSemaphore(1))
    with service_calls.waiting():
        refused = caller.post(f"{caller.base}/lease", {"wait_seconds": 1})
    assert is_away(refused, "too_many_wait")
    assert caller.ask("lease", {"wait_seconds": 0.1})["seeds"] == []


def test_each_refusal_has_its_status() -> None:
    for code, status in {
        "unknown_key": 404,
        "unknown_segment": 404,
        "wrong_lease": 409,
        "seed_in_use": 409,
        "frozen": 409,
        "bad_call": 400,
        "empty_data": 400,
        "clock_back": 503,
        "stopping": 503,
        "store_unavailable": 503,
    }.items():
        assert status_of(code) == status, code


def _json(body: Any) -> Any:
    return f'"{body}"' if isinstance(body, str) else body
