"""Every store: lines in, each of them once, and out again in their order."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from apps.joblogs.engine.lines import LogLine
from apps.joblogs.stores.base import BEGINNING, GAP_SECONDS, LogStore, Ref, StoredLine
from tests.joblogs.stores.lines import DAY, LONG_AGO, SECOND, batch, line, seqs


@pytest.mark.slow("1 s")
def test_setup_can_be_repeated_and_check_names_the_engine(store: LogStore) -> None:
    store.setup()
    assert any(name in store.check() for name in ("SQLite", "PostgreSQL", "Elasticsearch"))


def test_a_line_comes_out_as_it_went_in(store: LogStore) -> None:
    at = datetime(2026, 11, 20, 23, 59, 59, 123456, tzinfo=UTC)
    given = line(1, "a\\x00b 价格 <b> 🚀", at=at, level="ERROR", source="p.py", fingerprint="f-1")
    assert store.write([batch([given])], now=LONG_AGO) == 1
    expected = StoredLine(
        1, 5, "run:7", "b1", Ref(1, 1), at, "ERROR", "p.py", given.text, fingerprint="f-1"
    )
    assert store.page("run:7", limit=10) == [expected]
    assert store.find("run:7", Ref(1, 1)) == expected
    assert store.first("run:7", ["ERROR", "CRITICAL"]) == expected


@pytest.mark.covers("S1.18")
def test_each_line_once_whatever_comes_again_late_or_out_of_order(store: LogStore) -> None:
    assert store.write([batch([line(5), line(6)])], now=LONG_AGO) == 2
    assert store.write([batch([line(1), line(2), line(6)])], now=LONG_AGO) == 2
    twice = [batch([line(4), line(3), line(4)]), batch([line(2), line(7)])]
    assert store.write(twice, now=LONG_AGO) == 3
    assert store.write(twice, now=LONG_AGO) == 0
    assert seqs(store.page("run:7", limit=100)) == [1, 2, 3, 4, 5, 6, 7]


def test_an_empty_call_and_an_empty_batch(store: LogStore) -> None:
    assert store.write([], now=LONG_AGO) == 0
    assert store.write([batch([], dropped=3)], now=LONG_AGO) == 0
    state = store.stream_state("run:7")
    assert state is not None
    assert (state.lines, state.bytes, state.dropped, state.first_at) == (0, 0, 3, LONG_AGO)


def test_the_same_numbers_of_other_streams_and_boots_are_other_lines(store: LogStore) -> None:
    batches = [
        batch([line(1, "one")]),
        batch([line(1, "two")], boot="b2"),
        batch([line(1, "three")], stream="build:7", job=0),
    ]
    assert store.write(batches, now=LONG_AGO) == 3
    assert [one.text for one in store.page("run:7", limit=9)] == ["one", "two"]
    assert [one.text for one in store.page("build:7", limit=9)] == ["three"]


def test_executions_are_numbered_as_they_came(store: LogStore) -> None:
    for boot in ("zz", "aa", "mm"):
        store.write([batch([line(1)], boot=boot)], now=LONG_AGO)
    store.write([batch([line(2)], boot="zz")], now=LONG_AGO)
    refs = [(one.boot, str(one.ref)) for one in store.page("run:7", limit=9)]
    assert refs == [("zz", "1.1"), ("zz", "1.2"), ("aa", "2.1"), ("mm", "3.1")]


def test_pages_forwards_and_backwards(store: LogStore) -> None:
    store.write([batch(line(n) for n in range(1, 11))], now=LONG_AGO)
    store.write([batch((line(n) for n in range(1, 6)), boot="b2")], now=LONG_AGO)
    first = store.page("run:7", after=BEGINNING, limit=4)
    assert seqs(first) == [1, 2, 3, 4]
    rest = store.page("run:7", after=first[-1].ref, limit=100)
    assert [str(one.ref) for one in rest[5:8]] == ["1.10", "2.1", "2.2"]
    assert store.page("run:7", after=rest[-1].ref, limit=100) == []
    last = store.page("run:7", limit=7)
    assert [str(one.ref) for one in last][:3] == ["1.9", "1.10", "2.1"]
    assert seqs(store.page("run:7", before=last[0].ref, limit=3)) == [6, 7, 8]
    assert store.page("run:7", before=Ref(1, 1), limit=3) == []


def test_a_page_across_midnight_and_with_times_that_run_backwards(store: LogStore) -> None:
    lines = [line(n, at=LONG_AGO + DAY * (n % 3)) for n in range(1, 31)]
    store.write([batch(lines)], now=LONG_AGO)
    assert seqs(store.page("run:7", after=BEGINNING, limit=100)) == list(range(1, 31))
    assert seqs(store.page("run:7", limit=5)) == [26, 27, 28, 29, 30]


def test_a_page_of_some_levels_and_texts(store: LogStore) -> None:
    texts = ["50% off", "50 percent", "ÄRGER a_b", "价格 Up", "back\\slash"]
    lines = [
        line(n, text, level=level)
        for n, (text, level) in enumerate(
            zip(texts, ["ERROR", "INFO", "", "ERROR", "DEBUG"], strict=True), 1
        )
    ]
    store.write([batch(lines)], now=LONG_AGO)

    def page(levels: tuple[str, ...] = (), contains: str = "") -> list[int]:
        return seqs(store.page("run:7", after=BEGINNING, limit=9, levels=levels, contains=contains))

    assert page(("ERROR",)) == [1, 4]
    assert page(("", "DEBUG")) == [3, 5]
    assert page(("NONE",)) == []
    assert page((), "50%") == [1]
    assert page((), "ärger") == [3]
    assert page((), "A_B") == [3]
    assert page((), "价格 up") == [4]
    assert page((), "\\") == [5]
    assert page((), "5_ ") == []
    assert page((), "\0") == page((), "\ud800") == []
    assert seqs(store.page("run:7", limit=9, levels=["ERROR"], contains="50")) == [1]


def test_who_follows_waits_for_what_was_overtaken(store: LogStore) -> None:
    now = datetime.now(UTC)
    store.write([batch([line(1), line(2)])], now=now)
    store.write([batch([line(5), line(6)])], now=now)
    assert seqs(store.page("run:7", after=BEGINNING, limit=9)) == [1, 2]
    assert seqs(store.page("run:7", limit=9)) == [1, 2, 5, 6]
    store.write([batch([line(3)])], now=now)
    assert seqs(store.page("run:7", after=BEGINNING, limit=9)) == [1, 2, 3]
    store.write([batch([line(4)])], now=now)
    assert seqs(store.page("run:7", after=BEGINNING, limit=9)) == [1, 2, 3, 4, 5, 6]


def test_who_follows_waits_for_lines_overtaken_by_repeated_ones(store: LogStore) -> None:
    now = datetime.now(UTC)
    store.write([batch([line(n) for n in range(1, 11)])], now=now)
    store.write([batch([line(n) for n in (5, 6, 7, 8, 9, 13)])], now=now)
    assert store.page("run:7", after=Ref(1, 10), limit=9) == []
    store.write([batch([line(11), line(12)])], now=now)
    assert seqs(store.page("run:7", after=Ref(1, 10), limit=9)) == [11, 12, 13]


def test_who_follows_does_not_wait_for_ever(store: LogStore) -> None:
    now = datetime.now(UTC) - (GAP_SECONDS + 1) * SECOND
    store.write([batch([line(1), line(3)])], now=now)
    store.write([batch([line(1)], boot="b2")], now=now)
    refs = [str(one.ref) for one in store.page("run:7", after=BEGINNING, limit=9)]
    assert refs == ["1.1", "1.3", "2.1"]


def test_the_end_of_one_execution_may_come_after_the_beginning_of_the_next(store: LogStore) -> None:
    now = datetime.now(UTC)
    store.write([batch([line(1)])], now=now)
    store.write([batch([line(1, "next")], boot="b2")], now=now)
    assert seqs(store.page("run:7", after=BEGINNING, limit=9)) == [1]
    store.write([batch([line(2)])], now=now)
    assert seqs(store.page("run:7", after=Ref(1, 1), limit=9)) == [2]


def test_what_is_kept_of_a_stream(store: LogStore) -> None:
    assert store.stream_state("run:7") is None
    store.write([batch([line(2, "价"), line(5, "ab"), line(6)], dropped=2)], now=LONG_AGO)
    store.write([batch([line(1)], boot="b2", dropped=1)], now=LONG_AGO)
    store.write([batch([line(7)], dropped=1)], now=LONG_AGO)
    state = store.stream_state("run:7")
    assert state is not None
    assert (state.project, state.job, state.lines, state.dropped) == (1, 5, 5, 3)
    assert state.bytes == 3 + 2 + 3 * len("line 6")
    assert state.first_at == LONG_AGO + SECOND
    assert state.last_at == LONG_AGO + 7 * SECOND
    assert state.missing == {1: [(1, 1), (3, 4)]}
    assert state.forgotten == 0


def test_the_first_of_some_levels(store: LogStore) -> None:
    assert store.first("run:7", ["ERROR"]) is None
    levels = ["INFO", "WARNING", "INFO", "CRITICAL", "ERROR"]
    lines = [line(n, level=level) for n, level in enumerate(levels, 1)]
    store.write([batch(lines)], now=LONG_AGO)
    for wanted, seq in ((["ERROR", "CRITICAL"], 4), (["WARNING"], 2), (["INFO"], 1)):
        first = store.first("run:7", wanted)
        assert first is not None
        assert first.ref == Ref(1, seq)
    assert store.first("run:7", ["DEBUG"]) is None


def test_no_line_at_that_place(store: LogStore) -> None:
    store.write([batch([line(1)])], now=LONG_AGO)
    for stream, ref in (("run:7", Ref(1, 2)), ("run:7", Ref(2, 1)), ("run:8", Ref(1, 1))):
        assert store.find(stream, ref) is None
    assert store.find("run:7", Ref(1, 2**63 - 1)) is None
    assert store.page("run:7\0", after=BEGINNING, limit=9) == []


@pytest.mark.parametrize(
    "bad",
    [
        line(1, "half \ud800 surrogate"),
        line(2**63, "too high", at=LONG_AGO),
        line(0, "too low"),
        line(1, "loud", level="LOUD"),
    ],
    ids=["surrogate", "high", "low", "level"],
)
def test_a_line_that_cannot_be_stored_takes_its_call_with_it(store: LogStore, bad: LogLine) -> None:
    with pytest.raises(ValueError, match=r"surrogate|line"):
        store.write([batch([line(1)], stream="run:1"), batch([bad])], now=LONG_AGO)
    assert store.page("run:1", limit=9) == store.page("run:7", limit=9) == []
    assert store.write([batch([line(1)], stream="run:1")], now=LONG_AGO) == 1


def test_highest_numbers(store: LogStore) -> None:
    store.write([batch([line(2**63 - 1, at=LONG_AGO)])], now=LONG_AGO)
    assert seqs(store.page("run:7", limit=9)) == [2**63 - 1]
    assert store.stream_state("run:7").missing == {1: [(1, 2**63 - 2)]}  # type: ignore[union-attr]


@pytest.mark.slow("1 s")
def test_several_write_at_the_same_time(store: LogStore) -> None:
    new: list[int] = []

    def work(offset: int) -> None:
        for begin in range(1, 200, 20):
            lines = [line(n) for n in range(begin, begin + 20)]
            own = [batch(lines, stream=f"run:{offset}"), batch(lines), batch(lines, boot="b2")]
            new.append(store.write(own, now=LONG_AGO))

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(new) == 5 * 200
    assert len(store.page("run:7", after=BEGINNING, limit=1000)) == 400
