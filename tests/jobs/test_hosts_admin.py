"""Hosts of runs in the admin: what is shown, and who may switch and forget them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from apps.access.states import Role
from apps.jobs.models import Host
from apps.jobs.states import HostMode
from tests.access.factories import make_superuser, make_user
from tests.confirmation import press
from tests.jobs.factories import make_host, make_job, make_project

pytestmark = pytest.mark.django_db

LIST = "/admin/jobs/host/"


def client_of(role: Role) -> Client:
    client = Client()
    client.force_login(make_user(roles={make_project(): role}, is_staff=True))
    return client


@pytest.mark.covers("S1.52", "S1.54")
def test_the_list_and_the_page_show_how_a_host_is(django_assert_max_num_queries: object) -> None:
    make_host("fine", beat_at=timezone.now(), running=2, labels={"gpu": "yes"})
    make_host("stuck", beat_at=timezone.now(), problem="Docker does not answer")
    gone = make_host("gone", beat_at=timezone.now() - timedelta(seconds=61))
    client = client_of(Role.VIEWER)
    page = client.get(LIST).content.decode()
    for words in ("online", "starts no runs", "offline", "2 / 4", "10 %", "2.0"):
        assert words in page
    page = client.get(f"{LIST}{gone.pk}/change/").content.decode()
    assert "offline" in page
    assert f"{LIST}{gone.pk}/drain" not in page


def test_only_an_admin_switches() -> None:
    host = make_host("one", beat_at=timezone.now())
    refused = client_of(Role.OPERATOR).post(f"{LIST}{host.pk}/drain")
    assert refused.status_code == 403
    client = client_of(Role.ADMIN)
    assert f"{LIST}{host.pk}/drain" in client.get(f"{LIST}{host.pk}/change/").content.decode()
    for verb, mode in [("drain", "draining"), ("disable", "disabled"), ("enable", "enabled")]:
        page = client.post(f"{LIST}{host.pk}/{verb}", follow=True).content.decode()
        assert f"Host one is now {mode}." in page
        host.refresh_from_db()
        assert host.mode == mode
    assert client.get(f"{LIST}{host.pk}/drain").status_code == 405
    assert client.post(f"{LIST}999/drain").status_code == 404


def test_bulk_actions_switch_and_forget() -> None:
    here = make_host("here", beat_at=timezone.now())
    gone = make_host("gone", beat_at=timezone.now() - timedelta(seconds=61))
    client = client_of(Role.ADMIN)

    def act(name: str) -> str:
        data = {"action": name, "_selected_action": [here.pk, gone.pk]}
        return press(client, LIST, data, follow=True).content.decode()

    assert "2 hosts are now draining." in act("drain_selected")
    assert set(Host.objects.values_list("mode", flat=True)) == {HostMode.DRAINING}
    page = act("forget_selected")
    assert "Host here is online; stop its runner first." in page
    assert "1 host was deleted." in page
    assert [host.name for host in Host.objects.all()] == ["here"]


def test_of_many_refusals_the_first_are_told_and_the_others_counted() -> None:
    """A message for each would not fit into the session of whoever has ticked a whole list."""
    hosts = [make_host(f"h{number}", beat_at=timezone.now()) for number in range(13)]
    client = client_of(Role.ADMIN)
    ticked = {"action": "forget_selected", "_selected_action": [host.pk for host in hosts]}
    page = press(client, LIST, ticked, follow=True).content.decode()
    assert page.count("is online; stop its runner first.") == 10
    assert "3 more were refused." in page


@pytest.mark.slow("2 s")
def test_the_page_of_a_job_tells_where_a_run_would_go() -> None:
    make_host("<b>plain</b>", beat_at=timezone.now())
    job = make_job(host_labels={"gpu": "yes"})
    client, address = Client(), f"/jobs/{job.pk}"
    client.force_login(make_superuser())
    page = client.get(address).content.decode()
    assert "No host would take a run now" in page
    assert "&lt;b&gt;plain&lt;/b&gt;</td>" in page
    assert "label gpu=yes is missing</td>" in page
    Host.objects.update(labels={"gpu": "yes"})
    page = client.get(address).content.decode()
    assert "A run started now would go to &lt;b&gt;plain&lt;/b&gt;</summary>" in page
