"""Every error has one shape, wherever it comes from."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client, RequestFactory

from apps.access.middleware import RequestIdMiddleware
from apps.access.models import User
from tests.access.error_urls import FAILURES, PAGES
from tests.access.factories import Api, make_superuser

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.access.error_urls")]


@pytest.fixture
def user() -> User:
    return make_superuser()


@pytest.fixture
def api(user: User) -> Api:
    return Api(user)


def assert_shape(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/json"
    body: dict[str, Any] = response.json()
    assert set(body) == {"code", "detail", "fields", "request_id"}
    assert body["code"] == code
    assert body["detail"]
    assert isinstance(body["detail"], str)
    assert body["request_id"] == response["X-Request-Id"]
    for name, texts in body["fields"].items():
        assert isinstance(name, str)
        assert texts
        assert all(isinstance(text, str) for text in texts)
    return body


@pytest.mark.parametrize("name", FAILURES)
def test_failing_views(api: Api, name: str) -> None:
    _error, status, code = FAILURES[name]
    response = api.get(f"trouble/{name}")
    assert_shape(response, status, code)
    assert ("Retry-After" in response) is (status == 503)


def test_domain_errors_keep_their_fields(api: Api) -> None:
    body = api.get("trouble/domain").json()
    assert body["detail"] == "Eat first."
    assert body["fields"] == {"food": ["none"]}


@pytest.mark.parametrize("name", PAGES)
def test_failures_outside_of_rest_views(api: Api, name: str) -> None:
    _error, status, code = PAGES[name]
    response = api.get(f"trouble/{name}")
    assert_shape(response, status, code)
    assert ("Retry-After" in response) is (status == 503)


@pytest.mark.parametrize("name", PAGES)
def test_pages_fail_as_pages(name: str) -> None:
    _error, status, _code = PAGES[name]
    response: Any = Client(raise_request_exception=False).get(f"/pages/{name}")
    assert response.status_code == status
    assert not response["Content-Type"].startswith("application/json")
    assert ("Retry-After" in response) is (status == 503)
    assert "X-Request-Id" in response


def test_what_http_itself_refuses(api: Api) -> None:
    assert_shape(api.get("nothing-here"), 404, "not_found")
    assert_shape(api.get("projects/999999"), 404, "not_found")
    assert_shape(api.get("projects/abc"), 404, "not_found")
    assert_shape(api.get("projects/99999999999999999999999"), 404, "not_found")
    assert_shape(api.delete("projects"), 405, "method_not_allowed")
    assert_shape(api.call("options", "projects"), 405, "method_not_allowed")
    assert_shape(api.get("projects?format=xml"), 404, "not_found")
    assert_shape(api.get("me", Accept="text/html"), 406, "not_acceptable")
    assert_shape(Api().get("me"), 401, "not_authenticated")


def test_bodies_that_cannot_be_read(api: Api) -> None:
    client = Client(raise_request_exception=False)

    def send(data: Any, content_type: str = "application/json") -> Any:
        return client.post(
            "/api/v1/projects", data=data, content_type=content_type, headers=api.headers
        )

    assert_shape(send("a=b", "application/x-www-form-urlencoded"), 415, "unsupported_media_type")
    for raw in (b"{", b"\xff\xfe", b'{"name": NaN}', b"\x80" * 100):
        assert_shape(send(raw), 400, "parse_error")
    for raw in (b"[]", b'"text"', b"1", b"null"):
        assert_shape(send(raw), 400, "invalid")
    assert_shape(send(b'{"name": "\\u0000", "slug": "a"}'), 400, "invalid")
    for raw in (b"[" * 100_000, b'{"name": "\\ud800"}', b'{"name": ' + b"1" * 5_000 + b"}"):
        assert_shape(send(raw), 400, "parse_error")
    assert_shape(send(b" " * 3_000_000), 413, "body_too_large")


def test_fields_are_flat_with_dots(api: Api) -> None:
    response = api.post("trouble/domain", {"name": "long", "items": [{"url": "x"}, {}]})
    body = assert_shape(response, 400, "invalid")
    assert set(body["fields"]) == {"name", "items.0.url", "items.1.url"}
    response = api.post("trouble/domain", {"name": "a", "items": []})
    body = assert_shape(response, 400, "invalid")
    assert (body["detail"], body["fields"]) == ("All of it is wrong.", {})


def test_messages_follow_the_language_and_codes_do_not(api: Api) -> None:
    english = api.post("projects", {}, Accept_Language="en").json()
    chinese = api.post("projects", {}, Accept_Language="zh-hans").json()
    assert english["code"] == chinese["code"] == "invalid"
    assert english["fields"]["name"] != chinese["fields"]["name"]


def test_the_request_id_of_the_caller_is_kept(api: Api) -> None:
    assert api.get("me", X_Request_Id="trace-1234")["X-Request-Id"] == "trace-1234"
    made = api.get("me", X_Request_Id="no good id")["X-Request-Id"]
    assert made != "no good id"
    assert len(made) == 32


async def test_request_ids_work_in_async_servers() -> None:
    from django.http import HttpRequest, HttpResponse

    from apps.access.services import current_request_id

    async def answer(request: HttpRequest) -> HttpResponse:
        return HttpResponse(current_request_id())

    request = RequestFactory().get("/", headers={"X-Request-Id": "trace-1234"})
    middleware: Any = RequestIdMiddleware(answer)
    response = await middleware(request)
    assert response.content == b"trace-1234"
    assert response["X-Request-Id"] == "trace-1234"
    assert current_request_id() == ""


def test_a_session_without_csrf_token_is_refused(user: User) -> None:
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(user)
    response = client.post("/api/v1/projects", data={}, content_type="application/json")
    assert_shape(response, 403, "permission_denied")
