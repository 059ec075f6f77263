"""Deliveries at the same moment, on a shared database; ``test_on_postgres`` runs this."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.db import connections

from apps.projects.models import Build, Delivery, Image, Project
from apps.projects.services.deliveries import KEPT_REFUSED
from apps.projects.states import DeliveryVerdict
from tests.projects.factories import deliver, make_git_project
from tests.projects.test_webhooks import DIGEST, REGISTRY, pushed
from tests.projects.webhooks import Signed, github, image_push, tag_push

pytestmark = pytest.mark.django_db(transaction=True)
MANY = 8


def at_once(project: Project, sent: list[Signed]) -> list[Any]:
    """The answers, in the order of ``sent``."""
    start = Barrier(len(sent), timeout=60)

    def send(each: Signed) -> Any:
        start.wait()
        try:
            return deliver(project, each)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(sent)) as pool:
        return list(pool.map(send, sent))


@pytest.mark.parametrize("turn", range(3))
def test_one_delivery_that_comes_many_times(turn: int) -> None:
    project = make_git_project()
    answers = at_once(project, [github("push", tag_push("prod/news/1.2"))] * MANY)
    assert {each.status_code for each in answers} == {202}
    assert sorted(each.json()["code"] for each in answers) == ["", *["repeated"] * (MANY - 1)]
    assert len({each.json()["delivery"] for each in answers}) == 1
    delivery = Delivery.objects.get(project=project)
    assert (delivery.repeats, delivery.verdict) == (MANY - 1, DeliveryVerdict.BUILT)
    assert Build.objects.get(project=project) == delivery.build


@pytest.mark.parametrize("turn", range(3))
def test_many_deliveries_of_one_tag(turn: int) -> None:
    project = make_git_project()
    sent = [github("push", tag_push("prod/news/1.2")) for _ in range(MANY)]
    answers = at_once(project, sent)
    assert {each.status_code for each in answers} == {202}
    codes = sorted(each.json()["code"] for each in answers)
    assert codes == ["", *["already_built"] * (MANY - 1)]
    build = Build.objects.get(project=project)
    assert set(Delivery.objects.values_list("build", flat=True)) == {build.pk}


def test_many_pushes_of_one_image() -> None:
    project = make_git_project(**REGISTRY)
    payloads = [image_push("1.2", digest=DIGEST) | {"number": n} for n in range(MANY)]
    answers = at_once(project, [pushed(each) for each in payloads])
    codes = sorted(each.json()["code"] for each in answers)
    assert codes == ["", *["image_known"] * (MANY - 1)]
    assert Image.objects.get().tag == "1.2"


def test_many_refused_ones() -> None:
    project = make_git_project()
    for _ in range(KEPT_REFUSED // MANY + 1):
        answers = at_once(project, [Signed(b"{}")] * MANY)
        assert {each.status_code for each in answers} == {401}
    assert Delivery.objects.filter(project=project).count() <= KEPT_REFUSED + MANY
    assert deliver(project, Signed(b"{}")).status_code == 401
    assert Delivery.objects.filter(project=project).count() == KEPT_REFUSED
