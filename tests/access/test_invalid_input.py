"""Whatever is sent, by whomever: an answer of ours, never an error page.

Runs on SQLite here and on PostgreSQL by ``test_on_postgres``: one refuses numbers beyond 64 bits,
the other zero characters. Each place gets another tenth of what is sent; ``make test-fuzz`` sends
everything everywhere.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib import admin
from django.test import Client

from apps.access.models import AuditRecord, User
from apps.access.states import Role
from apps.jobs.models import Job
from apps.seeds.services import clients
from tests.access.factories import Api, make_project, make_superuser, make_user, page
from tests.access.routes import Route, all_routes
from tests.access.test_routes import World, calls, path_of
from tests.plugins.long_tests import FULL_FUZZ, PART, part

pytestmark = [pytest.mark.django_db, pytest.mark.fuzz]

ZERO = "a\x00b"
HUGE = "9" * 30
DIGITS = "9" * 5000
NESTED = b"[" * 100_000
BODIES: list[bytes] = [
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"NaN",
    b"\xff\xfe\x00",
    b"\x80\x04K\x01.",
    NESTED,
    b'{"a":' * 50_000,
    b'{"name": "\\u0000", "slug": "\\u0000"}',
    b'{"name": "\\ud800", "slug": "a", "user": "\\udfff", "scopes": ["\\ud800:read"]}',
    b'{"speed": 1e400, "concurrency": 1e400, "project": 1e400}',
    b'{"speed": NaN}',
    b'{"arguments": {"a": 1e400}}',
    b'{"arguments": {"\\u0000": 1}}',
    b'{"arguments": {"a": ' + DIGITS.encode() + b"}}",
    b'{"project": ' + HUGE.encode() + b', "user": {}, "scopes": {"a": 1}, "role": []}',
    b'{"allowed_networks": [null, {}, "fe80::%eth0/64", "\\u0000"], "name": [], "slug": 1}',
    b'{"expires_at": "9999-12-31T23:59:59-23:59", "name": "n", "scopes": ["*:read"]}',
    b'{"enabled": {"a": 1}, "spider": "a:b\\n", "policy": 1}',
]
HEADERS: list[dict[str, str]] = [
    {"If-Match": "x" * 5000},
    {"If-Match": '"\xff"'},
    {"If-None-Match": ',,*,"'},
    {"Idempotency-Key": ""},
    {"Idempotency-Key": "k" * 256},
    {"Idempotency-Key": "k\xe9"},
    {"Accept": "text/html;q=x"},
    {"Accept-Language": "zz-" * 200},
    {"Authorization": "Bearer cy_\xff_\xff"},
    {"X-Request-Id": "a\tb" * 100},
    {"Cookie": 'sessionid="\\000"; csrftoken="\\000"; messages="\\000"; django_language="\\000"'},
]
QUERIES = [
    "limit=-1",
    f"limit={HUGE}",
    "after=%00",
    "after=W1siLWlkIl0sWzEwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMF1d",
    "after=W1siLWlkIl0sWyJcdTAwMDAiXV0",
    "after=" + "a" * 3000,
    "project=%00&job=%00&name=%00&user=%00&actor=%00&agent_id=%00&slug=%00&object_id=%00",
    f"project={HUGE}&job={HUGE}&name={HUGE}&enabled={HUGE}&alive={HUGE}",
    "at_from=0001-01-01T00:00:00%2B23:59&at_to=9999-12-31T23:59:59-23:59",
    "state=%ED%A0%80&role=%00&action=%00&request_id=%00",
]
REST = [(route, method) for route in all_routes() for method in calls(route)]
MODELS = sorted(admin.site._registry, key=lambda model: model._meta.label)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of refusals are logged; only the answers count here."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a service that does not run here."""
    monkeypatch.setattr(clients, "TIMEOUT_SECONDS", 0.02)


@pytest.fixture
def boss() -> User:
    return make_superuser()


@pytest.fixture
def browser(boss: User) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(boss)
    return client


