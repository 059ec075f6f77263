"""Rules and states of hosts: services, admin, REST."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.agents.center.politeness.engine import HostView
from apps.agents.center.politeness.limits import HostRuleLimits
from apps.agents.hosts.host_keeper import HostKeeper
from apps.agents.hosts.models import HostRule, HostState
from apps.agents.hosts.services import (
    forget_states,
    load_rules,
    resume_host,
    save_states,
    stop_host,
)
from tests.access.factories import Api, make_superuser, make_user
from tests.agents.test_admin import logged_in, said
from tests.jobs.factories import make_project
from yardkit.clock import ManualClock

pytestmark = pytest.mark.django_db

RULES = "/admin/agents/hostrule/"
STATES = "/admin/agents/hoststate/"


def seen(host: str, **fields: Any) -> HostView:
    values = {
        "held": 3,
        "in_flight": 1,
        "stopped": False,
        "blocked_seconds": 0.0,
        "reason": "",
        "robots": "read",
    }
    return HostView(host=host, **(values | fields))  # type: ignore[arg-type]


def actions() -> list[str]:
    rows = AuditRecord.objects.filter(action__startswith="agents.").order_by("id")
    return list(rows.values_list("action", flat=True))


@pytest.mark.parametrize(
    "host", ["example.com", "*.example.com", "localhost", "127.0.0.1", "::1", "xn--bcher-kva.test"]
)
def test_names_of_hosts(host: str) -> None:
    HostRule(host=host).full_clean()


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    "host",
    [
        "",
        "Example.com",
        "a b",
        "http://a",
        "a:80",
        "*",
        "*.*.a",
        "a.*",
        "0::1",
        "a/b",
        ".a",
        "a..b",
    ],
)
def test_what_is_no_host(host: str) -> None:
    with pytest.raises(ValidationError):
        HostRule(host=host).full_clean()
    assert Api(make_superuser()).post("host-rules", {"host": host}).status_code == 400


@pytest.mark.parametrize("rate", [-1, float("nan"), float("inf")])
def test_what_is_no_rate(rate: float) -> None:
    with pytest.raises(ValidationError):
        HostRule(host="a", requests_per_second=rate).full_clean()


def test_stop_and_resume_are_recorded_once_and_leave_no_empty_rule() -> None:
    assert stop_host(host="a.test", actor=None)
    assert not stop_host(host="a.test", actor=None)
    assert load_rules() == [HostRuleLimits("a.test", stopped=True)]
    assert resume_host(host="a.test", actor=None)
    assert not resume_host(host="a.test", actor=None)
    assert load_rules() == []
    assert actions() == ["agents.stop_host", "agents.resume_host"]
    HostRule.objects.create(host="b.test", concurrency=1)
    stop_host(host="b.test", actor=None)
    resume_host(host="b.test", actor=None)
    assert load_rules() == [HostRuleLimits("b.test", concurrency=1)]
    with pytest.raises(ValidationError):
        stop_host(host="no host", actor=None)


def test_a_center_writes_its_hosts_in_two_queries_and_takes_idle_ones_away(
    django_assert_num_queries: Any,
) -> None:
    now = timezone.now()
    save_states(center="c2", views=[seen("h0")], now=now)
    save_states(center="c1", views=[seen(f"h{n}") for n in range(50)], now=now)
    with django_assert_num_queries(4):  # with the savepoint
        save_states(
            center="c1", views=[seen("h1", held=9, blocked_seconds=30.0, reason="x" * 600)], now=now
        )
    state = HostState.objects.get(center="c1")
    assert (state.host, state.held, state.blocked_until) == ("h1", 9, now + timedelta(seconds=30))
    assert HostState.objects.filter(center="c2").exists()
    save_states(center="c1", views=[], now=now)
    forget_states(now + timedelta(seconds=11))
    assert not HostState.objects.exists()


@pytest.mark.slow("1 s")
def test_a_rule_is_made_changed_and_deleted_in_the_admin() -> None:
    client = logged_in(make_superuser())
    values = {"host": "a.test", "requests_per_second": "0.5", "obey_robots": "unknown"}
    assert client.post(f"{RULES}add/", values).status_code == 302
    rule = HostRule.objects.get()
    save_states(center="c1", views=[seen("a.test", held=17, in_flight=4)], now=timezone.now())
    save_states(center="c2", views=[seen("a.test", held=5)], now=timezone.now())
    page = client.get(RULES).content.decode()
    for text in ("a.test", "0.5", "default of the settings", "set by the job", "open", ">22<"):
        assert text in page, text
    page = client.get(f"{RULES}{rule.pk}/change/").content.decode()
    assert f"{RULES}{rule.pk}/stop" in page
    response = client.post(f"{RULES}{rule.pk}/stop")
    assert said(response) == ["Host a.test is stopped: all requests to it are deferred."]
    assert client.get(f"{RULES}{rule.pk}/resume").status_code == 405
    assert "stopped" in client.get(RULES).content.decode()
    client.post(f"{RULES}{rule.pk}/resume")
    assert not HostRule.objects.get().stopped
    client.post(f"{RULES}{rule.pk}/delete/", {"post": "yes"})
    assert actions() == [
        "agents.add_hostrule",
        "agents.stop_host",
        "agents.resume_host",
        "agents.delete_hostrule",
    ]


def test_the_list_of_hosts_shows_how_they_are_and_stops_them(
    django_assert_max_num_queries: Any,
) -> None:
    busy = seen("busy.test", blocked_seconds=60.0, reason="busy.test was too busy")
    views = [busy, seen("calm.test"), seen("no.test", stopped=True, robots="unreachable")]
    save_states(center="c1", views=views, now=timezone.now())
    client = logged_in(make_superuser())
    with django_assert_max_num_queries(14) as few:
        page = client.get(STATES).content.decode()
    for text in ("busy.test was too busy", "paused", "calm.test", "unreachable", "stopped"):
        assert text in page, text
    more = [seen(f"h{number}.test") for number in range(30)]
    save_states(center="c2", views=more, now=timezone.now())
    with django_assert_max_num_queries(len(few)):
        client.get(STATES)
    chosen = {"_selected_action": [HostState.objects.get(host="calm.test").pk]}
    response = client.post(STATES, {"action": "stop_selected", **chosen})
    assert said(response) == ["1 host was stopped."]
    assert HostRule.objects.get(host="calm.test").stopped
    client.post(STATES, {"action": "resume_selected", **chosen})
    assert not HostRule.objects.exists()
    assert client.get(f"{STATES}add/").status_code == 403


def test_only_admins_of_a_project_decide_about_hosts() -> None:
    rule = HostRule.objects.create(host="a.test")
    viewer = logged_in(make_user(roles={make_project(): Role.EDITOR}, is_staff=True))
    assert viewer.get(RULES).status_code == 200
    page = viewer.get(f"{RULES}{rule.pk}/change/").content.decode()
    assert f"{RULES}{rule.pk}/stop" not in page
    assert viewer.post(f"{RULES}{rule.pk}/stop").status_code == 403
    assert viewer.get(f"{RULES}add/").status_code == 403
    assert viewer.post(f"{RULES}{rule.pk}/change/", {"host": "b.test"}).status_code == 403
    stranger = logged_in(make_user(is_staff=True))
    assert stranger.get(RULES).status_code == 403
    assert stranger.get(STATES).status_code == 403


def test_rules_over_rest() -> None:
    admin = Api(make_user(roles={make_project(): Role.ADMIN}))
    made = admin.post("host-rules", {"host": "*.a.test", "requests_per_second": 2.5})
    assert made.status_code == 201
    number = made.json()["id"]
    assert made.json()["obey_robots"] is None
    assert admin.post("host-rules", {"host": "*.a.test"}).status_code == 400
    changed = admin.patch(f"host-rules/{number}", {"concurrency": 3, "obey_robots": False})
    assert (changed.json()["concurrency"], changed.json()["obey_robots"]) == (3, False)
    assert admin.patch(f"host-rules/{number}", {"concurrency": -1}).status_code == 400
    assert admin.post(f"host-rules/{number}/stop").json() == {"host": "*.a.test", "stopped": True}
    assert admin.get("host-rules?stopped=true").json()["results"][0]["id"] == number
    assert admin.post(f"host-rules/{number}/resume").json()["stopped"] is False
    assert load_rules() == [HostRuleLimits("*.a.test", 2.5, 3, False, False)]
    assert admin.delete(f"host-rules/{number}").status_code == 204
    assert actions() == [
        "agents.add_hostrule",
        "agents.change_hostrule",
        "agents.stop_host",
        "agents.resume_host",
        "agents.delete_hostrule",
    ]
    editor = Api(make_user(roles={make_project(): Role.EDITOR}))
    assert editor.post("host-rules", {"host": "b.test"}).status_code == 403
    assert editor.get("host-rules").status_code == 200


def test_states_over_rest() -> None:
    save_states(center="c1", views=[seen("a.test", held=7)], now=timezone.now())
    api = Api(make_user(roles={make_project(): Role.VIEWER}))
    (row,) = api.get("hosts").json()["results"]
    assert (row["host"], row["center"], row["held"], row["robots"]) == ("a.test", "c1", 7, "read")
    assert api.get(f"hosts/{row['id']}").json()["host"] == "a.test"
    assert Api(make_superuser()).post("hosts", {}).status_code == 405


def test_the_more_hosts_there_are_the_less_often_they_are_written(
    django_assert_num_queries: Any,
) -> None:
    class Shown:
        def views(self) -> list[HostView]:
            return [seen(f"h{number}.test") for number in range(1000)]

    clock = ManualClock()
    keeping = HostKeeper(gate=Shown(), center="c1", clock=clock)  # type: ignore[arg-type]
    keeping.save_states()
    assert HostState.objects.count() == 1000
    with django_assert_num_queries(0):
        for _second in range(4):
            clock.advance(1.0)
            keeping.save_states()
    clock.advance(1.0)
    HostState.objects.all().delete()
    keeping.save_states()
    assert HostState.objects.count() == 1000
