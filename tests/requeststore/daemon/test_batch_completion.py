"""A batch that ends on real embedded stores: counted once through outages, and one bad request."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from apps.requeststore.daemon import batch_end as ending_module
from apps.requeststore.daemon.batch_end import BatchEnd, BizCounters, EndParts
from apps.requeststore.daemon.page_extractor import PageExtractor
from apps.requeststore.daemon.request_taker import RequestTaker
from apps.requeststore.daemon.work import DownloadedPage, LeasedRequest, RequestFailure, Result
from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.engine.flags import FAILED, NEW, PROCESSED
from apps.requeststore.services import leases as taking_module
from apps.requeststore.services.store import BoundBiz, RequestStore
from apps.requeststore.sinks.base import RequestRecords
from apps.requeststore.stores.base import Finish, QueueEntry, Take
from tests.requeststore.factories import pages
from tests.requeststore.store_steps import OWNER, begin
from yardkit import failpoints

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.covers("S4.20", "S4.22")]

RULES = {"page": {"fields": {"title": {"css": "h1"}}}}
PAGE = b"<h1>one</h1>"
DOWN = RequestFailure("HTTP 503", status=503)


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What was added to the rates."""
    total: Counter[str] = Counter()

    def count(series: str, *, project: int, label: str, amount: float = 1) -> None:
        total[series] += int(amount)

    monkeypatch.setattr(taking_module, "count", count)
    monkeypatch.setattr(ending_module, "count", count)
    return total


@pytest.fixture(autouse=True)
def whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extract all of a batch, however slow the machine is."""
    monkeypatch.setattr(ending_module, "READ_SECONDS", 60.0)


# Records by folder of the test, as the dataset keeps them: of equal requests the first.
_kept: dict[Path, dict[int, int]] = {}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """Leave no failpoint set and no records."""
    yield
    failpoints.configure({})
    _kept.clear()


class Fragile:
    """Keeps records once a request, and has a defect that one record brings out."""

    def __init__(self, kept: dict[int, int]) -> None:
        self._kept = kept

    def write(self, batch: Sequence[RequestRecords]) -> dict[int, str]:
        if any("bad" in one.url for one in batch):
            raise TypeError("unhashable type: 'list'")
        for one in batch:
            self._kept.setdefault(one.request_id, len(one.rows))
        return {}

    def close(self) -> None:
        pass


class FragileReader(PageExtractor):
    """Has a defect that one page brings out."""

    def read(self, work: LeasedRequest, result: Result) -> Any:
        if isinstance(result, DownloadedPage) and b"defect" in result.body:
            raise ZeroDivisionError("float division by zero")
        return super().read(work, result)


def took(yard: RequestStore, bound: BoundBiz) -> list[LeasedRequest]:
    def dead_letter(_entry: QueueEntry, reason: str) -> None:
        raise AssertionError(reason)

    return until_taken(RequestTaker(bound, yard.queue(bound), yard, OWNER, dead_letter))


def until_taken(taker: RequestTaker) -> list[LeasedRequest]:
    """A queue that has just been opened may need a moment."""
    deadline = time.monotonic() + 10
    while not (works := taker.take(100, now=taker.request_store.now(), expires=0.0)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return works


def ending(
    yard: RequestStore, bound: BoundBiz, folder: Path, results: Mapping[int, Result] | None = None
) -> BatchEnd:
    """All that waits, with pages for all but those that ``results`` names by their positions."""
    works = took(yard, bound)
    ended: list[tuple[LeasedRequest, Result]] = [
        (work, (results or {}).get(at, DownloadedPage(work.entity.url, 200, [], PAGE)))
        for at, work in enumerate(works)
    ]
    sink = Fragile(_kept.setdefault(folder, {}))
    parts = EndParts(bound, FragileReader(bound.settings.rules), sink, yard.queue(bound))
    return BatchEnd(parts, yard, OWNER, yard.now, ended, BizCounters())


def until_done(step: BatchEnd, most: int = 5) -> None:
    """As a lane does it: again after an outage, and after a defect."""
    for _ in range(most):
        try:
            step.step()
        except (RequestStoreUnavailable, failpoints.FailpointError):
            continue
        return
    raise AssertionError("it never ended")


def flags(yard: RequestStore, bound: BoundBiz) -> dict[int, int]:
    found = yard.page(bound, limit=1000)
    return dict(Counter(one.request.flag for one in found))


def rows(folder: Path) -> int:
    return sum(_kept[folder].values())


@pytest.mark.parametrize(
    "fault", ["requests.after_give_back", "requests.after_finish", "fetcher.finished"]
)
def test_an_end_is_counted_once_whatever_fails_after_it(
    yard: RequestStore, tmp_path: Path, counted: Counter[str], fault: str
) -> None:
    bound = begin(yard, rules=RULES, max_tries=3)
    yard.submit(bound, pages(10, rule="page"), by="tester", now=yard.now())
    step = ending(
        yard, bound, tmp_path, {0: DOWN, 1: DOWN, 2: RequestFailure("HTTP 404", lasting=True)}
    )
    failpoints.configure({"FAILPOINTS": f"{fault}=raise@1"})
    until_done(step)
    tally = step.tally
    assert (tally.processed, tally.failed, tally.returned, tally.records) == (7, 1, 2, 7)
    assert flags(yard, bound) == {PROCESSED: 7, FAILED: 1, NEW: 2}
    expected = {"requests.processed": 8, "requests.failed": 1, "requests.records": 7}
    assert counted == expected
    assert rows(tmp_path) == 7


def test_an_outage_between_finish_and_give_back_counts_nothing_twice(
    yard: RequestStore, tmp_path: Path, counted: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = begin(yard, rules=RULES, max_tries=3)
    yard.submit(bound, pages(6, rule="page"), by="tester", now=yard.now())
    step = ending(yard, bound, tmp_path, {0: DOWN})
    give_back, away = yard.give_back, [1, 1]

    def sometimes(*given: Any, **named: Any) -> Any:
        if away:
            away.pop()
            raise RequestStoreUnavailable("the node does not answer")
        return give_back(*given, **named)

    monkeypatch.setattr(yard, "give_back", sometimes)
    until_done(step)
    assert (step.tally.processed, step.tally.returned, step.tally.records) == (5, 1, 5)
    assert counted == {"requests.processed": 5, "requests.records": 5}


def test_an_end_whose_answer_was_lost_is_counted_once(
    yard: RequestStore, tmp_path: Path, counted: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node has stored the flags, and the connection broke before it could say so."""
    bound = begin(yard, rules=RULES)
    yard.submit(bound, pages(6, rule="page"), by="tester", now=yard.now())
    step = ending(yard, bound, tmp_path)
    node = yard.node(bound.places[0].node)
    finish, lost = node.finish, [1]

    def losing(*given: Any, **named: Any) -> Any:
        codes = finish(*given, **named)
        if lost:
            lost.pop()
            raise RequestStoreUnavailable("the connection broke")
        return codes

    monkeypatch.setattr(node, "finish", losing)
    until_done(step)
    assert step.tally.processed == 6
    assert counted == {"requests.processed": 6, "requests.records": 6}


