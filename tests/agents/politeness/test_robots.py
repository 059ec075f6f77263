"""robots.txt by RFC 9309: asked for once, kept to, and what follows when it cannot be read."""

from __future__ import annotations

import zlib

import pytest

from apps.agents.center.politeness.limits import Defaults, HostRuleLimits, HostRules
from apps.agents.center.politeness.robots import MAX_BYTES, RETRY_SECONDS, origin_of, read
from tests.agents.politeness.engine_harness import HOST, EngineHarness, count, items, reasons, view
from yardkit.protocol import DownloadResult, FailureKind

UNLIMITED = Defaults(requests_per_second=0, concurrency=0)
FORBIDS_2 = "User-agent: *\nDisallow: /2\n"


def test_requests_wait_for_robots_txt_which_is_asked_for_once() -> None:
    harness = EngineHarness(UNLIMITED)
    harness.offer(3, run=1, obey=True)
    harness.offer(3, run=2, obey=True)
    (fetch,) = harness.step().fetches
    assert fetch.url == f"http://{HOST}/robots.txt"
    harness.run(0.3)
    assert not harness.gone
    assert reasons(harness.all.held) == [f"robots.txt of http://{HOST} is not there yet"] * 2
    harness.answer(fetch.number, FORBIDS_2)
    actions = harness.step()
    assert sorted(one.item.id for one in actions.go) == [1, 1, 3, 3]
    assert set(reasons(actions.refused)) == {f"robots.txt of http://{HOST} forbids it"}
    assert count(actions.refused) == 2
    harness.offer(3, run=1, obey=True)
    actions = harness.step()
    assert (len(actions.go), count(actions.refused), actions.fetches) == (2, 1, [])


def test_a_run_that_need_not_obey_is_not_held_and_a_rule_decides_before_it() -> None:
    harness = EngineHarness(UNLIMITED)
    harness.offer(3, obey=False)
    assert len(harness.step().go) == 3
    harness.engine.set_rules(HostRules.of(UNLIMITED, [HostRuleLimits(HOST, obey_robots=True)]))
    harness.offer(3, obey=False)
    assert len(harness.step().fetches) == 1
    harness.engine.set_rules(HostRules.of(UNLIMITED, [HostRuleLimits("b.test", obey_robots=False)]))
    harness.offer(3, host="b.test", obey=True)
    assert len(harness.step().go) == 3


def test_a_request_may_ignore_it_unless_a_rule_of_the_host_says_otherwise() -> None:
    harness = EngineHarness(UNLIMITED)
    free = items(3, ignore_robots=True)
    harness.engine.offer(view(obey=True), free, harness.now)
    actions = harness.step()
    assert (len(actions.go), actions.fetches) == (3, [])
    harness.engine.set_rules(HostRules.of(UNLIMITED, [HostRuleLimits(HOST, obey_robots=True)]))
    harness.engine.offer(view(obey=True), free, harness.now)
    assert len(harness.step().fetches) == 1


def test_each_origin_has_its_own() -> None:
    harness = EngineHarness(UNLIMITED)
    harness.offer(1, obey=True)
    harness.offer(1, host="other.test", obey=True)
    assert {fetch.url for fetch in harness.step().fetches} == {
        f"http://{HOST}/robots.txt",
        "http://other.test/robots.txt",
    }


def test_the_group_of_the_runs_own_user_agent_counts() -> None:
    harness = EngineHarness(UNLIMITED)
    harness.offer(2, obey=True)
    harness.robots("User-agent: *\nDisallow: /\n\nUser-agent: crawlyard\nDisallow: /1\n")
    actions = harness.step()
    assert [one.item.id for one in actions.go] == [2]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451])
def test_what_is_not_there_forbids_nothing(status: int) -> None:
    harness = EngineHarness(UNLIMITED)
    harness.offer(3, obey=True)
    harness.robots("User-agent: *\nDisallow: /", status)
    assert len(harness.step().go) == 3


@pytest.mark.parametrize("failure", [FailureKind.ADDRESS_REFUSED, FailureKind.BAD_REQUEST])
def test_what_the_agent_refuses_it_refuses_for_every_page_in_its_own_words(
    failure: FailureKind,
) -> None:
    harness = EngineHarness(UNLIMITED)
    harness.offer(3, obey=True)
    harness.robots(status=0, failure=failure, error="no")
    assert len(harness.step().go) == 3


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"status": 503}, "HTTP 503"),
        ({"status": 500}, "HTTP 500"),
        ({"status": 429}, "HTTP 429"),
        ({"status": 0, "failure": FailureKind.CONNECTION, "error": "no route"}, "no route"),
    ],
)
def test_out_of_reach_it_is_tried_again_and_then_everything_is_forbidden(
    answer: dict[str, object], problem: str
) -> None:
    harness = EngineHarness(UNLIMITED)
    harness.offer(2, obey=True)
    for pause in RETRY_SECONDS:
        harness.robots(**answer)  # type: ignore[arg-type]
        harness.run(pause - 1.1, tick=0.1)
        assert not harness.gone
        assert not harness.all.refused
        harness.clock.advance(1.2)
    harness.robots(**answer)  # type: ignore[arg-type]
    actions = harness.step()
    text = f"robots.txt of http://{HOST} cannot be read ({problem})"
    assert reasons(actions.refused) == [text]
    assert f"is not there yet ({problem})" in reasons(harness.all.held)[-1]
    # At once for a while, and then it is tried anew.
    harness.offer(1, obey=True)
    assert reasons(harness.step().refused) == [text]
    harness.clock.advance(61)
    harness.offer(1, obey=True)
    harness.robots("")
    assert len(harness.step().go) == 1


