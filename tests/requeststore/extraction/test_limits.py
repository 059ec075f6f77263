"""Bombs: pages and rules that would take all the time or memory there is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any, Final

import pytest

from apps.requeststore.extraction import ResponsePage, limits
from apps.requeststore.extraction.processes import ExtractionPool, ExtractionProcess
from tests.requeststore.extraction.shortcuts import URL, extract, page, value

pytestmark = pytest.mark.covers("S4.5", "S4.20")
# Nested as deeply as they may be: each walk through one begins in many others.
NESTED: Final = b"<html><body>" + (b"<div>" * 240 + b"x" * 100 + b"</div>" * 240) * 300
RULES: Final[dict[str, Any]] = {
    "slow": {"fields": {"v": "div div div::text"}},
    "quick": {"fields": {"v": "div::text"}},
    "large": {
        "type": "json",
        "fields": {"v": {"jmespath": "to_string([@,@,@,@,@,@,@,@,@,@].[@,@,@,@,@][])"}},
    },
}


def test_entities_are_not_opened(tmp_path: Any) -> None:
    """Neither files nor growing ones."""
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    for declared in (
        f"<!ENTITY a SYSTEM 'file://{secret}'>",
        f"<!ENTITY % p SYSTEM 'file://{secret}'> %p; <!ENTITY a 'hunter2'>",
    ):
        body = f"<!DOCTYPE x [{declared}]><x><v>&a;</v></x>"
        found = extract({"type": "xml", "fields": {"v": {"xpath": "//v"}}}, body)
        assert (found.failed, found.problems[0].code) == (True, "xml_entities")
        assert "hunter2" not in str(found)
    grows = "".join(f"<!ENTITY e{n} '{f'&e{n - 1};' * 10}'>" for n in range(1, 12))
    body = f"<!DOCTYPE x [<!ENTITY e0 'lol'>{grows}]><x><v>&e11;</v></x>"
    began = time.process_time()
    assert extract({"type": "xml", "fields": {"v": {"xpath": "//v"}}}, body).failed
    assert time.process_time() - began < 2
    feed = "<!DOCTYPE rss PUBLIC 'x' 'http://127.0.0.1:1/rss.dtd'><rss>a &amp; b</rss>"
    assert value({"xpath": "//rss"}, feed, "xml") == "a & b"


def test_a_page_is_cut_where_it_is_too_deep_and_that_is_told() -> None:
    body = "<div>" * 5000 + "deep" + "</div>" * 5000 + "<p>after</p>"
    found = extract({"fields": {"v": "p"}}, body)
    assert (found.records, found.failed) == ([{"v": None}], False)
    assert [each.code for each in found.problems] == ["page_cut"]
    assert extract({"fields": {"v": {"css": "p", "required": True}}}, body).failed


def test_a_page_that_is_too_large_is_not_read() -> None:
    found = extract({"fields": {"v": "p"}}, b" " * (limits.MAX_PAGE_BYTES + 1))
    assert (found.failed, found.problems[0].code) == (True, "page_too_large")


@pytest.mark.parametrize(
    ("field", "body", "kind", "text"),
    [
        ("p", "<p>" + "x" * limits.MAX_FIELD_BYTES, "html", "bytes"),
        ({"css": "p", "list": True}, "<p>a" * 10_001, "html", "more than 10000 values"),
        ({"css": "p", "steps": [{"split": "a"}], "list": True}, "<p>" + "a" * 20_000, "html",
         "more than 10000 parts"),
        ({"css": "p", "steps": [{"replace": ["a", "b" * 1000]}] * 3}, "<p>" + "a" * 9000, "html",
         "grows too long"),
        ({"css": "p", "steps": [{"sub": ["a", "b" * 1000]}] * 2}, "<p>" + "a" * 9000, "html",
         "grows too long"),
        ({"css": "p", "list": True, "steps": [{"join": "b" * 1000}]}, "<p>a" * 9000, "html",
         "grows too long"),
        ("[@,@,@,@,@,@,@,@,@,@]", '["' + "x" * 30_000 + '"]', "json", "bytes"),
        ("@", "[" * 80 + "]" * 80, "json", "inside one another"),
        ("@", str(2**64 - 1), "json", "too large a number"),
        ({"jmespath": "@", "as": "integer"}, '"' + "9" * 5000 + '"', "json", "no number"),
        ({"jmespath": "@", "as": "integer"}, '"9e300"', "json", "no whole number"),
        ({"jmespath": "@", "as": "number"}, '"1e999"', "json", "too large a number"),
        ({"jmespath": "@", "as": "datetime"}, '"9999-12-31T23:59:59-23:00"', "json", "no time"),
        ({"jmespath": "ceil(to_number('1e999'))"}, "1", "json", "OverflowError"),
        ({"jmespath": "sum(@)"}, '["a"]', "json", "sum()"),
    ],
)  # fmt: skip
def test_a_value_that_is_too_much_is_a_problem(field: Any, body: str, kind: str, text: str) -> None:
    found = extract({"type": kind, "fields": {"v": field}}, body)
    assert not found.failed
    assert [each.code for each in found.problems] == ["bad_value"]
    assert text in found.problems[0].text
    assert found.records[0]["v"] in (None, []) or isinstance(found.records[0]["v"], list)


def test_records_that_are_too_much_fail_the_request() -> None:
    body = "<p>" + "x" * 100_000
    rule = {"fields": {f"f{number}": "p" for number in range(100)}}
    found = extract(rule, body)
    assert (found.failed, found.records) == (True, [])
    assert found.problems[-1].code == "too_much"


def test_only_the_first_problems_are_kept() -> None:
    rule = {"each": "p", "fields": {"n": {"css": "b", "as": "integer"}}}
    found = extract(rule, "<p><b>x</b>" * 150)
    assert (len(found.problems), found.hidden) == (100, 50)


@pytest.mark.slow("3 s")
def test_what_takes_too_long_is_ended_and_the_next_page_is_read() -> None:
    """libxml2 would be at it for minutes, and cannot be asked to stop."""
    with ExtractionProcess(cpu_seconds=0.5) as box:
        slow = box.extract("k", RULES, "slow", page(NESTED))
        assert (slow.failed, slow.problems[0].code) == (True, "too_slow")
        quick = box.extract("k", RULES, "quick", page(NESTED))
        assert quick.records == [{"v": "x" * 100}]
        assert box.explain("k", RULES, "slow", page(NESTED)).extracted.failed
        assert box.explain("k", RULES, "quick", page("<div>a</div>")).matched[0].count == 1


@pytest.mark.slow("2 s")
def test_what_takes_too_much_memory_is_ended() -> None:
    """The rule may write its page fifty times; the process has room for less."""
    body = b'["' + b"x" * 7_000_000 + b'"]'
    with ExtractionProcess(memory_bytes=300 * 1024 * 1024) as box:
        found = box.extract("k", RULES, "large", page(body))
        assert found.failed
        assert found.problems[0].code in ("crashed", "too_much", "page_too_large")
        assert box.extract("k", RULES, "quick", page("<div>a</div>")).records == [{"v": "a"}]


def test_a_box_reads_as_the_rules_themselves_do() -> None:
    """Chinese, problems, links, many versions of rules, and rules that cannot be used."""
    with ExtractionPool(2) as boxes:
        for number in range(120):
            rules = {"r": {"fields": {"v": "h1", "n": {"const": number}}}}
            found = boxes.extract(f"v{number}", rules, "", page("<h1>中文</h1>", meta={"a": 1}))
            assert found.records == [{"v": "中文", "n": number}]
        again = boxes.extract("v0", {"r": {"fields": {"v": "h1"}}}, "", ResponsePage(url=URL))
        assert not again.failed
        bad = boxes.extract("bad", {"r": {}}, "r", ResponsePage(url=URL))
        assert (bad.failed, bad.problems[0].code) == (True, "bad_rules")
        unsendable = boxes.extract("v0", {}, "r", ResponsePage(url=URL, meta={"a": object()}))
        assert (unsendable.failed, unsendable.problems[0].code) == (True, "not_readable")


def test_no_secret_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    with ExtractionProcess() as box:
        box.extract("k", RULES, "quick", page("<div>a</div>"))
        assert box.pid is not None
        with open(f"/proc/{box.pid}/environ", "rb") as file:
            assert b"hunter2" not in file.read()
        os.kill(box.pid, 9)
        # Whoever was killed is replaced; the page that met it may be tried again.
        found = [box.extract("k", RULES, "quick", page("<div>a</div>")) for _ in range(2)]
        assert found[-1].records == [{"v": "a"}]
    assert box.pid is None


@pytest.mark.slow("1 s")
def test_the_process_ends_with_its_owner() -> None:
    """However that ends."""
    program = (
        "import time\n"
        "from apps.requeststore.extraction import ResponsePage\n"
        "from apps.requeststore.extraction.processes import shared_extraction_pool\n"
        "boxes = shared_extraction_pool()\n"
        "page = ResponsePage(url='http://a.cn/', body=b'<p>a')\n"
        "assert boxes.extract('k', {'r': {'fields': {'v': 'p'}}}, '', page).records\n"
        "print(*boxes.pids, flush=True)\n"
        "time.sleep(60)\n"
    )
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    owner = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment
    )
    assert owner.stdout is not None
    with owner.stdout:
        pids = [int(each) for each in owner.stdout.readline().split()]
        owner.kill()
        owner.wait()
    assert len(pids) == 1
    until = time.monotonic() + 20
    while os.path.exists(f"/proc/{pids[0]}") and time.monotonic() < until:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{pids[0]}")
