"""Deliveries over REST."""

from __future__ import annotations

import pytest
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.projects.models import Build, Delivery
from apps.projects.states import BuildState
from tests.access.factories import Api, make_superuser, make_user
from tests.projects.factories import deliver, make_delivery, make_git_project
from tests.projects.webhooks import Signed, github, tag_push

pytestmark = pytest.mark.django_db


def test_deliveries_are_listed_and_shown() -> None:
    project = make_git_project()
    delivery = make_delivery(project)
    deliver(project, github("ping", {"zen": "新"}))
    api = Api(make_user(roles={project: Role.VIEWER}))
    rows = api.get("deliveries").json()["results"]
    assert [row["verdict"] for row in rows] == ["ignored", "built"]
    assert "body" not in rows[0]
    assert [row["code"] for row in api.get("deliveries?code=ping").json()["results"]] == ["ping"]
    shown = api.get(f"deliveries/{delivery.pk}").json()
    assert shown["body"] == bytes(delivery.body).decode()
    assert shown["headers"]["x-github-event"] == "push"
    assert shown["build"] == Build.objects.get().pk
    assert Api(make_superuser()).delete(f"deliveries/{delivery.pk}").status_code == 405


def test_a_list_reads_no_bodies(django_assert_num_queries: object) -> None:
    project = make_git_project()
    for number in range(20):
        make_delivery(project, f"prod/news/{number}")
    api = Api(make_superuser())
    with django_assert_num_queries(3) as queries:  # type: ignore[operator]
        assert len(api.get("deliveries").json()["results"]) == 20
    assert not [each for each in queries if '."body"' in each["sql"]]


@pytest.mark.covers("S1.4")
def test_a_delivery_is_judged_again_by_the_settings_of_today() -> None:
    project = make_git_project(tag_template="{version}")
    delivery = make_delivery(project)
    assert delivery.code == "tag_does_not_fit"
    project.tag_template = "{release}/{name}/{version}"
    project.save()
    person = make_user(roles={project: Role.OPERATOR})
    api = Api(person)
    answer = api.post(f"deliveries/{delivery.pk}/replay", Idempotency_Key="k1")
    assert answer.status_code == 201, answer.content
    again = Delivery.objects.get(pk=answer.json()["id"])
    assert (again.replay_of, again.verdict) == (delivery, "built")
    assert Build.objects.get().requested_by == person.get_username()
    repeated = api.post(f"deliveries/{delivery.pk}/replay", Idempotency_Key="k1")
    assert repeated.json()["id"] == again.pk
    trail = AuditRecord.objects.get(action="projects.replay_delivery")
    assert (trail.actor, trail.object_id) == (person, str(again.pk))
    # The tag is being built now, and has been later: another build is asked for by its page.
    assert api.post(f"deliveries/{again.pk}/replay").json()["code"] == "already_built"
    now = timezone.now()
    Build.objects.update(state=BuildState.FAILED, created_at=now, ended_at=now)
    assert api.post(f"deliveries/{delivery.pk}/replay").json()["verdict"] == "built"
    delivery.refresh_from_db()
    assert (delivery.code, delivery.repeats) == ("tag_does_not_fit", 0)


def test_a_refused_one_cannot_be_replayed() -> None:
    project = make_git_project()
    deliver(project, Signed(b"{}", github("push", tag_push("a/b/1"), secret="x").headers))
    refused = Delivery.objects.get()
    answer = Api(make_superuser()).post(f"deliveries/{refused.pk}/replay")
    assert (answer.status_code, answer.json()["code"]) == (409, "delivery_not_replayable")
