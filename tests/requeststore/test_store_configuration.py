"""The yard and its configuration: versions, epochs, what is switched off or cannot be applied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings

from apps.requeststore.engine.errors import UnknownBiz
from apps.requeststore.engine.flags import PROCESSED
from apps.requeststore.engine.placement import split_of
from apps.requeststore.errors import BizDisabled
from apps.requeststore.models import ShardReport
from apps.requeststore.services.store import (
    RequestStore,
    close_shared_request_store,
    shared_request_store,
)
from apps.requeststore.stores.base import EndCode
from crawlyard.settings.requests import RequestNodes
from tests.requeststore.factories import make_bizzes, pages, save_bizzes
from tests.requeststore.store_steps import FOUR, OWNER, begin, finished, from_queue, taken
from yardkit.clock import ManualClock
from yardkit.env import Env

pytestmark = pytest.mark.django_db


@pytest.mark.covers("S4.9", "S4.10")
def test_a_new_version_is_in_force_at_the_next_poll(yard: RequestStore) -> None:
    bound = begin(yard)
    project_id = bound.project_id
    with pytest.raises(UnknownBiz, match="sports"):
        yard.biz(project_id, "sports")
    ShardReport.objects.all().delete()
    number = save_bizzes(_project(project_id), news={}, sports={"priority": 5})
    yard.wake()
    assert yard.poll()
    assert [each.name for each in yard.bizzes()] == ["sports", "news"]
    assert yard.biz(project_id, "sports").version == number
    assert yard.bizzes(project_id + 1) == []


@pytest.mark.covers("S4.10")
def test_it_is_in_force_within_a_second_of_use(request_nodes: dict[str, str]) -> None:
    clock = ManualClock()
    yard = RequestStore(name="tester", clock=clock)
    project = make_bizzes(news={})
    yard.setup()
    save_bizzes(project, news={"priority": 7})
    clock.advance(0.99)
    yard.poll()
    assert yard.biz(project.pk, "news").settings.priority == 7
    yard.close()


def _project(pk: int) -> Any:
    from apps.projects.models import Project

    return Project.objects.get(pk=pk)


@pytest.mark.slow("1 s")
@pytest.mark.covers("S4.14", "S4.29")
def test_old_ids_stay_reachable_whatever_is_saved(yard: RequestStore) -> None:
    bound = begin(yard, **FOUR)
    project = _project(bound.project_id)
    now = yard.now()
    ids = yard.submit(bound, pages(20), by="tester", now=now)
    for biz in (
        # As it should be done, with fewer and other splits; in place; with another name, and away
        # from a node altogether.
        {"epochs": [*FOUR["epochs"], {"since": now + 1, "splits": 2, "balance": "consistent"}]},
        {"epochs": [{"splits": 7}]},
        {"collection": "elsewhere", "database": "another"},
        {"epochs": [{"splits": 4, "nodes": ["second"]}]},
    ):
        save_bizzes(project, news=biz)
        yard.wake()
        assert yard.poll()
        changed = yard.biz(project.pk, "news")
        fresh = RequestStore(name="another process")
        fresh.setup()
        for number in ids:
            found = fresh.find(number)
            assert found is not None
            assert found.request.id == number
        fresh.close()
        page = yard.page(changed, limit=1000)
        assert {*ids} <= {found.request.id for found in page}
    changed = yard.biz(project.pk, "news")
    takes = yard.take(changed, from_queue(yard, changed), owner=OWNER, now=yard.now())
    requests = [take.request for take in takes if take.request is not None]
    assert [each.id for each in requests] == ids
    codes = yard.finish(changed, finished(requests, PROCESSED), owner=OWNER, now=yard.now())
    assert codes == [EndCode.DONE] * 20


@pytest.mark.covers("S4.14")
def test_a_new_epoch_takes_what_comes_after_its_beginning(yard: RequestStore) -> None:
    bound = begin(
        yard, epochs=[{"splits": 2}, {"since": 2_000_000_000_000, "splits": 8, "nodes": ["second"]}]
    )
    before = yard.submit(bound, pages(16), by="tester", now=1_999_999_999_999)
    after = yard.submit(bound, pages(16), by="tester", now=2_000_000_000_000)
    for number, epoch in [(each, 0) for each in before] + [(each, 1) for each in after]:
        found = yard.find(number, bound.project_id, "news")
        assert found is not None
        assert found.place.node == ("default", "second")[epoch]
        split = split_of(number, bound.settings.epochs[epoch])
        assert found.place.shard.collection == f"requests_{split:03d}"


def test_a_disabled_biz_takes_no_more_and_gives_out_what_it_has(yard: RequestStore) -> None:
    bound = begin(yard)
    yard.submit(bound, pages(1), by="tester", now=yard.now())
    save_bizzes(_project(bound.project_id), news={"enabled": False})
    yard.wake()
    yard.poll()
    bound = yard.biz(bound.project_id, "news")
    with pytest.raises(BizDisabled):
        yard.submit(bound, pages(1), by="tester", now=yard.now())
    assert len(taken(yard, bound)) == 1


@pytest.mark.covers("S4.10")
@pytest.mark.parametrize(
    ("biz", "text"),
    [
        ({"epochs": [{"nodes": ["default", "mars"]}]}, "no node mars"),
        ({"database": "news"}, "holds requests of the biz news"),
    ],
)
def test_what_cannot_be_applied_is_told_and_the_last_version_goes_on(
    yard: RequestStore, biz: dict[str, Any], text: str
) -> None:
    bound = begin(yard)
    yard.submit(bound, pages(1), by="tester", now=yard.now())
    save_bizzes(_project(bound.project_id), renamed=biz)
    yard.wake()
    yard.poll()
    assert text in yard.problems[bound.project_id]
    assert yard.biz(bound.project_id, "news").version == bound.version


@pytest.mark.covers("S4.10")
def test_one_bad_biz_keeps_a_new_process_from_no_other(yard: RequestStore) -> None:
    project = make_bizzes(news={}, lost={"epochs": [{"nodes": ["nowhere"]}]})
    yard.setup()
    assert "nowhere" in yard.problems[project.pk]
    assert [each.name for each in yard.bizzes(project.pk)] == ["news"]
    with pytest.raises(UnknownBiz):
        yard.biz(project.pk, "lost")
    save_bizzes(project, news={"priority": 2}, lost={})
    yard.wake()
    yard.poll()
    assert sorted(each.name for each in yard.bizzes(project.pk)) == ["lost", "news"]
    assert project.pk not in yard.problems


@pytest.mark.covers("S4.9", "S4.10", "S4.13")
def test_a_node_is_added_without_a_restart(
    request_nodes: dict[str, str],
    tmp_path: Path,
    settings: LazySettings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("crawlyard.settings.requests.LOOK_SECONDS", 0.0)
    file = tmp_path / "nodes"
    file.write_text(f"second={request_nodes['second']}\n")
    env = Env({"REQUESTS_NODES_FILE": str(file)})
    settings.REQUESTS_NODES = RequestNodes(env, request_nodes["default"])
    clock = ManualClock()
    yard = RequestStore(name="tester", clock=clock)
    project = make_bizzes(news={"epochs": [{"nodes": ["default"]}]})
    yard.setup()
    assert yard.nodes() == ["default", "second"]
    three = [{"splits": 3, "nodes": ["default", "second", "third"]}]
    save_bizzes(project, news={"epochs": three})
    clock.advance(1)
    yard.poll()
    assert "no node third" in yard.problems[project.pk]
    # What cannot be used changes nothing, and what is said of it shows no address.
    file.write_text("third=mysql://u:canary@h/x")
    assert yard.nodes() == ["default", "second"]
    assert "REQUESTS_NODES: third: not understood" in caplog.text
    file.unlink()
    assert yard.nodes() == ["default", "second"]
    file.write_text(f"second={request_nodes['second']} third=sqlite:///{tmp_path / 'third'}")
    assert yard.nodes() == ["default", "second", "third"]
    clock.advance(11)
    yard.poll()
    assert yard.problems == {}
    bound = yard.biz(project.pk, "news")
    yard.submit(bound, pages(9), by="tester", now=yard.now())
    third = next(place for place in bound.places if place.node == "third")
    assert yard.node("third").count(third.shard).total == 3
    assert repr(settings.REQUESTS_NODES) == "RequestNodes(default, second, third)"
    assert "canary" not in caplog.text
    yard.close()


def test_shared_yard_follows_and_closes(request_nodes: dict[str, str]) -> None:
    project = make_bizzes(news={})
    bound = shared_request_store().biz(project.pk, "news")
    (number,) = shared_request_store().submit(
        bound, pages(1), by="web", now=shared_request_store().now()
    )
    save_bizzes(project, news={"priority": 3})
    shared_request_store().wake()
    assert shared_request_store().biz(project.pk, "news").settings.priority == 3
    close_shared_request_store()
    assert shared_request_store().find(number) is not None