def test_an_answer_that_never_comes_is_a_try_that_failed() -> None:
    harness = EngineHarness(UNLIMITED)
    harness.offer(1, obey=True)
    (first,) = harness.step().fetches
    harness.clock.advance(46)
    harness.step()
    harness.clock.advance(3)
    (second,) = harness.step().fetches
    harness.answer(first.number, "User-agent: *\nDisallow: /")
    assert not harness.step().refused
    harness.answer(second.number)
    assert len(harness.step().go) == 1


def test_a_cached_copy_stands_in_for_one_that_is_out_of_reach() -> None:
    harness = EngineHarness(
        Defaults(requests_per_second=0, concurrency=0, robots_cache_seconds=100)
    )
    harness.offer(2, obey=True)
    harness.robots(FORBIDS_2)
    harness.step()
    harness.clock.advance(101)
    harness.offer(2, obey=True)
    for pause in (*RETRY_SECONDS, 0):
        harness.robots(status=500)
        harness.step()
        harness.clock.advance(pause + 0.1)
    assert [one.item.id for _at, one in harness.gone] == [1, 1]
    assert count(harness.all.refused) == 2


def test_redirects_are_followed_five_times() -> None:
    harness = EngineHarness(UNLIMITED)
    harness.offer(1, obey=True)
    for number in range(5):
        (fetch,) = harness.step().fetches
        to = [("Location", f"/r{number}")]
        harness.answer(fetch.number, "", 301, headers=to)
    (fetch,) = harness.step().fetches
    assert fetch.url == f"http://{HOST}/r4"
    harness.answer(fetch.number, "", 301, headers=[("Location", "/again")])
    assert len(harness.step().go) == 1


@pytest.mark.parametrize("where", ["ftp://x/", "http://[", ""])
def test_a_redirect_to_nowhere_forbids_nothing(where: str) -> None:
    harness = EngineHarness(UNLIMITED)
    harness.offer(1, obey=True)
    harness.robots("", 302, headers=[("location", where)])
    assert len(harness.step().go) == 1


@pytest.mark.parametrize("line", ["Crawl-delay: 2", "Request-rate: 1/2s"])
def test_a_delay_it_asks_for_is_a_rate(line: str) -> None:
    harness = EngineHarness(Defaults(concurrency=0))
    harness.offer(30, obey=True)
    harness.robots(f"User-agent: *\n{line}\n")
    harness.run(20.0, tick=0.1)
    assert 9 <= len(harness.gone) <= 11


def test_a_delay_never_makes_a_host_faster() -> None:
    harness = EngineHarness(Defaults(requests_per_second=0.5, concurrency=0))
    harness.offer(30, obey=True)
    harness.robots("User-agent: *\nCrawl-delay: 0.01\n")
    harness.run(20.0, tick=0.1)
    assert len(harness.gone) <= 11


def test_only_the_first_half_megabyte_is_read_and_rubbish_forbids_nothing() -> None:
    late = b"User-agent: *\nAllow: /\n" + b"#" * MAX_BYTES + b"\nUser-agent: *\nDisallow: /\n"
    for body, compressed in ((late, False), (zlib.compress(late), True), (b"\xff\x00" * 99, False)):
        result = DownloadResult(-1, 1, "http://h/robots.txt", 200, [], body, compressed=compressed)
        found = read(result, 0).robots
        assert found is not None
        assert found.can_fetch("http://h/x", "Crawlyard")
    broken = DownloadResult(-1, 1, "http://h/robots.txt", 200, [], b"no zlib", compressed=True)
    assert read(broken, 0).robots is not None


def test_a_host_that_is_stopped_is_not_even_asked_for_it() -> None:
    harness = EngineHarness(UNLIMITED, HostRuleLimits(HOST, stopped=True))
    harness.offer(1, obey=True)
    harness.run(5.0, tick=0.5)
    assert not harness.step().fetches
    harness.engine.set_rules(HostRules(UNLIMITED))
    assert len(harness.step().fetches) == 1


def test_a_request_that_cannot_be_read_is_the_agents_business() -> None:
    harness = EngineHarness(UNLIMITED)
    (item,) = items(1)
    bad = type(item)(1, 1, HOST, "", type(item.request)(b"\xc1"))
    harness.engine.offer(view(obey=True), [bad], harness.now)
    assert len(harness.step().go) == 1


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://a.test/x?y#z", "http://a.test"),
        ("https://a.test:443/", "https://a.test"),
        ("http://a.test:8080", "http://a.test:8080"),
        ("http://[::1]:80/", "http://[::1]"),
        ("file:///etc", ""),
        ("http://", ""),
        ("http://a:b/", ""),
        ("", ""),
    ],
)
def test_origins(url: str, origin: str) -> None:
    assert origin_of(url) == origin
