"""A defect that one request meets, and the requests that wait behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from apps.agents.center.politeness.limits import HostRules
from apps.requeststore.daemon.downloads import Downloads
from apps.requeststore.daemon.host_limits import HostThrottle
from apps.requeststore.daemon.transports import DirectTransport, Done
from apps.requeststore.daemon.work import DownloadedPage, LeasedRequest, RequestFailure, Result
from apps.requeststore.engine.biz import Fetch
from apps.requeststore.engine.entity import Entity
from apps.requeststore.queues.base import TakenEntry
from apps.requeststore.stores.base import QueueEntry, StoredRequest
from tests.requeststore.daemon.pages_site import Site
from yardkit.text_filters import TextFilter

LOCAL = ("127.0.0.0/8",)


def work_of(number: int, url: str) -> LeasedRequest:
    request = StoredRequest(id=number, biz="news", ts=0, flag=0, data=b"")
    expires = asyncio.get_running_loop().time() + 30
    return LeasedRequest(
        TakenEntry(QueueEntry(number, "news", 0), None), request, Entity(url=url), expires
    )


async def download(site: Site, ended: Callable[[LeasedRequest, Result], None], count: int) -> int:
    """One at a time; how many have not ended when nothing moves any more."""

    def make_transport(done: Done) -> DirectTransport:
        hosts = HostThrottle(HostRules(), asyncio.get_running_loop().time)
        return DirectTransport(Fetch(), LOCAL, hosts=hosts, done=done)

    downloads = Downloads(make_transport=make_transport, concurrency=1, ended=ended)
    downloads.offer(work_of(number, f"{site.url}/p/{number}") for number in range(count))
    for _ in range(200):
        await asyncio.sleep(0.02)
        if not downloads.count:
            break
    await downloads.close()
    return downloads.count


def test_a_request_that_meets_a_defect_ends_and_leaves_its_place(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, answers = TextFilter.apply, dict[int, Result]()

    async def apply(texts: TextFilter, found: Any) -> Any:
        if found.url.endswith("/p/0"):
            raise ZeroDivisionError("a defect")
        return await real(texts, found)

    monkeypatch.setattr(TextFilter, "apply", apply)

    def ended(work: LeasedRequest, result: Result) -> None:
        answers[work.request.id] = result

    assert asyncio.run(download(site, ended, 2)) == 0
    assert answers[0] == RequestFailure("ZeroDivisionError: a defect")
    assert isinstance(answers[1], DownloadedPage)
    assert "a defect, met by request 0" in caplog.text


def test_a_defect_where_one_ends_keeps_no_other_waiting(site: Site) -> None:
    ended = list[int]()

    def end(work: LeasedRequest, _result: Result) -> None:
        ended.append(work.request.id)
        if work.request.id == 0:
            raise ZeroDivisionError("a defect")

    assert asyncio.run(download(site, end, 3)) == 0
    assert ended == [0, 1, 2]
