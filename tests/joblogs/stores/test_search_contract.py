"""Every store: lines by their words and by what they are, the newest first."""

from __future__ import annotations

import base64

import pytest

from apps.joblogs.engine.lines import LogLine
from apps.joblogs.stores.base import BadQuery, LogStore, Search
from tests.joblogs.stores.lines import ALL, DAY, LONG_AGO, SECOND, batch, found, line, seqs

TEXTS = [
    "Fetched http://x.y/z?a=1 in 20 ms",
    "今天的价格上涨了",
    "商品价格price=12.5元",
    "Connection refused: log_store-1",
    "🚀 launched (ＡＢＣ) straße",
    "価格が変わりました 価格",
    "price 12 falls, 格外便宜",
]


@pytest.fixture
def filled(store: LogStore) -> LogStore:
    lines = [line(n, text) for n, text in enumerate(TEXTS, 1)]
    store.write([batch(lines)], now=LONG_AGO)
    return store


@pytest.mark.slow("7 s")
@pytest.mark.covers("S1.18")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fetched", [1]),
        ("FETCHED 20", [1]),
        ("http://x.y/z?a=1", [1]),
        ("http://x.y/z?a=2", []),
        ("y x", [1]),
        ('"y x"', []),
        ('"in 20 ms"', [1]),
        ('"in 20', [1]),
        ("价格", [3, 2]),
        ("上涨", [2]),
        ("涨", [2]),
        ("价", [3, 2]),
        ("格", [7, 6, 3, 2]),
        ("了", [2]),
        ("价格上涨", [2]),
        ("今天的价格上涨了", [2]),
        ("价涨", []),
        ("格price", [3]),
        ("价格price", [3]),
        ("价格 price", [3]),
        ("price 格", [7, 3]),
        ("price格", []),
        ("12.5元", [3]),
        ("元", [3]),
        ("価格", [6]),
        ('"価格 価格"', []),
        ('"ました 価格"', [6]),
        ("log_store", [4]),
        ("store-1", [4]),
        ("refus", []),
        ("🚀", [5]),
        ("🚀 launched", [5]),
        ("abc", [5]),
        ("STRASSE", [5]),
        ("price -", [7, 3]),
        ("price * \0 (", [7, 3]),
        ("pri*", []),
        ("price OR fetched", []),
        ("NOT fetched", []),
        ("words:price", []),
        ("", [7, 6, 5, 4, 3, 2, 1]),
        ("  ", [7, 6, 5, 4, 3, 2, 1]),
    ],
)
def test_words(filled: LogStore, text: str, expected: list[int]) -> None:
    assert found(filled, text) == expected


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("text", ["-", "*", '"', '""', "\0", "\ud800", "。", "( ) !", "\ue000"])
def test_what_holds_no_word_is_said_so(filled: LogStore, text: str) -> None:
    with pytest.raises(BadQuery, match="no word"):
        filled.search(Search(projects=None, text=text), limit=5)


def test_long_words_and_long_texts(store: LogStore) -> None:
    key = "k" * 5000
    text = " ".join(f"w{n}" for n in range(3000))
    # Each of its characters stands for eighteen.
    wide = "\ufdfa\u0640" * 400
    lines = [line(1, f"key={key} end"), line(2, text), line(3, wide)]
    store.write([batch(lines)], now=LONG_AGO)
    assert found(store, wide) == [3]
    assert found(store, key) == [1]
    assert found(store, "end") == [1]
    assert found(store, "w2999") == [2]
    assert found(store, '"w2998 w2999"') == [2]


def test_conditions_hold_together(store: LogStore) -> None:
    store.write(
        [
            batch([line(1, "alpha"), line(2, "alpha beta", level="ERROR", fingerprint="f1")]),
            batch([line(3, "alpha", level="ERROR", fingerprint="f1")], stream="run:8", job=6),
            batch([line(4, "alpha beta")], stream="build:3", job=0, project=2),
            batch([line(5, "beta", level="")], stream="build:4", job=0),
        ],
        now=LONG_AGO,
    )
    assert found(store, "alpha") == [4, 3, 2, 1]
    assert found(store, "alpha", levels=["ERROR", "CRITICAL"]) == [3, 2]
    assert found(store, "alpha beta", job=0) == [4]
    assert found(store, levels=[""]) == [5]
    assert found(store, levels=["LOUD"]) == []
    assert found(store, stream="run:8") == [3]
    assert found(store, "beta", stream="run:8") == []
    assert found(store, stream="run:9") == []
    assert found(store, job=5) == [2, 1]
    assert found(store, fingerprint="f1") == [3, 2]
    assert found(store, "beta", fingerprint="f1") == [2]
    assert found(store, fingerprint="f1", job=6, levels=["ERROR"]) == [3]
    assert found(store, fingerprint="f\0") == []
    assert found(store, stream="run:7", contains="PHA B") == [2]
    assert found(store, "alpha", contains="é") == []
    assert found(store, since=LONG_AGO + 2 * SECOND, until=LONG_AGO + 4 * SECOND) == [3, 2]
    assert found(store, "alpha", since=LONG_AGO + DAY) == []


