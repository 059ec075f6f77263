"""A biz that has enough to do takes no new requests until there is room again."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import translation

from apps.access.states import Role
from apps.projects.models import Project
from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.errors import BizFull
from apps.requeststore.queues.broker_queue import BrokerRequestQueue
from apps.requeststore.services.intake import submit
from apps.requeststore.services.store import shared_request_store
from apps.requeststore.services.upkeep import upkeep_once
from tests.access.factories import enter, make_user
from tests.requeststore.api.conftest import Caller
from tests.requeststore.factories import make_bizzes, pages, save_bizzes

pytestmark = pytest.mark.django_db
URL = "https://example.com/"
KEY = {"Idempotency_Key": "night"}


@pytest.fixture
def project(request_nodes: dict[str, str]) -> Project:
    return make_bizzes(news={"max_waiting": 3, "epochs": [{"splits": 2}]})


def fill(project: Project, number: int) -> None:
    yard = shared_request_store()
    yard.submit(yard.biz(project.pk, "news"), pages(number), by="tester", now=yard.now())


def stored(project: Project) -> int:
    yard = shared_request_store()
    return len(yard.page(yard.biz(project.pk, "news"), limit=1000))


def work_off(project: Project, number: int) -> None:
    yard = shared_request_store()
    assert yard.queue(yard.biz(project.pk, "news")).clear() == number


@pytest.mark.covers("S4.24")
def test_with_so_many_in_its_queue_it_takes_no_more_until_there_is_room(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str, float]] = []
    monkeypatch.setattr(
        "apps.requeststore.services.submission.count",
        lambda name, *, project, label, amount: told.append((name, label, amount)),
    )
    caller = Caller(project)
    caller.submit(URL, f"{URL}2")
    # What one call brings is taken whole: a large one would never fit else.
    caller.submit(URL, f"{URL}2", f"{URL}3")
    body = {"project": project.pk, "biz": "news", "requests": [URL, f"{URL}2"]}
    refused = caller.post("requests", body, **KEY)
    assert (refused.status_code, refused.json()["code"]) == (429, "biz_full")
    assert refused.json()["detail"] == ("The queue holds 5 requests; its limit is 3.")
    assert int(refused.headers["Retry-After"]) > 0
    assert stored(project) == 5
    assert told[-1] == ("requests.refused", "news", 2)
    # What a fetcher finds in pages comes in all the same: else it could make no room.
    fill(project, 1)
    work_off(project, 6)
    # A refusal is not what the key stands for: the repeat is the call.
    first = caller.post("requests", body, **KEY)
    assert first.status_code == 201
    work_off(project, 2)
    fill(project, 5)
    assert caller.post("requests", body, **KEY).json() == first.json(), "it is done already"
    assert stored(project) == 13
    assert caller.show(f"bizzes/{project.pk}.news")["max_waiting"] == 3


@pytest.mark.covers("S4.24")
def test_people_are_told_in_their_language(project: Project) -> None:
    fill(project, 3)
    client = enter(make_user(roles={project: Role.OPERATOR}))
    address = f"/admin/requeststore/shardreport/biz/{project.pk}.news/try-out"
    # Afterwards this thread speaks as before.
    with translation.override("en"):
        page = client.post(
            address, {"url": URL, "method": "GET"}, headers={"Accept-Language": "zh-hans"}
        )
    assert "队列中有 3 个请求，上限为 3 个。" in page.content.decode()
    assert stored(project) == 3
    page = client.get(f"/admin/requeststore/shardreport/biz/{project.pk}.news/")
    assert "queue limit" in page.content.decode()


@pytest.mark.covers("S4.24")
def test_the_command_says_how_far_it_came(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(project, 3)
    file = tmp_path / "urls.txt"
    file.write_text(URL)
    with pytest.raises(CommandError, match="The queue holds 3 requests") as error:
        call_command("requests", "submit", "news", str(file))
    assert error.value.returncode == 1
    assert "so far 0 of 1 are stored" in capsys.readouterr().err


@pytest.mark.covers("S4.24")
def test_while_the_queue_is_away_what_was_counted_last_is_known(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = shared_request_store()
    bound = yard.biz(project.pk, "news")

    def away(self: BrokerRequestQueue) -> None:
        raise RequestStoreUnavailable("the broker does not answer")

    monkeypatch.setattr(BrokerRequestQueue, "stats", away)
    # Nothing is counted yet.
    for _ in range(2):
        assert submit(bound, pages(2), by="tester").ids
    upkeep_once(yard, now=yard.now())
    with pytest.raises(BizFull, match="4 requests"):
        submit(bound, pages(1), by="tester")


@pytest.mark.covers("S4.24")
def test_it_is_changed_like_every_other_setting(project: Project) -> None:
    fill(project, 3)
    save_bizzes(project, news={"epochs": [{"splits": 2}]})
    shared_request_store().wake()
    assert len(Caller(project).submit(URL)["ids"]) == 1, "0, the default, is any number"
