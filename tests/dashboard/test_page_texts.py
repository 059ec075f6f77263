"""Words of every page: its zone, what is listed, names as they are, what was not counted."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.jobs.states import RunState
from tests.access.factories import enter, make_superuser
from tests.agents.factories import make_agent
from tests.jobs.factories import make_job, make_run
from tests.queuestats.factories import report

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    return enter(make_superuser())


def html(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("address", ["/admin/jobs/run/", "/admin/health", "/logs"])
def test_every_page_tells_the_zone_of_its_times(
    client: Client, settings: Any, address: str
) -> None:
    settings.TIME_ZONE = "Asia/Shanghai"
    with timezone.override("Asia/Shanghai"):
        head = html(client, address).partition('id="header-inner"')[2][:6000]
    assert re.search(r">\s*Asia/Shanghai\s*<", head)


def test_a_list_is_titled_by_what_it_lists(client: Client) -> None:
    title = re.search(r"<title>\s*(.*?)\s*</title>", html(client, "/admin/jobs/run/"), re.DOTALL)
    assert title is not None
    assert title[1] == "Runs | Crawlyard"


def test_the_name_of_a_thing_keeps_its_letters(client: Client) -> None:
    agent = make_agent(agent_id="south", name="south")
    head = html(client, f"/admin/agents/agent/{agent.pk}/change/").partition("<h1")[2]
    assert re.search(r">\s*south\s*<", head.partition("</h1>")[0])


def test_a_run_that_counted_nothing_does_not_claim_to_balance(client: Client) -> None:
    silent = make_run(state=RunState.RUNNING)
    told = make_run(job=make_job(), state=RunState.RUNNING)
    report(told, total=1, queued=1)
    assert "data-unreported" in html(client, f"/runs/{silent.pk}")
    assert "data-unreported" not in html(client, f"/runs/{told.pk}")
    assert "No state changes yet." in html(client, f"/runs/{silent.pk}")


def test_a_password_is_replaced_by_a_link_in_words_of_ours(client: Client) -> None:
    person = make_superuser()
    page = html(client, f"/admin/access/user/{person.pk}/change/")
    assert "Passwords cannot be read, only replaced." in page
    assert 'href="../password/"' in page