def test_only_what_one_may_see(store: LogStore) -> None:
    lines = [line(1, "secret", level="ERROR", fingerprint="f")]
    store.write(
        [batch(lines), batch(lines, stream="run:8", project=2), batch(lines, stream="run:9")],
        now=LONG_AGO,
    )
    for conditions in ({}, {"text": "secret"}, {"fingerprint": "f"}, {"levels": ["ERROR"]}):
        for projects, count in ((None, 3), ({1}, 2), ({2}, 1), ({1, 2, 3}, 3), ({3}, 0), ((), 0)):
            search = Search(projects=projects, **conditions)
            assert len(store.search(search, limit=9).lines) == count
            assert sum(one.count for one in store.groups(search, limit=9)) == count
    assert store.search(Search(projects={2}, stream="run:7"), limit=9).lines == []
    assert len(store.search(Search(projects=set(range(2000))), limit=9).lines) == 3


def test_the_newest_first_whatever_the_order_of_storing(store: LogStore) -> None:
    for offset in (5, 1, 3, 2, 4):
        lines = [line(1, f"n {offset}", at=LONG_AGO + offset * DAY / 2)]
        store.write([batch(lines, stream=f"run:{offset}")], now=LONG_AGO)
    newest = store.search(ALL, limit=9).lines
    assert [one.stream for one in newest] == ["run:5", "run:4", "run:3", "run:2", "run:1"]
    assert [one.at for one in newest] == sorted((one.at for one in newest), reverse=True)


@pytest.mark.parametrize("text", ["", "common"])
def test_cursors_give_each_line_once_while_others_come(store: LogStore, text: str) -> None:
    # Many have the same time.
    lines = [line(n, "common", at=LONG_AGO + DAY * (n % 3)) for n in range(1, 51)]
    store.write([batch(lines)], now=LONG_AGO)
    search = Search(projects=None, text=text)
    whole = seqs(store.search(search, limit=100).lines)
    assert sorted(whole) == list(range(1, 51))
    got, cursor = [], ""
    for round_ in range(100):
        page = store.search(search, cursor=cursor, limit=7)
        got += seqs(page.lines)
        newer = [line(100 + round_, "common", at=LONG_AGO + 4 * DAY)]
        store.write([batch(newer)], now=LONG_AGO)
        cursor = page.next
        if not cursor:
            break
    assert got == whole


def test_the_last_page_has_no_cursor(store: LogStore) -> None:
    store.write([batch(line(n) for n in range(1, 11))], now=LONG_AGO)
    assert store.search(ALL, limit=10).next == ""
    assert store.search(ALL, limit=9).next != ""


# One that tells of a time no engine has a number for, as Elasticsearch would write it.
BEYOND = base64.urlsafe_b64encode(b'[99999999999999999999,"run:1",1,1]').decode().rstrip("=")
STRANGE = ["x", "1", "1-", "1-2-3", "-1-5", "1-" + "9" * 30, "\0", "٣-٣", BEYOND]


@pytest.mark.parametrize("cursor", STRANGE)
def test_a_cursor_that_none_has_given_out(store: LogStore, cursor: str) -> None:
    with pytest.raises(BadQuery, match="no cursor"):
        store.search(ALL, cursor=cursor, limit=5)


def test_groups_of_errors(store: LogStore) -> None:
    def error(seq: int, fingerprint: str, text: str = "boom") -> LogLine:
        return line(seq, text, level="ERROR", fingerprint=fingerprint)

    store.write(
        [
            batch([error(1, "f1"), error(2, "f2", "beta"), error(3, "f1", "last"), line(9)]),
            batch([error(5, "f1")], stream="run:8"),
            batch([error(4, "f1")], stream="run:9", job=6),
            batch([error(6, "f2")], boot="b2"),
        ],
        now=LONG_AGO,
    )
    groups = store.groups(ALL, limit=10)
    known = [(one.job, one.fingerprint, one.count, one.streams) for one in groups]
    assert known == [(5, "f2", 2, 1), (5, "f1", 3, 2), (6, "f1", 1, 1)]
    second = groups[1]
    assert (second.first_at, second.last_at) == (LONG_AGO + SECOND, LONG_AGO + 5 * SECOND)
    assert second.sample.fingerprint == "f1"
    assert second.sample.at == second.last_at
    assert [one.fingerprint for one in store.groups(ALL, limit=1)] == ["f2"]
    some = store.groups(Search(projects={1}, text="beta", since=LONG_AGO), limit=9)
    assert [(one.fingerprint, one.count) for one in some] == [("f2", 1)]
    some = store.groups(Search(projects=None, stream="run:8", levels=["ERROR"]), limit=9)
    assert [(one.fingerprint, one.count) for one in some] == [("f1", 1)]
    assert store.groups(Search(projects=None, fingerprint="f3"), limit=9) == []
