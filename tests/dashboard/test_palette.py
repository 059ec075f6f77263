"""The command palette and the keys: what they find, for whom, at what cost."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from apps.access.models import User
from apps.access.states import Role
from tests.access.factories import enter, make_superuser, make_user
from tests.agents.factories import make_agent
from tests.jobs.factories import make_job, make_project, make_run

pytestmark = pytest.mark.django_db


def found(client: Client, typed: str) -> list[tuple[str, str]]:
    """(title, link) of each line."""
    answer = client.get(reverse("admin:search"), {"s": typed, "extended": "1"})
    assert answer.status_code == 200
    lines = re.findall(r'href="([^"]+)" data-title="([^"]+)"', answer.content.decode())
    return [(title, link) for link, title in lines]


@pytest.fixture
def root() -> User:
    return make_superuser()


def test_ours_answers_and_not_the_themes() -> None:
    assert reverse("admin:search") == reverse("dashboard:search")


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("written", ["{}", "#{}", "run {}", "run #{}", " {} "])
def test_a_run_is_found_by_its_number(root: User, written: str) -> None:
    run = make_run()
    assert (str(run), f"/runs/{run.pk}") in found(enter(root), written.format(run.pk))


def test_things_are_found_by_a_part_of_their_names(root: User) -> None:
    job = make_job(name="Morning papers")
    agent = make_agent(name="north-of-morning")
    project = make_project(name="Mornings")
    titles = {title for title, _link in found(enter(root), "morning")}
    assert {str(job), str(agent), str(project)} <= titles


def test_ids_lead_to_where_they_are_looked_up(root: User) -> None:
    client = enter(root)
    ((title, link),) = found(client, "1234567890123456789")
    assert "1234567890123456789" in title
    assert link.endswith("/look-up?id=1234567890123456789")
    uuid = "0b9b4a9e-6f0d-4d0e-9a53-1f2b3c4d5e6f"
    ((_title, link),) = found(client, uuid)
    assert link.endswith(f"/find?value={uuid}")


def test_pages_are_found_in_the_language_of_the_person(root: User) -> None:
    client = enter(root)
    assert any(link == "/admin/jobs/run/" for _title, link in found(client, "run"))
    client.cookies["django_language"] = "zh-hans"
    assert any(link == "/admin/jobs/run/" for _title, link in found(client, "运行"))


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("typed", ["", " ", "\x00", "9" * 400, "<b>", "'; --", "%", "\U0001f600"])
def test_nonsense_finds_nothing_and_breaks_nothing(root: User, typed: str) -> None:
    answer = enter(root).get(reverse("admin:search"), {"s": typed})
    assert answer.status_code == 200
    assert "<b>" not in answer.content.decode().replace("<b></b>", "")


def test_only_what_one_sees_is_found() -> None:
    mine, other = make_project(name="Mine"), make_project(name="Other")
    own, foreign = (make_run(job=make_job(project=each, name="Papers")) for each in (mine, other))
    client = enter(make_user(roles={mine: Role.VIEWER}))
    assert f"/runs/{own.pk}" in [link for _title, link in found(client, f"#{own.pk}")]
    assert found(client, f"#{foreign.pk}") == []
    links = [link for _title, link in found(client, "papers")]
    assert links == [f"/jobs/{own.job_id}"]
    assert found(client, "other") == []
    assert Client().get(reverse("admin:search"), {"s": "papers"}).status_code == 302


def test_it_costs_the_same_over_many_rows(root: User, django_assert_max_num_queries: Any) -> None:
    project = make_project()
    for number in range(30):
        make_job(project=project, name=f"Papers {number}")
    client = enter(root)
    with django_assert_max_num_queries(14):
        assert len(found(client, "papers")) == 6


def test_the_page_of_keys_names_only_where_one_may_go(root: User) -> None:
    text = enter(root).get(reverse("dashboard:keys")).content.decode()
    assert 'data-key="t" href="/admin/access/auditrecord/"' in text
    assert "<kbd>?</kbd>" in text
    project = make_project()
    scoped = enter(make_user(roles={project: Role.VIEWER}))
    text = scoped.get(reverse("dashboard:keys")).content.decode()
    assert 'data-key="j"' in text
    assert "/admin/access/auditrecord/" not in text
