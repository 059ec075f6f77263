"""Scrapy's own tests of download handlers: over the agents' fetcher, and over a real run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.daemon_processes import ROOT
from tests.yardscrapy.conformance.suite import (
    CHECKOUT,
    DECLARED,
    LAYERS,
    RUNS,
    function_name,
    names_folder,
    run_suite,
    table,
)
from tests.yardscrapy.scrapy_platform import LOOPBACK, ScrapyPlatform

_DOWNLOADER = json.dumps({"allowed_networks": [*LOOPBACK, "::1/128"]})
_DOCS = ROOT / "docs" / "scrapy.md"


@pytest.mark.covers("SC.2")
@pytest.mark.slow("runs a test suite of a minute")
@pytest.mark.skipif(not CHECKOUT, reason="SCRAPY_TESTS names no checkout of Scrapy")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("layer", LAYERS)
def test_scrapys_own_tests_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layer: str
) -> None:
    platform = ScrapyPlatform(tmp_path / "platform", path=names_folder(tmp_path / "names"))
    try:
        runs = [platform.run(CRAWLYARD_DOWNLOADER=_DOWNLOADER) for _ in range(RUNS)]
        outcomes = run_suite(layer, runs, tmp_path / "suite")
    finally:
        platform.close()
    lines = table(layer, outcomes)
    with capsys.disabled():
        print("", *lines, sep="\n")
    wrong = {
        name: outcome
        for name, outcome in outcomes.items()
        if outcome.state == ("passed" if function_name(name) in DECLARED else "failed")
    }
    assert not wrong
    if any(outcome.text == "mitmdump is not available" for outcome in outcomes.values()):
        del lines[-1]
    documented = _DOCS.read_text().splitlines()
    assert [line for line in lines if line not in documented] == []


def test_the_docs_give_the_reason_of_each_test_that_does_not_pass() -> None:
    documented = _DOCS.read_text()
    for name, reason in DECLARED.items():
        assert f"| `{name}` | {reason} |" in documented
