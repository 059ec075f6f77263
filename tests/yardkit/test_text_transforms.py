"""Texts cut, resolved and re-encoded on their way, and read again as a spider reads them."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yardkit import charsets, text_filters
from yardkit.fetched import Fetched
from yardkit.protocol import CutRule, DownloaderSettings, FailureKind, header_pairs
from yardkit.text_filters import TextFilter, resolve_entities
from yardspider import Response

PAGE = "<html><b>first</b> <i> 二 </i> <b>third</b></html>"


def fetched(body: str | bytes = PAGE, content_type: str = "text/html", **changes: Any) -> Fetched:
    raw = body.encode() if isinstance(body, str) else body
    headers = [("X-First", "1")] + ([("Content-Type", content_type)] if content_type else [])
    answer = Fetched("http://h/", 200, header_pairs(headers), raw, FailureKind.NONE, "", 1.5, False)
    return dataclasses.replace(answer, **changes)


async def filtered(answer: Fetched, *rules: CutRule, **settings: Any) -> Fetched:
    return await TextFilter(DownloaderSettings(cut=list(rules), **settings)).apply(answer)


def read(answer: Fetched) -> str:
    """What the spider's callback sees."""
    assert not answer.failure, answer.error
    return Response(answer.url, headers=answer.headers, body=answer.body).text


# --- rules --------------------------------------------------------------------------------------


@pytest.mark.covers("S1.27")
@pytest.mark.parametrize(
    ("rule", "cut"),
    [
        (CutRule(start="<b>", end="</b>"), "<b>first</b>"),
        (CutRule(start="<b>", end="</b>", start_offset=3, end_offset=-4), "first"),
        (CutRule(start="<i>", end="</i>", start_offset=3, end_offset=-4), " 二 "),
        (CutRule(start="<i>", end="</i>", start_offset=3, end_offset=-4, trim=True), "二"),
        # The end is looked for behind the start, even where both are the same.
        (CutRule(start="b>", end="b>"), "b>first</b>"),
        (CutRule(start="</b>", end="<b>", start_offset=-5), "first</b> <i> 二 </i> <b>"),
        (CutRule(end="</b>"), "<html><b>first</b>"),
        (CutRule(start="<b>third"), "<b>third</b></html>"),
        (CutRule(start_offset=6, end_offset=-7), PAGE[6:-7]),
        (CutRule(), PAGE),
        (CutRule(start="<i>", end="</i>", start_offset=3, end_offset=-7), ""),
        (CutRule(pattern=r"<i>.*?</i>"), "<i> 二 </i>"),
        (CutRule(pattern=r"<i>\s*(.*?)\s*</i>"), "二"),
        (CutRule(pattern=r"<i>(.*?)</i>", trim=True), "二"),
        (CutRule(pattern=r"<i>(.)(.)", start_offset=-3, end_offset=3), "<i> 二 <"),
        (CutRule(pattern=r"(?i)<B>TH"), "<b>th"),
    ],
)
async def test_a_rule_cuts(rule: CutRule, cut: str) -> None:
    answer = await filtered(fetched(), rule)
    assert read(answer) == cut
    assert (answer.status, answer.url, answer.elapsed_ms) == (200, "http://h/", 1.5)
    assert ("X-First", "1") in answer.headers


@pytest.mark.covers("S1.27")
@pytest.mark.parametrize(
    ("rule", "error"),
    [
        (CutRule(start="<u>"), "cut rule 2: start '<u>' was not found"),
        (CutRule(start="<b>", end="<u>"), "cut rule 2: end '<u>' was not found after the start"),
        (CutRule(start="</html>", end="</b>"), "cut rule 2: end '</b>' was not found after"),
        (CutRule(start="<b>", end="</b>", start_offset=13), "the length is negative: -1"),
        (CutRule(start="<b>", end="</b>", end_offset=-13), "the length is negative: -1"),
        (CutRule(start_offset=-1), "cut rule 2: it begins 1 characters before the text"),
        (CutRule(end_offset=2), "cut rule 2: it ends 2 characters after the text"),
        (CutRule(pattern="<u>(x)"), "cut rule 2: no match of pattern '<u>(x)'"),
        (CutRule(pattern="html(x)?"), "cut rule 2: nothing in its group of pattern"),
        (CutRule(start="x" * 500), f"cut rule 2: start '{'x' * 60}...' was not found"),
    ],
)
async def test_a_rule_that_does_not_fit_is_a_failure(rule: CutRule, error: str) -> None:
    answer = await filtered(fetched(), CutRule(), rule)
    assert (answer.failure, answer.status, answer.body) == (FailureKind.BAD_RULE, 0, b"")
    assert error in answer.error
    assert answer.headers == []


