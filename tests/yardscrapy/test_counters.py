"""Outcome of each request, with every version of Scrapy."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.yardscrapy.market_site import market_site
from tests.yardscrapy.runs import ENVIRONMENT
from tests.yardscrapy.scrapy_platform import PROJECTS

pytestmark = [pytest.mark.slow("starts interpreters"), pytest.mark.covers("SC.1", "SC.6")]


def counted(python: str, spider: str, *pairs: str) -> dict[str, Any]:
    """Crawl; return the outcomes of requests, with failures as {path: (status, reason)}."""
    with market_site() as site:
        done = subprocess.run(
            [python, "-m", "tests.yardscrapy.counted_crawl", spider, site.url, *pairs],
            cwd=PROJECTS / "market",
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    told["failures"] = {
        url.removeprefix(site.url): (status, reason) for url, status, reason in told["failures"]
    }
    return told


def test_each_request_has_one_outcome(python: str) -> None:
    told = counted(python, "visits")
    # Replaced: the form's 302, /redirect, /flaky twice, the closed port twice.
    assert (told["replaced"], told["open"]) == (6, 0)
    failures = told["failures"]
    assert failures.pop("http://127.0.0.1:9/closed")[0] == 0
    assert failures == {
        "/gone": (404, "HTTP 404"),
        "/gone?errback": (404, "HTTP 404"),
        "/broken": (200, "ValueError: a bug of the spider"),
    }
    # The login, both accounts, the page after /redirect, /flaky, the handled 404.
    assert told["succeeded"] == 6
    assert told["started"] == 6 + 6 + 4


def test_downloads_of_pipelines_have_an_outcome(python: str, tmp_path: Any) -> None:
    told = counted(python, "media", f"FILES_STORE={tmp_path}")
    assert (told["started"], told["succeeded"], told["open"]) == (3, 2, 0)
    assert told["failures"] == {"/gone.png": (404, "HTTP 404")}


def test_answers_from_a_cache_are_successes(python: str, tmp_path: Any) -> None:
    words = ("walk", "HTTPCACHE_ENABLED=1", f"HTTPCACHE_DIR={tmp_path}")
    told = counted(python, *words)
    assert (told["failures"], told["open"]) == ({}, 0)
    assert told["succeeded"] == told["started"] > 5
