"""Seeds crawled while somebody waits, over REST (seed S3.20)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from apps.access.states import Role
from apps.seeds.models import Frontier
from apps.seeds.services import client_of
from tests.seeds.api.conftest import Caller, Service
from yardkit.protocol import Seed, SeedFinish, SeedOutcome
from yardkit.protocol.seeds import GRAB
from yardkit.seeds import SeedClient

pytestmark = pytest.mark.django_db

URL = "https://a/?id=1"


@pytest.fixture
def spider(frontier: Frontier) -> SeedClient:
    return client_of(frontier, owner="run:1")


def crawl(spider: SeedClient, result: Any, outcome: SeedOutcome = SeedOutcome.SUCCESS) -> str:
    """One seed, by a spider; its data."""
    lease = spider.lease(1, wait_seconds=20)
    (seed,) = lease.seeds
    grab = (seed.ext or {}).get(GRAB, "")
    finish = SeedFinish(seed.segment, seed.key, lease.generation, outcome, grab, result)
    spider.finish([finish])
    return seed.data


@pytest.mark.covers("S3.20")
def test_whoever_grabs_gets_what_the_spider_found(
    either_service: Service, caller: Caller, spider: SeedClient
) -> None:
    caller.ask("add", ["https://a/before"])
    with ThreadPoolExecutor(1) as pool:
        crawled = pool.submit(crawl_until, spider, URL, {"title": "A", "links": [1, None]})
        told = caller.ask("grab", {"data": URL, "ext": {"depth": 1}, "timeout_seconds": 20})
    assert crawled.result()
    assert (told["state"], told["ended"]) == ("succeeded", True)
    assert told["result"] == {"title": "A", "links": [1, None]}
    looked = caller.get(told["look_up"].removeprefix("http://testserver")).json()["results"][0]
    assert looked["known"]["state"] == "succeeded"
    assert looked["known"]["ext"] == {"depth": 1}
    assert caller.ask("grab", {"data": URL}, 409)["code"] == "seed_known"


def crawl_until(spider: SeedClient, data: str, result: Any) -> bool:
    """Crawl until that one was among them."""
    return any(crawl(spider, result) == data for _ in range(2))


def test_nobody_crawls_in_time(service: Service, caller: Caller) -> None:
    answer = caller.post(f"{caller.base}/grab", {"data": URL, "timeout_seconds": 0.3})
    assert answer.status_code == 202, answer.content
    told = answer.json()
    assert (told["state"], told["ended"], told["result"]) == ("init", False, None)
    assert answer["Location"] == told["look_up"]
    assert caller.ask("grab", {"data": URL}, 409)["code"] == "seed_in_use"
    # It is crawled all the same, before all others.
    caller.ask("add", "https://a/other")
    assert [each["key"] for each in caller.ask("lease", {"limit": 1})["seeds"]] == [URL]


def test_a_spider_over_rest_hands_a_result_back(
    service: Service, caller: Caller, frontier: Frontier, spider: SeedClient
) -> None:

    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(spider.grab, Seed(URL), timeout=20)
        lease = caller.ask("lease", {"owner": "m1", "wait_seconds": 20})
        (seed,) = lease["seeds"]
        assert seed["ext"] is None
        finish = {
            "segment": seed["segment"],
            "key": seed["key"],
            "outcome": "given_up",
            "grab": seed["grab"],
            "result": "not there",
        }
        told = {"owner": "m1", "generation": lease["generation"], "finishes": [finish]}
        assert caller.ask("finish", told)["answers"][0]["state"] == "failed"
        grabbed = waits.result()
    assert grabbed is not None
    assert grabbed.result == "not there"


def test_what_cannot_be_grabbed(service: Service, caller: Caller, frontier: Frontier) -> None:
    assert caller.ask("grab", {"data": "\x7f"}, 400)["code"] == "binary_data"
    assert caller.ask("grab", {"data": "x", "max_retry": 1001}, 400)["code"] == "invalid"
    assert caller.ask("grab", {"data": "x", "active_at": 5}, 400)["code"] == "invalid"
    viewer = Caller(frontier, Role.VIEWER)
    assert viewer.ask("grab", {"data": "x"}, 403)["code"] == "role_required"
