"""State of a run by Scrapy's finish reason, its exceptions and the accounting."""

from __future__ import annotations

from typing import Any

import pytest

from yardscrapy.outcome import judge
from yardspider.accounting import CrawlAccounting

pytestmark = pytest.mark.covers("SC.6")


def accounting(success: int = 1, failed: int = 0) -> CrawlAccounting:
    counts = CrawlAccounting()
    counts.success, counts.total = success, success + failed
    for number in range(failed):
        counts.fail(f"http://a/{number}", 500, "HTTP 500")
    return counts


@pytest.mark.parametrize(
    ("stats", "counts", "expected"),
    [
        ({"finish_reason": "finished"}, accounting(), ("exited", "")),
        ({"finish_reason": "finished"}, accounting(0), ("exited", "")),
        ({"finish_reason": "finished"}, accounting(3, 2), ("exited", "")),
        (
            {"finish_reason": "finished"},
            accounting(0, 2),
            ("failed", "no request succeeded: HTTP 500 (http://a/0)"),
        ),
        ({"finish_reason": "closespider_timeout"}, accounting(), ("exited", "closespider_timeout")),
        ({"finish_reason": "sold out"}, accounting(), ("exited", "sold out")),
        ({"finish_reason": "shutdown"}, accounting(), ("stopped", "SIGTERM")),
        (
            {"finish_reason": "finished", "spider_exceptions/KeyError": 2},
            accounting(0),
            ("failed", "2 exceptions in the spider and no successful request"),
        ),
        ({}, accounting(0), ("failed", "Scrapy did not start the crawl; the log says why")),
    ],
)
def test_ends(stats: dict[str, Any], counts: CrawlAccounting, expected: tuple[str, str]) -> None:
    finish = stats.pop("finish_reason", "")
    assert judge(stats, counts, finish=finish, problem="", stop_reason="") == expected


@pytest.mark.parametrize("reason", ["memusage_exceeded", "closespider_errorcount", "start_error"])
def test_ends_that_are_failures(reason: str) -> None:
    state, why = judge({}, accounting(), finish=reason, problem="", stop_reason="")
    assert (state, why.startswith(f"{reason}: ")) == ("failed", True)


def test_lost_items_fail_a_run_and_are_named_where_it_was_stopped() -> None:
    lost = "5 items were not confirmed"
    end = {"finish": "finished", "problem": lost}
    assert judge({}, accounting(), **end, stop_reason="") == ("failed", lost)
    expected = ("stopped", f"exit message; {lost}")
    assert judge({}, accounting(), **end, stop_reason="exit message") == expected
