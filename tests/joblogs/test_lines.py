"""What a line says about itself, and that no line does any harm."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.joblogs.engine.lines import (
    CUT_MARK,
    LEVELS,
    LONGEST_TEXT,
    SOURCE_CHARACTERS,
    BadLines,
    check_boot,
    harmless,
    owner_of,
    read_line,
)
from tests.joblogs.factories import NOW, record

OWN = "2026-03-01 11:59:58.250Z"


@pytest.mark.parametrize(
    ("text", "level", "source", "rest"),
    [
        (f"{OWN} INFO yardspider: done", "INFO", "yardspider", "done"),
        (f"{OWN} WARNING news.items: {{}}", "WARNING", "news.items", "{}"),
        ("2026-03-01T13:59:58,250+02:00 FATAL a: b: c", "CRITICAL", "a", "b: c"),
        (f"{OWN} ERROR a: ", "ERROR", "a", ""),
    ],
)
def test_a_line_of_a_logger_tells_time_level_and_name(
    text: str, level: str, source: str, rest: str
) -> None:
    line = read_line(record(1, text), NOW)
    assert (line.level, line.source, line.text) == (level, source, rest)
    assert line.at == datetime(2026, 3, 1, 11, 59, 58, 250_000, UTC)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("ERROR:root:no", "ERROR"),
        ("[WARN] low", "WARNING"),
        ("2026-03-01 11:59:58,250 - CRITICAL - fire", "CRITICAL"),
        ("2026-03-01 11:59:58 INFO scrapy: no zone", "INFO"),
        ("INFO", "INFO"),
        ("INFORMATION is free", ""),
        ("ERROR_COUNT=3", ""),
        ("an ERROR inside", ""),
        ("error: lower case may be anything", ""),
        ("plain", ""),
    ],
)
def test_other_lines_stay_whole_and_have_the_level_they_begin_with(text: str, level: str) -> None:
    line = read_line(record(1, text, source="stderr"), NOW)
    assert (line.level, line.source, line.text) == (level, "stderr", text)
    assert line.at == NOW


@pytest.mark.parametrize(
    "time",
    [
        "9999-12-31 23:59:59.9Z",
        "0001-01-01 00:00:00+23:59",
        "2026-02-30 00:00:00Z",
        "2026-03-01 14:00:00Z",
        "2026-02-28 11:00:00Z",
    ],
)
def test_a_time_that_cannot_be_is_text(time: str) -> None:
    line = read_line(record(1, f"{time} ERROR a: b"), NOW)
    assert (line.at, line.level, line.text) == (NOW, "ERROR", f"{time} ERROR a: b")


@pytest.mark.parametrize("at", [float("nan"), float("inf"), -1e300, 0.0, 1e12, 32503680000.0])
def test_a_clock_that_cannot_be_right_is_replaced_by_ours(at: float) -> None:
    assert read_line(record(1, at=at), NOW).at == NOW


def test_a_given_level_is_kept_and_its_text_not_searched() -> None:
    line = read_line(record(1, f"{OWN} ERROR a: b", level="warning", source="clone"), NOW)
    assert (line.level, line.source, line.text) == ("WARNING", "clone", f"{OWN} ERROR a: b")
    assert read_line(record(1, "x", level="<b>"), NOW).level == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m and \x1b[1;42mbold", "red and bold"),
        ("\x1b]0;title\x07text\x1b]8;;https://evil.example\x1b\\link", "textlink"),
        ("\x1b\x1b[31m[2J", "\\x1b[2J"),
        ("\x1b[2Jgone\r2026 INFO forged", "gone\\r2026 INFO forged"),
        ("\x9b2J\x08\x08\x7f", "\\x9b2J\\x08\\x08\\x7f"),
        ("NUL\x00half\ud800", "NUL\\x00half\\ud800"),
        ("one\ntwo\u2028three\x85four", "one\\ntwo\\u2028three\\x85four"),
        ("\u202egnp.exe\u202c \u2066x\u2069", "\\u202egnp.exe\\u202c \\u2066x\\u2069"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("tab\tand 中文 שלום", "tab\tand 中文 שלום"),
    ],
)
def test_what_could_do_harm_is_written_as_an_escape(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_long_lines_are_cut_and_say_so() -> None:
    line = read_line(record(1, "\x00" * 16_384, source="s" * 500), NOW)
    assert line.text == ("\\x00" * LONGEST_TEXT)[:LONGEST_TEXT] + CUT_MARK
    assert len(line.source) == SOURCE_CHARACTERS
    assert read_line(record(1, "x" * 50_000), NOW).text.endswith(CUT_MARK)


@pytest.mark.parametrize("seq", [0, -1, 2**63])
def test_numbers_that_no_line_has_are_refused(seq: int) -> None:
    with pytest.raises(BadLines, match="count from 1"):
        read_line(record(seq, "x"), NOW)


@pytest.mark.parametrize(
    "stream", ["", "run:", "run:0", "run:07", "run:x", "job:1", "run:1\n", f"run:{2**63}", "run:١"]
)
def test_names_of_no_stream_are_refused(stream: str) -> None:
    with pytest.raises(BadLines):
        owner_of(stream)


@pytest.mark.parametrize("boot", ["", "a" * 33, "a b", "a\x00", "中"])
def test_names_of_no_boot_are_refused(boot: str) -> None:
    with pytest.raises(BadLines):
        check_boot(boot)


@given(text=st.text(alphabet=st.characters()), at=st.floats(), source=st.text())
def test_every_line_becomes_one_that_can_be_stored(text: str, at: float, source: str) -> None:
    line = read_line(record(1, text or "x", at=at, source=source), NOW)
    for shown in (line.text, line.source):
        shown.encode()
        assert shown.splitlines() in ([shown], [])
        assert not {ord(one) for one in shown} & {*range(9), *range(10, 32), *range(127, 160)}
    assert line.level in {*LEVELS, ""}
    assert NOW - timedelta(days=2) < line.at < NOW + timedelta(hours=2)