@pytest.mark.covers("S1.27")
async def test_rules_follow_one_another() -> None:
    rules = CutRule(start="<b>third"), CutRule(end="</b>"), CutRule(pattern="[a-z]{3,}")
    assert read(await filtered(fetched(), *rules)) == "third"


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"cut": [CutRule(), CutRule(pattern="(")]}, "cut rule 2: bad pattern: missing )"),
        ({"cut": [CutRule(pattern="(?=a)")]}, "cut rule 1: bad pattern: invalid perl operator"),
        ({"cut": [CutRule(pattern="\ud800")]}, "cut rule 1: bad pattern: "),
        ({"cut": [CutRule(pattern="a" * 1001)]}, "cut rule 1: the pattern has 1001 characters"),
        ({"cut": [CutRule(pattern="((a?){30}){30}b")]}, "cut rule 1: the pattern repeats too much"),
        ({"cut": [CutRule(pattern="a", start="b")]}, "cut rule 1: it has a pattern, so no start"),
        ({"cut": [CutRule()] * 51}, "51 cut rules; use up to 50"),
        ({"encoding": "klingon"}, "encoding 'klingon' is unknown"),
        ({"encoding": "base64"}, "encoding 'base64' is unknown"),
    ],
)
def test_settings_that_make_no_sense(
    settings: dict[str, Any], error: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=r"cut rule|encoding") as caught:
        TextFilter(DownloaderSettings(**settings))
    assert error in str(caught.value)
    assert capfd.readouterr().err == "", "re2 writes nothing of its own"


@pytest.mark.parametrize("status", [199, 301, 404, 503])
async def test_only_successful_answers_are_cut(status: int) -> None:
    answer = fetched(status=status)
    assert await filtered(answer, CutRule(start="nowhere"), decode_html=True) == answer


async def test_a_failure_stays_what_it_is() -> None:
    answer = fetched(b"", status=0, failure=FailureKind.TIMEOUT, error="no answer in time")
    assert await filtered(answer, CutRule(start="nowhere"), encoding="gbk") == answer


@pytest.mark.parametrize(
    ("content_type", "body", "is_text"),
    [
        ("text/html", b"<b>", True),
        ("TEXT/Plain; charset=utf-8", b"<b>", True),
        ("application/json", b"<b>", True),
        ("application/ld+json", b"<b>", True),
        ("image/svg+xml", b"<b>", True),
        ("", b"<b>", True),
        ("", "\ufeff<b>".encode("utf-16-le"), True),
        ("image/png", b"<b>", False),
        ("application/octet-stream", b"<b>", False),
        ("", b"<b>\0", False),
    ],
)
async def test_rules_need_a_text(content_type: str, body: bytes, is_text: bool) -> None:
    answer = fetched(body, content_type)
    cut = await filtered(answer, CutRule(start="<b>"))
    if is_text:
        assert read(cut) == "<b>"
        return
    assert cut.failure == FailureKind.BAD_RULE
    assert cut.error.startswith("rules cut texts, and this is ")
    # Without rules it is nothing to complain of.
    assert await filtered(answer, decode_html=True, encoding="gbk") == answer
    missing = dataclasses.replace(answer, status=404)
    assert await filtered(missing, CutRule(start="<b>")) == missing


# --- encodings and entities ---------------------------------------------------------------------


@pytest.mark.covers("S1.27")
@pytest.mark.parametrize(
    ("body", "content_type", "encoding"),
    [
        ("<p>中文</p>".encode("gbk"), "text/html; charset=gbk", "gb18030"),
        # What told the encoding is cut away.
        ("<meta charset=gbk><p>中文</p>".encode("gbk"), "text/html", "gb18030"),
        ("<meta charset=gbk><p>中文</p>".encode("gbk"), "", "gb18030"),
        ("\ufeff<p>中文</p>".encode("utf-16-le"), "text/html", "utf-16-le"),
        ("\ufeff<p>中文</p>".encode(), "text/html; charset=gbk", "utf-8"),
        ("<p>中文</p>".encode("shift_jis", "ignore"), "text/html; charset=shift_jis", "cp932"),
        ("<p>中文</p>".encode(), "text/html", "utf-8"),
    ],
)
async def test_the_spider_reads_what_was_cut(body: bytes, content_type: str, encoding: str) -> None:
    wanted = charsets.decode(body, content_type)[0].partition("<p>")[2].removesuffix("</p>")
    answer = await filtered(fetched(body, content_type), CutRule(pattern="<p>(.*)</p>"))
    assert read(answer) == wanted
    assert answer.body == wanted.encode(encoding)


