"""The main job on real input: a run crawls a real site through the center and two agents."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet
import pytest

from crawlyard.demo.sample_site import SiteServer
from tests.e2e.counting_site import CountingSite, tree, walk
from tests.e2e.demo_process import Demo

Engines = dict[str, str]
StartDemo = Callable[..., Demo]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartDemo]:
    demos: list[Demo] = []

    def start(*arguments: str, is_first: bool = False, **environment: str) -> Demo:
        folder = tmp_path / f"demo-{len(demos)}"
        demo = Demo(folder, *arguments, is_first=is_first, **environment)
        demos.append(demo)
        return demo

    yield start
    for demo in demos:
        demo.end()


@pytest.fixture(
    params=[
        pytest.param("embedded", marks=pytest.mark.twin),
        pytest.param("configured", marks=pytest.mark.services),
    ]
)
def engines(request: pytest.FixtureRequest) -> Engines:
    """Nothing, or the real servers, for ``--engines``."""
    if request.param == "embedded":
        return {}
    return {
        "DATABASE_URL": request.getfixturevalue("postgres_database"),
        "BROKER_URL": request.getfixturevalue("new_rabbit_vhost"),
        "REDIS_URL": request.getfixturevalue("redis_url"),
    }


def arguments(engines: Engines, *more: str) -> list[str]:
    return ["--engines", "configured" if engines else "embedded", *more]


def check_books(report: dict[str, Any]) -> None:
    assert report["state"] == "exited", report
    assert report["balanced"], report
    assert report["left"] == 0
    assert report["total"] == report["success"] + report["failed"]


@pytest.mark.quick
@pytest.mark.covers("S1.20", "S1.23", "S1.34", "S1.35")
def test_every_page_is_fetched_once_by_both_agents_and_the_books_balance(
    start: StartDemo, engines: Engines
) -> None:
    with CountingSite(tree(400, broken=3)) as site:
        expected = walk(site.url)
        site.hits.clear()
        demo = start(*arguments(engines, "--exit", "--json", "--url", site.url), **engines)
        assert demo.wait() == 0, demo.explain()
        report = demo.report()
    check_books(report)
    assert report["pages"] == len(expected.pages) == 401
    assert report["failed"] == len(expected.failed) == 3
    assert report["items"] == report["items_stored"] == 401
    assert report["dataset"]
    assert {row["url"] for row in report["failures"]} == expected.failed
    assert report["agents"] == 2
    assert max(site.hits.values()) == 1, "a page was fetched twice"
    assert "Traceback" not in demo.log


@pytest.mark.long("a site of 401 pages")
def test_the_bundled_site_without_failures(start: StartDemo) -> None:
    demo = start("--exit", "--json", is_first=True)
    assert demo.wait() == 0, demo.explain()
    report = demo.report()
    check_books(report)
    assert set(report) >= {"run", "state", "pages", "total", "success", "failed", "left"}
    assert report["failed"] == 0
    assert report["pages"] == report["success"] == report["total"] > 200


@pytest.mark.fault
@pytest.mark.covers("S1.49")
@pytest.mark.timeout(240)
def test_an_agent_killed_in_the_middle_costs_no_page(start: StartDemo, engines: Engines) -> None:
    with CountingSite(tree(600), delay_seconds=0.15) as site:
        demo = start(*arguments(engines, "--exit", "--json", "--url", site.url), **engines)
        demo.until(lambda: sum(site.hits.values()) > 150)
        demo.child("--id", "agent-2").send_signal(signal.SIGKILL)
        assert demo.wait(180) == 0, demo.explain()
        report = demo.report()
    check_books(report)
    assert report["pages"] == 601
    assert report["failed"] == 0


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long("the same by SIGTERM"))],
)
def test_a_signal_ends_everything_within_five_seconds(
    start: StartDemo, engines: Engines, number: signal.Signals
) -> None:
    with CountingSite(tree(5000), delay_seconds=0.05) as site:
        demo = start(*arguments(engines, "--url", site.url), **engines)
        demo.until(lambda: sum(site.hits.values()) > 50)
        seconds = demo.stop(number)
        assert seconds < 5.0, demo.explain()
    assert demo.orphans() == []
    assert "Traceback" not in demo.log + demo.stderr, demo.explain()


@pytest.mark.long("the same with the page in a browser, tests/e2e/test_browser.py")
def test_the_admin_stays_after_the_run(start: StartDemo) -> None:
    with CountingSite(tree(20)) as site:
        demo = start("--json", "--url", site.url)
        demo.until(lambda: demo.stdout.endswith("}\n"))
        check_books(json.loads(demo.stdout.splitlines()[-1]))
        with urllib.request.urlopen(f"http://127.0.0.1:{demo.port}/admin/login/") as page:
            assert page.status == 200
        assert "link is good once" in demo.stderr
        assert demo.stop(signal.SIGTERM) < 5.0
    assert demo.orphans() == []


@pytest.mark.long("restarts of single processes, tests/e2e/test_failure_points.py")
def test_a_second_start_on_the_same_folder_works(start: StartDemo, tmp_path: Path) -> None:
    with CountingSite(tree(20)) as site:
        for _ in range(2):
            demo = start(
                "--exit", "--json", "--url", site.url, CRAWLYARD_DEMO_DATA=str(tmp_path / "shared")
            )
            assert demo.wait() == 0, demo.explain()
            assert "link is good once" in demo.stderr
    assert demo.report()["run"] == 2


def test_an_unreachable_site_fails_the_run_with_a_reason(start: StartDemo) -> None:
    demo = start("--exit", "--json", "--url", "http://127.0.0.1:9/")
    assert demo.wait() == 1, demo.explain()
    report = demo.report()
    assert report["state"] == "failed"
    assert report["balanced"]
    assert "127.0.0.1:9" in report["reason"]


def test_a_folder_that_does_not_exist_is_one_clear_line(start: StartDemo) -> None:
    demo = start("--site", "/no/such/folder")
    assert demo.wait() == 2
    assert demo.stderr.splitlines() == ["CommandError: --site /no/such/folder: no such folder"]


def test_a_port_in_use_is_one_clear_line(start: StartDemo) -> None:
    with CountingSite({}) as site:
        port = site.url.rstrip("/").rpartition(":")[2]
        demo = start("--port", port)
        assert demo.wait() == 2
    assert len(demo.stderr.splitlines()) == 1
    assert f"another process listens on 127.0.0.1:{port}" in demo.stderr


@pytest.mark.long("a site of 401 pages, three of them broken")
@pytest.mark.timeout(400)
def test_a_real_manual_is_crawled_completely(start: StartDemo) -> None:
    """Debian's Python manual: 530 files, 67 MB, and one link to a page that is not there."""
    manual = Path("/usr/share/doc/python3.11/html")
    if not (manual / "index.html").exists():
        pytest.skip("Debian's python3.11-doc is not installed")
    demo = start("--exit", "--json", "--site", str(manual))
    assert demo.wait(300) == 0, demo.explain()
    report = demo.report()
    check_books(report)
    with SiteServer(manual) as url:
        expected = walk(url)
    found = {_path(item["url"]) for item in _items(report)}
    assert found == {_path(page) for page in expected.pages}
    assert report["pages"] == len(expected.pages) > 500
    assert report["total"] == len(expected.all)
    failed = {_path(row["url"]) for row in report["failures"]}
    assert failed == {_path(url) for url in expected.failed}


def _path(url: str) -> str:
    return urlsplit(url)._replace(scheme="", netloc="").geturl()


def _items(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the items of the demo's only run, from the files of its table alone."""
    files = list(Path(report["dataset"]).glob("table/data/**/*.parquet"))
    items = pyarrow.parquet.read_table(files)["_item"].to_pylist()
    assert len(items) == report["items_stored"] == report["items"]
    return [json.loads(item) for item in items]