def test_a_repeat_by_others_is_not_counted_again(
    yard: RequestStore, tmp_path: Path, counted: Counter[str]
) -> None:
    bound = begin(yard)
    yard.submit(bound, pages(3), by="tester", now=yard.now())
    pairs = [
        (work.request, Finish(work.request.id, work.request.tries, PROCESSED))
        for work in took(yard, bound)
    ]
    for _ in range(3):
        yard.finish(bound, pairs, owner=OWNER, now=yard.now())
    assert counted == {"requests.processed": 3}


def test_one_request_that_always_fails_costs_only_itself(
    yard: RequestStore, tmp_path: Path, counted: Counter[str], caplog: pytest.LogCaptureFixture
) -> None:
    bound = begin(yard, rules=RULES)
    yard.submit(bound, pages(20, rule="page"), by="tester", now=yard.now())
    step = ending(
        yard,
        bound,
        tmp_path,
        {
            4: DownloadedPage("https://example.com/bad", 200, [], PAGE),
            9: DownloadedPage("https://example.com/9", 200, [], b"<h1>defect</h1>"),
        },
    )
    step.step()
    assert flags(yard, bound) == {PROCESSED: 18, FAILED: 2}
    assert rows(tmp_path) == 18
    assert counted == {"requests.processed": 20, "requests.failed": 2, "requests.records": 18}
    reasons = {
        found.request.steps[-1].text
        for work, _result in step.ended
        if (found := yard.find(work.request.id)) and found.request.flag == FAILED
    }
    assert reasons == {
        "defect: TypeError: unhashable type: 'list'",
        "defect: ZeroDivisionError: float division by zero",
    }
    assert caplog.text.count("message rejected") == 2


def test_one_entry_that_cannot_be_taken_is_a_dead_letter(
    yard: RequestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = begin(yard)
    ids = yard.submit(bound, pages(9), by="tester", now=yard.now())
    node = yard.node(bound.places[0].node)
    take = node.take

    def fragile(shard: Any, entries: Sequence[QueueEntry], **named: Any) -> list[Take]:
        if any(entry.id == ids[5] for entry in entries):
            raise ValueError("invalid step")
        return take(shard, entries, **named)

    monkeypatch.setattr(node, "take", fragile)
    buried: list[tuple[int, str]] = []
    taker = RequestTaker(
        bound, yard.queue(bound), yard, OWNER, lambda entry, why: buried.append((entry.id, why))
    )
    works = until_taken(taker)
    assert [work.request.id for work in works] == [each for each in ids if each != ids[5]]
    assert buried == [(ids[5], "the entry cannot be taken: invalid step")]
    yard.queue(bound).settle([work.taken for work in works])
    stats = yard.queue(bound).stats()
    assert (stats.waiting, stats.taken) == (0, 0)
