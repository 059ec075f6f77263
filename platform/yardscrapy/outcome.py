"""State and exit status of a run by how Scrapy has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from yardspider.accounting import CrawlAccounting
from yardspider.outcome import State

# Ends that something broke, as Scrapy names them, and ours.
_FAILED: Final = {
    "start_error": "the spider's start failed",
    "memusage_exceeded": "the memory limit of the project (MEMUSAGE_LIMIT_MB) is exceeded",
    "closespider_errorcount": "too many exceptions (CLOSESPIDER_ERRORCOUNT)",
    "platform_lost": "the platform is out of reach",
}


def judge(
    stats: Mapping[str, Any],
    accounting: CrawlAccounting,
    *,
    finish: str,
    problem: str,
    stop_reason: str,
) -> tuple[State, str]:
    """Return the state of a run and its reason.

    Args:
        stats: Scrapy's statistics at the end.
        finish: the reason for which Scrapy has closed the spider; "" if it was never opened.
        problem: why the crawl could not be run, or why items are lost; "" if all is well.
        stop_reason: why the platform ended it; "" if it did not.
    """
    if stop_reason or (finish == "shutdown" and not problem):
        return "stopped", "; ".join(filter(None, [stop_reason or "SIGTERM", problem]))
    if problem:
        return "failed", problem
    if finish in _FAILED:
        return "failed", f"{finish}: {_FAILED[finish]}"
    if not finish:
        return "failed", "Scrapy did not start the crawl; the log says why"
    if accounting.total and not accounting.success and accounting.first_failures:
        first = accounting.first_failures[0]
        return "failed", f"no request succeeded: {first.reason} ({first.url})"
    exceptions = exceptions_in(stats)
    if exceptions and not accounting.success:
        return "failed", f"{exceptions} exceptions in the spider and no successful request"
    # A reason of the project's own, or of CloseSpider.
    return "exited", "" if finish == "finished" else finish


def exceptions_in(stats: Mapping[str, Any]) -> int:
    """Return the spider's exceptions: before 2.13 Scrapy counts them by class only."""
    return stats.get("spider_exceptions/count") or sum(
        value
        for name, value in stats.items()
        if name.startswith("spider_exceptions/") and isinstance(value, int)
    )
