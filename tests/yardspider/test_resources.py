"""``self.resources``: leased for a block, given back by how it ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from yardkit.protocol import LeasedResource, ResourceOutcome
from yardkit.resources import NoResource
from yardkit.seeds import CallRefused, SeedServiceAway
from yardspider import Request, Response, Spider, SpiderSettings
from yardspider.resources.api import HeldResource, Resources
from yardspider.resources.memory import MemoryPools, Use
from yardspider.testing import CrawlResult, crawl, run_spider

OK, NOT_OK, BAN, UNUSED = ResourceOutcome
PASSWORD = "hunter2-top-secret"
ACCOUNTS = {"accounts": {"ann": {"user": "ann", "password": PASSWORD}}}
PAGE = {"http://a.example/": "<p>hello"}
QUICK = SpiderSettings(speed=0)


class LoggingIn(Spider):
    """Does with an account what its argument says."""

    start_urls = ("http://a.example/",)  # type: ignore[assignment]
    settings = QUICK

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        what = self.arguments.get("what", "")
        async with self.resources.lease("accounts", wait_seconds=0) as account:
            if what == "raise":
                raise ValueError(f"cannot log in with {account['password']}")
            if what in ("ban", "failed"):
                getattr(account, what)("locked")
            elif what:
                getattr(account, what)()
            yield {"user": account["user"], "name": account.name}


def run(what: str = "", **more: Any) -> CrawlResult:
    return run_spider(LoggingIn, PAGE, arguments={"what": what}, **{"resources": ACCOUNTS} | more)


@pytest.mark.covers("S3.21")
def test_a_block_that_ends_well_gives_back_as_ok() -> None:
    result = run()
    assert result.items == [{"user": "ann", "name": "ann"}]
    assert result.pools.uses == [Use("accounts", "ann", OK)]


@pytest.mark.parametrize(
    ("what", "use"),
    [
        ("raise", (NOT_OK, "ValueError")),
        ("ban", (BAN, "locked")),
        ("failed", (NOT_OK, "locked")),
        ("unused", (UNUSED, "")),
        ("ok", (OK, "")),
    ],
)
@pytest.mark.covers("S3.21")
def test_what_is_said_of_it(what: str, use: tuple[ResourceOutcome, str]) -> None:
    result = run(what)
    assert result.pools.uses == [Use("accounts", "ann", *use)]
    assert result.counters.failed == (what == "raise")


def test_what_nobody_has_free_fails_the_request_and_not_the_run() -> None:
    result = run(resources={"accounts": {}})
    assert "no resource of pool 'accounts' is free" in result.outcome.failures[0].reason


@pytest.mark.parametrize("resources", [{}, {"others": {}}], ids=["none", "others"])
def test_a_pool_that_is_not_there_fails_the_run(resources: dict[str, Any]) -> None:
    outcome = run(resources=resources).outcome
    assert outcome.state == "failed"
    assert "accounts" in outcome.reason


@pytest.mark.slow("8 s")
def test_callbacks_wait_for_each_other() -> None:
    class Many(LoggingIn):
        def start(self) -> Any:
            return [Request(f"http://a.example/{number}") for number in range(5)]

        async def parse(self, response: Response) -> AsyncIterator[Any]:
            async with self.resources.lease("accounts") as account:
                await asyncio.sleep(0.001)
                yield {"user": account["user"]}

    result = run_spider(Many, lambda request: "<p>x", resources=ACCOUNTS)
    assert len(result.items) == 5
    assert [use.outcome for use in result.pools.uses] == [OK] * 5


def test_a_stopped_run_gives_back_what_it_holds_and_says_nothing_about_it() -> None:
    class Stopped(LoggingIn):
        async def parse(self, response: Response) -> AsyncIterator[Any]:
            async with self.resources.lease("accounts"):
                center.tell("exit")
                await asyncio.sleep(60)
                yield {}

    from yardspider.testing import FakeCenter

    center = FakeCenter(PAGE)
    result = asyncio.run(crawl(Stopped, center, resources=ACCOUNTS))
    assert result.outcome.state == "stopped"
    assert [use.outcome for use in result.pools.uses] == [UNUSED]


class Troubled(MemoryPools):
    """Pools behind a service that is away when something is given back."""

    def __init__(self, answer: Exception | str) -> None:
        super().__init__(ACCOUNTS)
        self.answer = answer

    async def give_back(self, leased: LeasedResource, outcome: ResourceOutcome, reason: str) -> str:
        if isinstance(self.answer, str):
            return self.answer
        raise self.answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (SeedServiceAway("no answer"), "could not be given back"),
        (CallRefused("wrong_lease", "not yours"), "could not be given back"),
        ("late", "the lease of ann of pool accounts was over"),
    ],
    ids=["away", "refused", "late"],
)
def test_trouble_with_giving_back_is_told_and_fails_nothing(
    answer: Exception | str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def use() -> None:
        resources = Resources(Troubled(answer))
        async with resources.lease("accounts"):
            pass
        await resources.finish(1.0)

    with caplog.at_level(logging.WARNING):
        asyncio.run(use())
    assert said in caplog.text
    assert PASSWORD not in caplog.text


def test_none_free_ends_the_wait_in_time() -> None:
    async def use() -> float:
        resources = Resources(MemoryPools({"accounts": {}}))
        begin = asyncio.get_running_loop().time()
        with pytest.raises(NoResource):
            async with resources.lease("accounts", wait_seconds=0.1):
                pass
        return asyncio.get_running_loop().time() - begin

    assert asyncio.run(use()) < 2


def test_what_is_held_does_not_show_its_secret() -> None:
    leased = LeasedResource(
        id=1, pool="accounts", name="ann", lease=3, until=0, secret={"password": PASSWORD}
    )
    assert PASSWORD not in repr(leased) + repr(HeldResource(leased)) + str(HeldResource(leased))
    assert HeldResource(leased).secret == {"password": PASSWORD}
