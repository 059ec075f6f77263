"""Hosts of runs over REST: who may what, and what placement says before a start."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.access.states import Role
from apps.jobs.models import Host
from tests.access.factories import Api, make_user
from tests.jobs.factories import make_host, make_job, make_project

pytestmark = pytest.mark.django_db

HOSTS = "/api/v1/run-hosts"


def api(role: Role) -> tuple[Api, object]:
    project = make_project()
    return Api(make_user(roles={project: role})), project


@pytest.mark.covers("S1.52", "S1.54")
def test_a_host_shows_itself_and_whether_it_is_online() -> None:
    caller, _project = api(Role.VIEWER)
    now = timezone.now()
    make_host("here", beat_at=now - timedelta(seconds=50), labels={"gpu": "yes"}, kind="docker")
    make_host("gone", beat_at=now - timedelta(seconds=70))
    found = {row["name"]: row for row in caller.get(HOSTS).json()["results"]}
    assert {name: row["online"] for name, row in found.items()} == {"here": True, "gone": False}
    assert found["here"]["labels"] == {"gpu": "yes"}
    assert {"cpu_percent", "cores", "memory_free_bytes", "system", "version"} < set(found["here"])
    only = caller.get(f"{HOSTS}?kind=docker&mode=enabled").json()["results"]
    assert [row["name"] for row in only] == ["here"]


def test_an_admin_drains_enables_and_forgets_and_others_do_not() -> None:
    host = make_host("one", beat_at=timezone.now())
    viewer, _project = api(Role.OPERATOR)
    assert viewer.post(f"{HOSTS}/{host.pk}/drain").status_code == 403
    admin, _project = api(Role.ADMIN)
    assert admin.post(f"{HOSTS}/{host.pk}/drain").json()["mode"] == "draining"
    assert admin.post(f"{HOSTS}/{host.pk}/disable").json()["mode"] == "disabled"
    assert admin.post(f"{HOSTS}/{host.pk}/enable").json()["mode"] == "enabled"
    assert admin.patch(f"{HOSTS}/{host.pk}", {"mode": "draining"}).json()["mode"] == "draining"
    refused = admin.patch(f"{HOSTS}/{host.pk}", {"mode": "asleep"})
    assert refused.status_code == 400
    assert "mode" in refused.content.decode()
    online = admin.delete(f"{HOSTS}/{host.pk}")
    assert (online.status_code, online.json()["code"]) == (409, "host_online")
    Host.objects.update(beat_at=timezone.now() - timedelta(seconds=61))
    assert admin.delete(f"{HOSTS}/{host.pk}").status_code == 204
    assert not Host.objects.exists()


@pytest.mark.covers("S1.54", "S1.56")
def test_placement_is_explained_before_a_start() -> None:
    caller, project = api(Role.VIEWER)
    job = make_job(project=project, host_labels={"gpu": "yes"})
    make_host("plain", beat_at=timezone.now())
    told = caller.get(f"/api/v1/jobs/{job.pk}/placement").json()
    assert told["chosen"] == ""
    assert told["reason"] == "host plain: label gpu=yes is missing"
    make_host("fast", beat_at=timezone.now(), labels={"gpu": "yes"})
    told = caller.get(f"/api/v1/jobs/{job.pk}/placement").json()
    assert (told["chosen"], told["reason"]) == ("fast", "")
    assert [(row["host"], row["eligible"]) for row in told["hosts"]] == [
        ("fast", True),
        ("plain", False),
    ]
    assert caller.get(f"/api/v1/jobs/{make_job().pk}/placement").status_code == 404
