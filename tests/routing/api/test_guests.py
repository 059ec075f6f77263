"""Clients of open networks need no token on the seed's own paths (S2.6 to S2.8)."""

from __future__ import annotations

from typing import Any

import pytest

from apps.access.states import Role
from apps.projects.models import Project
from apps.routing.engine.rules import Server
from apps.routing.engine.servers import LOOPBACK_ONLY, Ports, read_ports, refusal
from apps.routing.models import RoutedItem
from crawlyard.settings.routing import anonymous_networks, routing_servers
from tests.access.factories import Api, bearer, make_project, make_token, make_user
from tests.routing.api.active_rules import activate_rules, send
from yardkit.env import Env, EnvError

TASK = {"data_type": "change"}


@pytest.fixture
def project() -> Project:
    found = make_project(slug="ic")
    activate_rules(found)
    return found


@pytest.fixture
def _open(settings: Any) -> None:
    networks = Env({"COMPAT_ANONYMOUS_FROM": "10.8.0.0/16, fd00::/8"})
    settings.COMPAT_ANONYMOUS_FROM = anonymous_networks(networks)


def post(path: str, address: str, **headers: str) -> Any:
    return send(path, TASK, REMOTE_ADDR=address, headers=headers)


@pytest.mark.django_db
@pytest.mark.usefixtures("_open")
@pytest.mark.covers("S2.6", "S2.7", "S2.8")
def test_clients_of_an_open_network_use_the_seed_s_paths(project: Project) -> None:
    for address in ("10.8.6.222", "::ffff:10.8.6.222", "fd00::1"):
        assert post("/task/", address).json()["items"][0]["fate"] == "accepted"
        assert post("/projects/ic/task/", address).status_code == 200
        assert post("/inbound/http/check_task/", address).status_code == 200
        assert Api()._client.get("/outbound/", REMOTE_ADDR=address).status_code == 200
    assert RoutedItem.objects.count() == 6
    assert post("/projects/nowhere/task/", "10.8.6.222").status_code == 404
    activate_rules(make_project(slug="other"))
    refused = post("/task/", "10.8.6.222")
    assert (refused.status_code, refused.json()["code"]) == (409, "project_needed")


@pytest.mark.django_db
@pytest.mark.usefixtures("_open")
def test_nobody_else_and_nothing_else_is_let_in(project: Project) -> None:
    for address in ("10.9.0.1", "127.0.0.1", "", "nonsense"):
        assert post("/task/", address).status_code == 401
    # What a client says of itself is not believed.
    lies = {"X-Forwarded-For": "10.8.6.222", "X-Real-IP": "10.8.6.222", "Forwarded": "for=10.8.6.1"}
    assert post("/task/", "192.0.2.1", **lies).status_code == 401
    for path in ("projects", "items", f"projects/{project.pk}"):
        found = Api()._client.get(f"/api/v1/routing/{path}", REMOTE_ADDR="10.8.6.222")
        assert found.status_code == 401
    assert post(f"/api/v1/routing/projects/{project.pk}/task", "10.8.6.222").status_code == 401


@pytest.mark.django_db
@pytest.mark.usefixtures("_open")
def test_who_shows_a_token_is_held_to_it(project: Project) -> None:
    viewer = bearer(make_token(make_user(roles={project: Role.VIEWER})))
    assert post("/task/", "10.8.6.222", **viewer).status_code == 403
    assert post("/task/", "10.8.6.222", Authorization="Bearer cy_no_no").status_code == 401


@pytest.mark.django_db
@pytest.mark.usefixtures("_open")
def test_a_page_of_another_site_cannot_have_a_browser_submit(project: Project) -> None:
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=a",
        "",
    ):
        answer = send("/task/", TASK, REMOTE_ADDR="10.8.6.222", content_type=kind)
        assert answer.status_code == 415, kind
    asked = Api()._client.options("/task/", REMOTE_ADDR="10.8.6.222")
    assert asked.status_code == 405
    assert "Access-Control-Allow-Origin" not in asked.headers
    assert not RoutedItem.objects.exists()


@pytest.mark.django_db
@pytest.mark.usefixtures("_open")
def test_keys_of_guests_hold_too(project: Project) -> None:
    first = post("/task/", "10.8.6.222", Idempotency_Key="")
    assert first.status_code == 400
    keyed = {"Idempotency-Key": "k1"}
    one = post("/task/", "10.8.6.222", **keyed)
    again = post("/task/", "10.8.6.222", **keyed)
    assert one.json() == again.json()
    assert again["Idempotent-Replayed"] == "true"


@pytest.mark.django_db
@pytest.mark.usefixtures("_open")
def test_guests_are_counted_by_their_address(
    project: Project, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "apps.access.api.throttles.api_settings.DEFAULT_THROTTLE_RATES", {"user": "2/day"}
    )
    for number in range(3):
        forged = {"X-Forwarded-For": f"10.8.1.{number}"}
        last = post("/task/", "10.8.77.1", **forged).status_code
    assert last == 429
    assert post("/task/", "10.8.77.2").status_code == 200


# --- settings -------------------------------------------------------------------------------------


def test_nobody_is_let_in_unless_a_setting_says_so() -> None:
    assert anonymous_networks(Env({})) == ()


@pytest.mark.parametrize("text", ["10.8.0.1/16", "everybody", "10.8.0.0/33"])
def test_a_network_that_is_none_is_refused_by_the_name_of_the_setting(text: str) -> None:
    with pytest.raises(EnvError, match=r"^COMPAT_ANONYMOUS_FROM: "):
        anonymous_networks(Env({"COMPAT_ANONYMOUS_FROM": text}))


def test_where_rules_may_listen() -> None:
    assert routing_servers(Env({})) == LOOPBACK_ONLY
    allowed = routing_servers(Env({"ROUTING_SERVERS": "0.0.0.0:8517-8526,[::1]:80"}))
    everywhere = "0.0.0.0"  # noqa: S104 - as the seed writes it
    assert allowed == (Ports(everywhere, 8517, 8526), Ports("::1", 80, 80))
    assert refusal(Server(everywhere, 8526), allowed) == ""
    assert refusal(Server("::1", 80), allowed) == ""
    for server in (Server(everywhere, 8527), Server("10.8.6.222", 8526), Server("::", 8526)):
        assert "ROUTING_SERVERS" in refusal(server, allowed)
    assert refusal(Server("localhost", 8526), LOOPBACK_ONLY) == ""
    assert "no address" in refusal(Server("example.com", 8526), LOOPBACK_ONLY)
    assert "ROUTING_SERVERS" in refusal(Server("127.0.0.1", 1023), LOOPBACK_ONLY)


@pytest.mark.parametrize(
    "text", ["8526", "10.8.0.1", "host:80", "10.8.0.1:0", "10.8.0.1:9-8", "::1:99999"]
)
def test_a_place_that_is_none_is_refused_by_the_name_of_the_setting(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_ports(text)
    with pytest.raises(EnvError, match=r"^ROUTING_SERVERS: "):
        routing_servers(Env({"ROUTING_SERVERS": text}))
