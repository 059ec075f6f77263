"""Runs Scrapy's own tests of download handlers, from a checkout that ``SCRAPY_TESTS`` names.

What does not pass is declared here with its reason, and listed in docs/scrapy.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.e2e.daemon_processes import ROOT

CHECKOUT = os.environ.get("SCRAPY_TESTS", "")
LAYERS = {"fetcher": "agents' fetcher", "run": "broker, center, two agents"}
# Of the suite's classes; proxies of TestMitmProxy need mitmdump.
GROUPS = {
    "http": ("TestHttp", "TestHttpWithCrawler"),
    "https": (
        *("TestHttps", "TestHttpsWithCrawler", "TestSimpleHttps", "TestHttpsWrongHostname"),
        *("TestHttpsInvalidDNSId", "TestHttpsInvalidDNSPattern", "TestHttpsCustomCiphers"),
        *("TestHttpsDefaultCiphers", "TestHttpsTLSVersion"),
    ),
    "proxies": ("TestHttpProxy", "TestHttpsProxy"),
    "mitmproxy": ("TestMitmProxy",),
}
# Tests that do not pass in any class or layer.
DECLARED = {
    "test_download_bind_address_setting": "`DOWNLOAD_BIND_ADDRESS` is ignored with a warning: "
    "agents choose the address that they send from",
    "test_keylog": "`SSLKEYLOGFILE` would have to be set for the agent, not for the project",
    "test_keylog_unwritable": "as `test_keylog`",
    "test_verify_certs_deprecated": "expects a warning of Scrapy's Twisted handler about its own "
    "setting; Scrapy's other handlers skip this test",
}
# One for each set of downloader settings that the tests ask for.
RUNS = 30
_SECONDS = 500
_MARKERS = ("only_asyncio", "requires_mitmproxy", "requires_internet", "requires_reactor")


@dataclass(frozen=True)
class Outcome:
    """End of one of Scrapy's tests: ``passed``, ``failed`` or ``skipped``, and why."""

    state: str
    text: str


def run_suite(layer: str, runs: list[dict[str, str]], folder: Path) -> dict[str, Outcome]:
    """Return the outcomes by name, such as ``TestHttp::test_download``.

    ``folder`` has the checkout's package ``tests`` but not its ``scrapy``: the installed one is
    tested.
    """
    folder.mkdir()
    (folder / "tests").symlink_to(Path(CHECKOUT).resolve() / "tests")
    shutil.copy(Path(CHECKOUT) / "conftest.py", folder)
    shutil.copy(Path(__file__).parent / "handler_tests.py", folder / "test_handlers.py")
    markers = "".join(f"\n    {marker}" for marker in _MARKERS)
    (folder / "pytest.ini").write_text(f"[pytest]\nmarkers ={markers}\n")
    (folder / "runs.json").write_text(json.dumps(runs))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CRAWLYARD_", "PYTEST_"))}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--tb=short", "--reactor=none"),
            *("--timeout=60", "-p", "no:django", "--junitxml=results.xml", "test_handlers.py"),
        ],
        cwd=folder,
        env={
            **kept,
            "PYTHONPATH": f"{folder}:{ROOT / 'platform'}",
            "CONFORMANCE_LAYER": layer,
            "CONFORMANCE_RUNS": str(folder / "runs.json"),
        },
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    assert (folder / "results.xml").exists(), done.stdout + done.stderr
    return _outcomes(folder / "results.xml")


def names_folder(folder: Path) -> Path:
    """Return a folder for the import path of agents, in which the tests' names are resolved."""
    folder.mkdir()
    shutil.copy(Path(__file__).parent / "agent_names.py", folder / "sitecustomize.py")
    return folder


def function_name(name: str) -> str:
    """Return the name of a test without class and parameters."""
    return name.partition("::")[2].partition("[")[0]


def table(layer: str, outcomes: dict[str, Outcome]) -> list[str]:
    """Return the lines of the table in docs/scrapy.md about one layer."""
    lines: list[str] = []
    for group, classes in GROUPS.items():
        states = [
            outcome.state
            for name, outcome in outcomes.items()
            if name.partition("::")[0] in classes
        ]
        counts = (len(states), *map(states.count, ("passed", "skipped", "failed")))
        lines.append(f"| {LAYERS[layer]} | {group} | {' | '.join(map(str, counts))} |")
    return lines


def _outcomes(path: Path) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):  # noqa: S314 - written by pytest
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        ends = [(child.tag, child.get("message") or "") for child in case]
        failed = [text for tag, text in ends if tag in ("failure", "error")]
        skipped = [text for tag, text in ends if tag == "skipped"]
        if failed:
            outcomes[name] = Outcome("failed", failed[0])
        elif skipped:
            outcomes[name] = Outcome("skipped", skipped[0])
        else:
            outcomes[name] = Outcome("passed", "")
    return outcomes