@pytest.mark.covers("S1.30")
async def test_the_encoding_of_the_settings_counts_more_than_the_page() -> None:
    raw = "<meta charset=utf-8>中文".encode("gbk")
    for content_type in ("text/html; charset=utf-8", "text/html", ""):
        answer = await filtered(fetched(raw, content_type), encoding="gbk")
        assert read(answer).endswith("中文")
        assert answer.body == raw
        cut = await filtered(fetched(raw, content_type), CutRule(start="中"), encoding="GBK")
        assert read(cut) == "中文"
    missing = await filtered(fetched(raw, status=404), encoding="gbk")
    assert read(missing).endswith("中文")
    # A byte-order mark is never wrong.
    marked = fetched("\ufeff中文".encode())
    assert await filtered(marked, encoding="gbk") == marked


@pytest.mark.covers("S1.30")
async def test_entities_are_resolved_before_rules_look() -> None:
    answer = fetched("é &lt;b&gt;&#20013;&amp;amp;".encode("latin-1"), "text/html; charset=latin1")
    assert read(await filtered(answer)).startswith("é &lt;")
    resolved = await filtered(answer, CutRule(start="<b>"), decode_html=True)
    # The page's own encoding has no such character.
    assert read(resolved) == "<b>中&amp;"
    assert dict(resolved.headers)["Content-Type"] == "text/html; charset=utf-8"
    whole = await filtered(answer, decode_html=True)
    assert read(whole) == "é <b>中&amp;"


async def test_the_limit_of_a_body_holds_for_the_result_too() -> None:
    answer = fetched("é&#20013;".encode("latin-1") + b"x" * 88, "text/html; charset=latin1")
    whole = await filtered(answer, decode_html=True, max_body_bytes=100)
    assert (len(whole.body), whole.truncated) == (93, False)
    cut = await filtered(answer, decode_html=True, max_body_bytes=92)
    assert (len(cut.body), cut.truncated) == (92, True)
    assert (await filtered(dataclasses.replace(answer, truncated=True), CutRule())).truncated


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("&#" + "9" * 100_000 + ";x", "\ufffdx"),
        ("&#x" + "f" * 100_000 + ";x", "\ufffdx"),
        ("&#" + "0" * 2000 + "65;", "A"),
        ("&#xD800;&#0;", "\ufffd\ufffd"),
        ("&" * 100_000, "&" * 100_000),
        ("&nbsp;&copy;&notin;&nothing", "\xa0©∉¬hing"),
    ],
    ids=["decimal", "hexadecimal", "zeros", "surrogate", "ampersands", "names"],
)
def test_no_entity_is_too_much(text: str, resolved: str) -> None:
    assert resolve_entities(text) == resolved


# --- large texts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        CutRule(start="end of the text", end="."),
        CutRule(pattern=r"(?:a+)+(end of the text)\."),
        CutRule(pattern=r"(end of the text)\.$"),
    ],
)
async def test_large_texts_are_cut_in_linear_time(rule: CutRule) -> None:
    # Backtracking would not come to an end here: the limit is the time-out of all tests.
    body = "a" * (8 * 1024 * 1024) + "end of the text."
    assert read(await filtered(fetched(body), rule)).startswith("end of the text")


@pytest.mark.parametrize(
    ("pattern", "size", "in_thread"),
    [
        ("a(b)", 100_000, False),
        ("a(b)", 200_000, True),
        (r"(?:[ab]{20}){9}?(b)|a(b)", 40_000, True),
    ],
)
async def test_what_takes_long_is_done_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, pattern: str, size: int, in_thread: bool
) -> None:
    threads = []
    decode = charsets.decode

    def noting(body: bytes, content_type: str = "") -> tuple[str, str]:
        threads.append(threading.current_thread() is not threading.main_thread())
        return decode(body, content_type)

    monkeypatch.setattr(text_filters.charsets, "decode", noting)
    await filtered(fetched("a" * size + "b"), CutRule(pattern=pattern))
    assert threads == [in_thread]


@settings(deadline=None)
@given(
    text=st.text(max_size=40),
    rule=st.builds(
        CutRule,
        start=st.text("ab<", max_size=2),
        end=st.text("ab<", max_size=2),
        start_offset=st.integers(-5, 5),
        end_offset=st.integers(-5, 5),
        trim=st.booleans(),
    ),
    encoding=st.sampled_from(["utf-8", "gbk", "utf-16", "latin-1"]),
)
def test_no_rule_raises_and_the_rest_is_part_of_the_text(
    text: str, rule: CutRule, encoding: str
) -> None:
    raw = text.encode(encoding, "replace")
    answer = fetched(raw, f"text/html; charset={encoding}")
    cut = asyncio.run(filtered(answer, rule))
    if cut.failure:
        assert (cut.failure, cut.error[:10]) == (FailureKind.BAD_RULE, "cut rule 1")
    else:
        assert read(cut) in read(answer)
