"""What only the adapter of Elasticsearch has: a server that refuses, hangs up or is away."""

from __future__ import annotations

import importlib.util
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.joblogs.stores.base import BEGINNING, LogStore, LogStoreUnavailable, Ref, Search
from apps.joblogs.stores.factory import BadAddress, open_log_store
from tests.joblogs import elastic_server
from tests.joblogs.elastic_double import ElasticDouble
from tests.joblogs.stores.lines import ALL, DAY, LONG_AGO, batch, found, line, seqs
from yardkit import failpoints
from yardkit.failpoints import FailpointError

ROOT = Path(__file__).parents[3]
with_library = elastic_server.WANTED
TEN = [line(n) for n in range(1, 11)]


@pytest.fixture
def double() -> Iterator[ElasticDouble]:
    double = ElasticDouble()
    yield double
    double.stop()
    failpoints.configure({})


@pytest.fixture
def store(double: ElasticDouble) -> Iterator[LogStore]:
    store = elastic_server.open_patient(double.url)
    store.setup()
    yield store
    store.close()


def all_of(store: LogStore) -> list[int]:
    """What is there, however often."""
    return sorted(found(store))


# --- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("http://", "host"),
        ("https://user:geheim@:9200", "host"),
        ("http://a:99999", "host"),
        ("http://a/?index=Big", "small letters"),
        ("http://a/?index=_x", "small letters"),
        ("http://a/?shards=0", "shards"),
        ("http://a/?keep_days=x", "keep_days"),
        ("http://user:geheim@a/?speed=1", "speed"),
        ("http://user:geheim@a/?api_key=x", "enough"),
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_its_password(
    url: str, word: str
) -> None:
    with pytest.raises(BadAddress, match=word) as refused:
        open_log_store(url)
    assert "geheim" not in str(refused.value)


def test_what_an_address_says() -> None:
    from apps.joblogs.stores.elastic.address import read_address

    address = read_address(
        "https://us%40er:p%2Fw@es1:9200,[::1]/base/?index=x&shards=2&replicas=0&keep_days=40&ca=/c"
    )
    assert address.nodes == ("https://es1:9200/base", "https://[::1]:443/base")
    assert (address.user, address.password, address.prefix) == ("us@er", "p/w", "x")
    assert (address.shards, address.replicas, address.keep_days, address.ca) == (2, 0, 40, "/c")
    assert "p/w" not in address.shown


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "elasticsearch" else real(name)
    )
    with pytest.raises(BadAddress, match=r"pip install '\.\[elasticsearch\]'"):
        open_log_store("http://user:geheim@a")


def test_only_this_package_knows_the_library() -> None:
    inside = ROOT / "apps/joblogs/stores/elastic"
    for path in [*ROOT.glob("apps/**/*.py"), *ROOT.glob("platform/**/*.py")]:
        imports = re.search(r"^\s*(from|import) elastic", path.read_text(), re.MULTILINE)
        assert imports is None or path.is_relative_to(inside), path


# --- a server that refuses ------------------------------------------------------------------------


@with_library
def test_lines_for_which_there_is_no_room_now_are_tried_again(
    store: LogStore, double: ElasticDouble
) -> None:
    double.faults.refuse_item(".7", 429, "es_rejected_execution_exception", times=2)
    double.faults.refuse("/_bulk", 503, "unavailable_shards_exception")
    assert store.write([batch(TEN)], now=LONG_AGO) == 10
    assert all_of(store) == list(range(1, 11))


