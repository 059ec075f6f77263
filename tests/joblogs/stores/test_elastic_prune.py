"""Days that the Elasticsearch store drops, keeps and sets up."""

from __future__ import annotations

import threading
import time

import pytest

from apps.joblogs.stores.base import LogStore, LogStoreUnavailable
from apps.joblogs.stores.factory import open_log_store
from tests.joblogs import elastic_server
from tests.joblogs.elastic_double import ElasticDouble
from tests.joblogs.stores.lines import DAY, LONG_AGO, batch, line
from tests.joblogs.stores.test_elastic import TEN, all_of, with_library
from tests.joblogs.stores.test_elastic import double as double
from tests.joblogs.stores.test_elastic import store as store
from yardkit import failpoints
from yardkit.failpoints import FailpointError


def _days(double: ElasticDouble) -> list[str]:
    return sorted(name[-10:] for name in double.requests.indexes.found if "-lines-" in name)


@with_library
def test_days_without_lines_are_dropped_and_those_awaited_are_not(
    store: LogStore, double: ElasticDouble
) -> None:
    lines = [line(n, at=LONG_AGO + n * DAY) for n in range(4)][1:]
    store.write([batch(lines)], now=LONG_AGO)
    store.delete(project=1, job=5, before=LONG_AGO + 2.5 * DAY, limit=99)
    failpoints.configure({"FAILPOINTS": "joblogs.elastic.reserved=raise@1"})
    with pytest.raises(FailpointError):
        store.write([batch([line(9, at=LONG_AGO + DAY)])], now=LONG_AGO)
    failpoints.configure({})
    store.prune(now=LONG_AGO + 20 * DAY)
    assert _days(double) == ["2026.11.21", "2026.11.23"]
    assert store.write([batch([line(9)])], now=LONG_AGO) == 1
    assert all_of(store) == [3, 9]


@with_library
def test_the_books_are_mended_after_a_deletion_that_was_cut_off(
    store: LogStore, double: ElasticDouble
) -> None:
    store.write([batch(TEN), batch(TEN, stream="run:8", job=6)], now=LONG_AGO)
    double.faults.cut("/_bulk", after=1)
    with pytest.raises(LogStoreUnavailable):
        store.delete(project=1, job=5, before=LONG_AGO + DAY, limit=4)
    assert [one.lines for one in store.usages()] == [10, 10]
    store.prune(now=LONG_AGO + DAY)
    assert [(one.lines, one.bytes) for one in store.usages()] == [(6, 37), (10, 61)]
    assert store.stream_state("run:7").forgotten == 4  # type: ignore[union-attr]


@with_library
def test_days_that_the_server_has_deleted_itself_are_taken_off_the_books(
    store: LogStore, double: ElasticDouble
) -> None:
    lines = [line(n, at=LONG_AGO + (n % 2) * DAY) for n in range(1, 11)]
    store.write([batch(lines)], now=LONG_AGO)
    del double.requests.indexes.found["crawlyard-logs-lines-2026.11.20"]
    store.prune(now=LONG_AGO + 2 * DAY)
    assert store.usages()[0].lines == 10
    store.prune(now=LONG_AGO + 9 * DAY)
    assert (store.usages()[0].lines, store.usages()[0].oldest_at) == (5, LONG_AGO + DAY)
    assert store.write([batch(lines)], now=LONG_AGO) == 0


@with_library
def test_several_may_set_up_at_the_same_time(double: ElasticDouble) -> None:
    failed: list[Exception] = []

    def work() -> None:
        store = open_log_store(double.url + "/?keep_days=90&replicas=0&shards=2")
        try:
            store.setup()
        except LogStoreUnavailable as error:
            failed.append(error)
        store.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    policy = double.requests.policies["crawlyard-logs"]
    assert policy["phases"]["delete"] == {"min_age": "90d", "actions": {"delete": {}}}


@with_library
@pytest.mark.parametrize("keep_days", [1, 2, 3])
def test_few_days_can_be_kept(double: ElasticDouble, keep_days: int) -> None:
    store = open_log_store(f"{double.url}/?keep_days={keep_days}")
    store.setup()
    phases = double.requests.policies["crawlyard-logs"]["phases"]
    assert phases["delete"]["min_age"] == f"{keep_days}d"
    store.close()


@pytest.mark.slow("1 s")
@with_library
def test_a_line_acknowledged_while_its_day_is_dropped_is_kept(
    store: LogStore, double: ElasticDouble
) -> None:
    """The writer meets the block of the day, and waits until the day is gone or kept."""
    store.write([batch([line(1)])], now=LONG_AGO)
    store.delete(project=1, job=5, before=LONG_AGO + DAY, limit=9)
    failpoints.configure({"FAILPOINTS": "joblogs.elastic.counted=sleep:0.5@1"})
    pruning = threading.Thread(target=store.prune, kwargs={"now": LONG_AGO + 20 * DAY})
    pruning.start()
    while not double.asked("_block/write") or double.asked("_stats") < 2:
        time.sleep(0.01)
    assert store.write([batch([line(2)])], now=LONG_AGO) == 1
    pruning.join()
    assert all_of(store) == [2]


@with_library
@pytest.mark.fault
@pytest.mark.parametrize("lines", [0, 1])
def test_a_write_block_left_behind_is_lifted_by_the_next_prune(
    store: LogStore, double: ElasticDouble, lines: int
) -> None:
    store.write([batch([line(1)])], now=LONG_AGO)
    store.delete(project=1, job=5, before=LONG_AGO + DAY, limit=9)
    failpoints.configure({"FAILPOINTS": "joblogs.elastic.counted=raise@1"})
    with pytest.raises(FailpointError):
        store.prune(now=LONG_AGO + 20 * DAY)
    failpoints.configure({})
    index = double.requests.indexes.found["crawlyard-logs-lines-2026.11.20"]
    assert index.write_block
    if lines:
        index.write_block = False
        store.write([batch([line(2)])], now=LONG_AGO)
        index.write_block = True
    store.prune(now=LONG_AGO + 20 * DAY)
    assert _days(double) == ["2026.11.20"] * lines
    assert store.write([batch([line(3)])], now=LONG_AGO) == 1
    assert all_of(store) == [2, 3][1 - lines :]


@with_library
def test_an_empty_day_is_kept_where_the_user_may_not_block_writes(
    store: LogStore, double: ElasticDouble, caplog: pytest.LogCaptureFixture
) -> None:
    store.write([batch([line(1)])], now=LONG_AGO)
    store.delete(project=1, job=5, before=LONG_AGO + DAY, limit=9)
    double.faults.refuse("_block/write", 403, "security_exception", "unauthorized")
    store.prune(now=LONG_AGO + 20 * DAY)
    assert _days(double) == ["2026.11.20"]
    assert "privilege manage" in caplog.text


@with_library
def test_a_setup_that_fails_halfway_leaves_nothing_behind(double: ElasticDouble) -> None:
    store = open_log_store(elastic_server.with_prefix(double.url, "half"))
    double.faults.refuse("_index_template/half-streams", 400, "illegal_argument_exception")
    with pytest.raises(LogStoreUnavailable, match="illegal_argument_exception"):
        store.setup()
    assert list(double.requests.policies) == ["half"]
    elastic_server.clear(elastic_server.with_prefix(double.url, "half"), "half")
    assert (double.requests.policies, double.requests.indexes.templates) == ({}, {})
    store.close()