@pytest.mark.parametrize(("route", "method"), REST, ids=str)
def test_no_rest_call_fails(boss: User, route: Route, method: str) -> None:
    turn = REST.index((route, method))
    project = make_project()
    owner = make_user(roles={project: Role.ADMIN})
    real = path_of(route, World(project, owner)) if route.names else route.at()
    seen = set()

    def send(api: Api, address: str, data: bytes = b"", **headers: str) -> None:
        response = api._client.generic(
            method.upper(),
            address,
            data,
            content_type="application/json",
            headers=api.headers | headers,
        )
        seen.add(response.status_code)

    # Who asks changes with each round through what is sent.
    for who in (boss, owner) if FULL_FUZZ else [(boss, owner)[turn // PART % 2]]:
        api = Api(who)
        for query in part(QUERIES, turn):
            send(api, f"{real}?{query}")
        for headers in part(HEADERS, turn):
            send(api, real, **headers)
        for body in part(BODIES, turn) if method != "get" else ():
            send(api, real, body)
        for number in part([0, HUGE, "%00", "x"], turn) if route.names else ():
            send(api, route.at(**dict.fromkeys(route.names, number)), b"{}")
    # The seed service does not run here: what only it can answer is 503.
    refused = {503} if route.path.startswith("api/v1/frontiers/") else set()
    assert max(seen - refused) < 500, seen


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label)
def test_no_list_of_the_admin_fails(browser: Client, model: Any) -> None:
    names = ["q", "o", "p", "_to_field", "id__exact"]
    for each in admin.site._registry[model].get_list_filter(request_of(browser, model)):
        field = each[0] if isinstance(each, tuple) else each
        names += [f"{field}__exact", f"{field}__id__exact", f"{field}__icontains"]
        names += [f"{field}_from_0", f"{field}_to_1"] if field == "at" else []
    for turn, name in enumerate(names, MODELS.index(model)):
        for value in part((ZERO, HUGE, DIGITS if name == "id__exact" else "x"), turn):
            response = browser.get(page(model, "changelist"), {name: value})
            assert response.status_code in (200, 302, 400), (name, value[:20])


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label)
def test_no_search_of_the_admin_is_too_long(browser: Client, model: Any) -> None:
    """No thousands of conditions, of which a database would say that it cannot answer."""
    words = "a" * 60_000 if MODELS.index(model) % 4 == 0 else "a " * 2_000
    assert browser.get(page(model, "changelist"), {"q": words}).status_code in (200, 302)


def request_of(browser: Client, model: Any) -> Any:
    return browser.get(page(model, "changelist")).wsgi_request


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label)
def test_no_made_up_id_fails_in_the_admin(browser: Client, model: Any) -> None:
    listed = page(model, "changelist")
    for number in part((HUGE, DIGITS, "x", quote(ZERO), "_5F"), MODELS.index(model)):
        for view in ("change", "delete", "history", "password", "revoke", "stop"):
            for call in (browser.get, browser.post):
                response = call(f"{listed}{number}/{view}/")
                assert response.status_code < 500, (number[:20], view)
        for action in ("delete_selected", ZERO):
            chosen = {"action": action, "_selected_action": [number, "1"], "index": "x"}
            assert browser.post(listed, chosen).status_code < 500, (number[:20], action)
    assert AuditRecord.objects.filter(action__contains="delete").count() == 0


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        *((name, ZERO) for name in ("name", "spider", "arguments", "speed", "notes", "policy")),
        *(("arguments", text) for text in ("[" * 100_000, '{"a":' * 30 + "1" + "}" * 30)),
        *(
            ("arguments", text)
            for text in (f'{{"a": {DIGITS}}}', '{"a": "\\u0000"}', "{}" * 40_000)
        ),
        *((name, DIGITS) for name in ("project", "name", "speed", "concurrency")),
    ],
    ids=lambda text: text[:12],
)
def test_a_form_with_nonsense_comes_back(browser: Client, name: str, typed: str) -> None:
    good = {
        "project": make_project().pk,
        "name": "pages",
        "spider": "a:B",
        "arguments": "{}",
        "speed": "1",
        "concurrency": "1",
        "policy": "random",
        "notes": "",
    }
    response = browser.post(page(Job, "add"), good | {name: typed})
    assert response.status_code == 200
    assert response.context["adminform"].form.errors[name]
    assert not Job.objects.exists()


def test_an_id_that_is_none_leads_back(browser: Client) -> None:
    answer = browser.post("/admin/jobs/job/", {"action": "start_now", "_selected_action": "x"})
    assert answer.status_code == 302
    text = browser.get("/admin/jobs/job/").content.decode()
    assert "Nothing was done: the selection is not valid." in text


def test_numbers_as_long_as_python_reads_them_are_kept(boss: User) -> None:
    project = make_project()
    long = int("9" * 4000)
    body = {"project": project.pk, "name": "n", "spider": "a:B", "arguments": {"a": long}}
    made = Api(boss).post("jobs", json.dumps(body))
    assert made.status_code == 201
    assert Api(boss).get(f"jobs/{made.json()['id']}").json()["arguments"] == {"a": long}