@with_library
def test_a_full_disk_is_no_reason_to_give_lines_up(
    store: LogStore, double: ElasticDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.joblogs.stores.elastic.connection.LONGEST_PAUSE_SECONDS", 0.01)
    reason = "disk usage exceeded flood-stage watermark"
    double.faults.refuse_item(".7", 429, "cluster_block_exception", reason, times=6)
    with pytest.raises(LogStoreUnavailable, match="flood-stage"):
        store.write([batch(TEN)], now=LONG_AGO)
    # Nothing was taken over yet; a repetition completes it.
    assert store.page("run:7", after=BEGINNING, limit=99) == []
    assert store.write([batch(TEN)], now=LONG_AGO) == 10
    assert all_of(store) == list(range(1, 11))


@with_library
def test_a_line_that_the_server_never_takes_is_named(
    store: LogStore, double: ElasticDouble
) -> None:
    double.faults.refuse_item(
        "run:7.b1.3", 400, "document_parsing_exception", "failed to parse field [x]"
    )
    with pytest.raises(ValueError, match=r"line 3 of b1: document_parsing_exception"):
        store.write([batch(TEN)], now=LONG_AGO)
    # The others are there, and are counted.
    assert all_of(store) == [1, 2, 4, 5, 6, 7, 8, 9, 10]
    assert store.stream_state("run:7").lines == 9  # type: ignore[union-attr]


@with_library
def test_a_request_that_is_too_large_for_someone_on_the_way_is_halved(
    store: LogStore, double: ElasticDouble
) -> None:
    store.write([batch([line(20)])], now=LONG_AGO)
    double.faults.refuse("/_bulk", 413, "too_large", times=2, after=1)
    assert store.write([batch(TEN)], now=LONG_AGO) == 10
    assert all_of(store) == [*range(1, 11), 20]


@with_library
@pytest.mark.parametrize("status", [401, 403])
def test_who_is_not_let_in_waits_and_says_so(
    store: LogStore, double: ElasticDouble, status: int
) -> None:
    double.faults.refuse("/_bulk", status, "security_exception", "missing credentials")
    with pytest.raises(LogStoreUnavailable, match="refuses access"):
        store.write([batch(TEN)], now=LONG_AGO)


@with_library
def test_a_client_too_new_for_the_server_is_named() -> None:
    import elasticsearch

    if elasticsearch.__version__[0] < 9:
        pytest.skip("the installed client is of version 8, which every server supports")
    double = ElasticDouble(version=8)
    store = open_log_store(double.url)
    with pytest.raises(LogStoreUnavailable, match=r"pip install 'elasticsearch>=8,<9'"):
        store.setup()
    store.close()
    double.stop()


# --- what a server refuses to search for ----------------------------------------------------------


@with_library
@pytest.mark.parametrize("length", [200, 314, 315, 400])
def test_long_repetitive_text_is_found(store: LogStore, length: int) -> None:
    texts = ["a" * 314, "a" * 399 + "b", "b" + "A" * 400]
    store.write([batch(line(n, text) for n, text in enumerate(texts, 1))], now=LONG_AGO)
    expected = [n for n, text in enumerate(texts, 1) if "a" * length in text.lower()]
    contains = "a" * length
    assert seqs(store.page("run:7", after=BEGINNING, limit=9, contains=contains)) == expected
    assert found(store, contains=contains) == expected[::-1]


@with_library
def test_the_double_refuses_what_makes_too_large_an_automaton(store: LogStore) -> None:
    from tests.joblogs.elastic_double.answers import Refusal
    from tests.joblogs.elastic_double.queries import check_effort

    check_effort("*" + "a" * 300 + "*")
    check_effort("*" + "abcdefghij" * 60 + "*")
    with pytest.raises(Refusal, match="Determinizing automaton"):
        check_effort("*" + "a" * 330 + "*")


@with_library
def test_more_projects_than_one_query_takes(store: LogStore) -> None:
    store.write([batch(TEN, project=140_000)], now=LONG_AGO)
    assert found(store, projects=set(range(1, 140_001))) == list(range(10, 0, -1))
    assert found(store, projects=set(range(1, 140_000))) == []


# --- a server that is away ------------------------------------------------------------------------


@with_library
@pytest.mark.fault
def test_a_server_that_is_away_is_there_again_by_itself(
    store: LogStore, double: ElasticDouble
) -> None:
    store.write([batch([line(1)])], now=LONG_AGO)
    double.stop()
    for ask in (
        lambda: store.write([batch(TEN)], now=LONG_AGO),
        lambda: store.page("run:7", limit=5),
        lambda: store.search(ALL, limit=5),
        store.usages,
        store.check,
        store.setup,
    ):
        with pytest.raises(LogStoreUnavailable, match="does not answer"):
            ask()
    double.start()
    assert store.write([batch(TEN)], now=LONG_AGO) == 9


@with_library
@pytest.mark.fault
@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_answer_that_does_not_arrive_doubles_nothing(
    store: LogStore, double: ElasticDouble, number: int
) -> None:
    """Of the stream's document, the lines, the document again; what was asked for is done."""
    store.write([batch([line(99)])], now=LONG_AGO)
    double.faults.cut("/_bulk", after=number - 1)
    with pytest.raises(LogStoreUnavailable):
        store.write([batch(TEN)], now=LONG_AGO)
    assert store.write([batch(TEN)], now=LONG_AGO) == (0 if number == 3 else 10)
    assert all_of(store) == [*range(1, 11), 99]
    state = store.stream_state("run:7")
    assert state is not None
    assert (state.lines, state.forgotten) == (11, 0)


@with_library
@pytest.mark.fault
@pytest.mark.parametrize("point", ["reserved", "created"])
def test_a_line_repeated_on_another_day_is_the_same_line(store: LogStore, point: str) -> None:
    """Its time is made when it is stored, so a repetition after midnight has another."""
    failpoints.configure({"FAILPOINTS": f"joblogs.elastic.{point}=raise@1"})
    with pytest.raises(FailpointError):
        store.write([batch(TEN)], now=LONG_AGO)
    failpoints.configure({})
    tomorrow = [line(n, at=LONG_AGO + DAY) for n in range(1, 16)]
    assert store.write([batch(tomorrow)], now=LONG_AGO + DAY) == 15
    assert all_of(store) == list(range(1, 16))
    assert seqs(store.page("run:7", after=BEGINNING, limit=99)) == list(range(1, 16))
    assert store.stream_state("run:7").lines == 15  # type: ignore[union-attr]


# --- what is seen when ----------------------------------------------------------------------------


@with_library
def test_who_reads_a_log_sees_all_of_it_before_the_server_has_refreshed(
    double: ElasticDouble,
) -> None:
    store = open_log_store(double.url)
    store.setup()
    # Over midnight: one of the two indexes is refreshed before the other.
    lines = [line(n, at=LONG_AGO + (n % 2) * DAY, level="ERROR") for n in range(1, 11)]
    store.write([batch(lines)], now=LONG_AGO)
    double.requests.indexes.found["crawlyard-logs-lines-2026.11.20"].refresh()
    assert seqs(store.page("run:7", after=BEGINNING, limit=4)) == [1, 2, 3, 4]
    store.write([batch([line(11, at=LONG_AGO + DAY)])], now=LONG_AGO)
    assert store.find("run:7", Ref(1, 11)) is not None
    store.write([batch([line(12)])], now=LONG_AGO)
    assert seqs(store.page("run:7", limit=2)) == [11, 12]
    before = double.asked("_search")
    assert store.page("run:7", after=Ref(1, 12), limit=5) == []
    assert double.asked("_search") == before
    store.close()


@with_library
def test_a_long_log_is_read_page_by_page_without_a_refresh(
    store: LogStore, double: ElasticDouble
) -> None:
    store.write([batch(line(n) for n in range(1, 3001))], now=LONG_AGO)
    store.page("run:7", after=BEGINNING, limit=1)
    refreshed, place, got = double.asked("_refresh"), BEGINNING, 0
    while page := store.page("run:7", after=place, limit=700):
        got += len(page)
        place = page[-1].ref
    assert got == 3000
    assert double.asked("_refresh") == refreshed


# --- keeping house --------------------------------------------------------------------------------


@with_library
def test_two_that_write_one_stream_in_turns(double: ElasticDouble) -> None:
    stores = [elastic_server.open_patient(double.url) for _ in range(2)]
    stores[0].setup()
    new: list[int] = []

    def work(store: LogStore, first: int) -> None:
        for begin in range(first, first + 300, 30):
            new.append(
                store.write([batch(line(n) for n in range(begin, begin + 60))], now=LONG_AGO)
            )

    threads = [
        threading.Thread(target=work, args=(store, 1 + 150 * number))
        for number, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(new) == 480
    assert all_of(stores[0]) == list(range(1, 481))
    for store in stores:
        store.close()


@with_library
def test_the_double_knows_no_more_than_it_says(store: LogStore, double: ElasticDouble) -> None:
    from apps.joblogs.stores.elastic.address import read_address
    from apps.joblogs.stores.elastic.connection import ElasticConnection

    connection = ElasticConnection(read_address(double.url))
    for body in (
        {"query": {"fuzzy": {"text": "x"}}},
        {"query": {"term": {"unknown": 1}}},
        {"highlight": {}},
        {"aggs": {"x": {"significant_terms": {"field": "kind"}}}},
    ):
        store.write([batch(TEN)], now=LONG_AGO)
        store.search(Search(projects=None), limit=1)
        with pytest.raises(LogStoreUnavailable, match="double_unsupported"):
            connection.search("crawlyard-logs-lines-*", body)
    connection.close()
